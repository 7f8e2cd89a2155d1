"""Hugging Face models loaded from a folder, and beside one its twin that runs on a sidecar.

The twin has modules of its own but shares every tensor with the source, hyper-connections excepted: a pair of models
takes the memory of one.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from streamgauge.simulate.attach import BRANCHES, MODELS, attach, streams_module
from streamgauge.simulate.formats.shards import Shards
from streamgauge.simulate.hosted.text import read_config
from streamgauge.simulate.hosted.widened import Widened
from streamgauge.theory.errors import InputError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}
_LOADERS = {"deepseek_v4": "AutoModelForCausalLM", "glm5_next": "AutoModelForImageTextToText"}
"""The class with a language-model head; the others have none."""
_MIXERS = (*BRANCHES, "hc_head")


def load_model(folder: str | Path, *, dtype: str = "float32", device_map: Any = None, converted: bool = False) -> Any:
    """The model in ``folder``, in evaluation mode.

    - ``dtype``: a key of :data:`DTYPES`; these models cast to float32 inside, but not in :func:`logits_of`.
    - ``device_map``: as in ``from_pretrained`` ("auto", "cpu", ...); needs accelerate.
    - ``converted``: whether its hyper-connections may be missing because a sidecar holds them.

    Only local files are read and no code of the folder is run.  **Raises** :class:`InputError`, one line.
    """
    folder = Path(folder)
    if dtype not in DTYPES:
        raise InputError(f"dtype: found {dtype!r}, expected one of {', '.join(DTYPES)}")
    config = read_config(folder)
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in MODELS:
        raise InputError(f"{folder}: found a model of type {kind!r}, expected one of {', '.join(MODELS)}")
    if find_spec("transformers") is None:
        raise InputError("running a model needs transformers: pip install 'streamgauge[hf]'")
    _refuse_code(folder, config)
    if not converted:
        Shards(folder)  # headers and index are whole, no pickles, nothing out of the folder
    import transformers

    loader = getattr(transformers, _LOADERS.get(kind, "AutoModel"))
    options: dict[str, Any] = {} if device_map is None else {"device_map": device_map}
    if dtype == "float64":
        options["experts_implementation"] = "eager"  # the grouped one has no float64
    try:
        with _quiet(transformers.utils.logging):
            model, info = loader.from_pretrained(
                folder,
                dtype=DTYPES[dtype],
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # named below; the report of transformers' own refusal is a table
                **options,
            )
    except Exception as error:  # whatever the files hold: transformers checks configs with classes of its own
        raise InputError(f"{folder}: cannot be loaded ({_reason(error)})") from None
    for name, found, expected in sorted(info["mismatched_keys"]):
        raise InputError(f"{folder}: tensor {name} is {tuple(found)}, expected {tuple(expected)} by the config")
    lacking = sorted(name for name in info["missing_keys"] if not (converted and _of_mixer(name)))
    if lacking:
        hint = " (a converted checkpoint?)" if _of_mixer(lacking[0]) else ""
        raise InputError(f"{folder}: has no tensor {lacking[0]}, expected every tensor of the model{hint}")
    _refuse_empty(folder, model)
    if dtype == "float64":
        model.double()  # some of its tensors ask to stay in float32
    return model.eval()


def attached_twin(source: Any, sidecar: str | Path, *, precision: str = "float32") -> Any:
    """A model like ``source`` that runs on ``sidecar``; all tensors but those of the hyper-connections are shared.

    ``source`` stays as it is.  **Raises** :class:`InputError` as :func:`~streamgauge.simulate.attach.attach` does.
    """
    return attach(shared_copy(source), sidecar, precision=precision)


def load_pair(
    folder: str | Path, other: str | Path, *, dtype: str = "float32", device_map: Any = None
) -> tuple[Any, Any]:
    """The model of ``folder``, and what ``other`` makes of it.

    ``other`` is a sidecar, or its folder: then the two share memory.  Where it is a whole model's folder (``--full``,
    or saved by an attached model) its own tensors are loaded, and the pair takes the memory of two.

    **Raises** :class:`InputError`, one line.
    """
    source, place = load_model(folder, dtype=dtype, device_map=device_map), Path(other)
    precision = "float64" if dtype == "float64" else "float32"
    if not (place / "config.json").is_file():
        return source, attached_twin(source, place, precision=precision)
    model = load_model(place, dtype=dtype, device_map=device_map, converted=True)
    return source, attach(model, place, precision=precision)


def shared_copy(model: nn.Module) -> Any:
    """Modules, hooks and config copied; parameters and buffers the very same tensors."""
    held: list[Tensor] = [*model.parameters(), *model.buffers()]
    return copy.deepcopy(model, {id(tensor): tensor for tensor in held})


def logits_of(model: Any, tokens: Tensor) -> Tensor:
    """Logits (B, T, V) of int64 tokens (B, T), without a cache; a float64 model computes all of them in float64.

    **Raises** :class:`InputError` for a model without a language-model head.
    """
    with Widened() if getattr(model, "dtype", None) is torch.float64 else nullcontext():
        logits = getattr(run(model, tokens), "logits", None)
    if not torch.is_tensor(logits):
        raise InputError(f"{type(model).__name__}: has no language-model head, expected a model that predicts tokens")
    return logits


def run(model: Any, tokens: Tensor, **options: Any) -> Any:
    """A forward pass without a cache. **Raises** :class:`InputError` with whatever the model raises, in one line:
    numbers of its config that do not fit each other show themselves here first."""
    try:
        return model(input_ids=tokens.to(input_device(model)), use_cache=False, **options)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{type(model).__name__}: does not run on this text ({_reason(error)})") from error


def input_device(model: Any) -> torch.device:
    """Where a model takes its tokens; offloaded, anywhere: accelerate's hooks move them."""
    weight: Tensor = model.get_input_embeddings().weight
    return torch.device("cpu") if weight.is_meta else weight.device


def connections(model: Any) -> list[nn.Module]:
    """The hyper-connection modules in order of depth, the head last."""
    streams = streams_module(model)
    return [*(getattr(layer, name) for layer in streams.layers for name in BRANCHES), streams.hc_head]


@contextmanager
def evaluating(*models: nn.Module) -> Iterator[None]:
    """Evaluation mode inside; every module's own mode again afterwards."""
    before = [(module, module.training) for model in models for module in model.modules()]
    for model in models:
        model.eval()
    try:
        yield
    finally:
        for module, mode in before:
            module.training = mode


def _refuse_code(folder: Path, config: Any, key: str = "") -> None:
    """A config may choose an implementation by the name of a repository, whose code transformers then runs."""
    if isinstance(config, dict):
        for name, value in config.items():
            _refuse_code(folder, value, key if "_implementation" in key else name)
    elif "_implementation" in key and isinstance(config, str) and "/" in config:
        raise InputError(f"{folder}: config has {key} {config!r}, expected one of transformers' own, none fetched")


def _refuse_empty(folder: Path, model: Any) -> None:
    """Configs that transformers takes, and no network with hyper-connections has."""
    config = streams_module(model).config
    for name in ("num_hidden_layers", "hc_sinkhorn_iters"):
        if getattr(config, name) < 1:
            raise InputError(f"{folder}: config has {name} {getattr(config, name)}, expected at least 1")


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _of_mixer(name: str) -> bool:
    return not set(_MIXERS).isdisjoint(name.split("."))


@contextmanager
def _quiet(logging: Any) -> Iterator[None]:
    """Loading reports, warnings and progress bars off; what was set before is set again."""
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
