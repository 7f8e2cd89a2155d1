"""The front door's own functions: those that join rooms.  Paths may be strings; torch is imported when needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamgauge.theory.errors import InputError
from streamgauge.theory.form import NormGate
from streamgauge.theory.verdict import Verdict

if TYPE_CHECKING:
    from torch import Tensor

    from streamgauge.simulate.convert import Conversion
    from streamgauge.simulate.crosscheck import CrossCheck
    from streamgauge.simulate.formats.detect import Recognised
    from streamgauge.simulate.formats.report import FormatInspection
    from streamgauge.simulate.formats.sidecar import Options, Sidecar
    from streamgauge.simulate.hosted.compare import Comparison, Perplexity, Progress
    from streamgauge.simulate.hosted.pointwise import Pointwise
    from streamgauge.simulate.inspection import Inspection

CERTIFICATE = "certificate.json"
AnyPath = str | Path


def convert(
    source: AnyPath,
    destination: AnyPath,
    *,
    form: str = "graded",
    norm: NormGate | bool | None = None,
    force: bool = False,
) -> Conversion:
    """Convert a trained checkpoint with static mixers to (norm-)gated iHC, and add ``certificate.json`` to it.

    ``form``: "identity" | "binary" | "graded".  ``norm``: a :class:`NormGate`, or True for the plain one.  The folder
    appears complete, certificate included, or not at all; the source is never touched.

    **Raises** :class:`InputError`, one line, for what cannot be converted, and for an existing destination without
    ``force``.
    """
    from streamgauge.proofs.model import model_certificate
    from streamgauge.simulate.convert import convert as convert_checkpoint

    gate = _gate(norm)

    def finish(staged: Path) -> None:
        model_certificate(staged, source).save(staged / CERTIFICATE)

    return convert_checkpoint(Path(source), Path(destination), form=form, norm=gate, force=force, finish=finish)


def restore(converted: AnyPath, destination: AnyPath, *, force: bool = False) -> None:
    """Turn a converted checkpoint back into one with mixing matrices (stored as float64 matrices)."""
    from streamgauge.simulate.restore import restore as restore_checkpoint

    restore_checkpoint(Path(converted), Path(destination), force=force)


def check(path: AnyPath, *, file: AnyPath | None = None, source: AnyPath | None = None) -> Verdict:
    """Check a certificate in exact arithmetic, by the standard-library checker alone.

    With ``file`` (a converted checkpoint) and ``source`` (the checkpoint it came from) also whether their tensors are
    those the certificate speaks of, bit for bit.  The witness holds the distances found.

    **Raises** :class:`InputError` where there is no such file; a bad certificate is a verdict, not an error.
    """
    from streamgauge.proofs.checking import check as check_certificate

    if file is None and source is not None:
        raise InputError("check: found a source without a converted file, expected both or the file alone")
    target = Path(path)
    if target.is_dir():
        raise InputError(f"{target}: is a directory, expected a certificate file (DIR/{CERTIFICATE})")
    if not target.is_file():
        raise InputError(f"{target}: not found, expected a certificate file")
    for folder, name in ((file, "converted"), (source, "source")):
        if folder is not None and not Path(folder).is_dir():
            what = "is a file" if Path(folder).exists() else "not found"
            raise InputError(f"{folder}: {what}, expected the {name} checkpoint directory")
    return check_certificate(target, file=file, source=source)


def crosscheck(source: AnyPath, converted: AnyPath, *, tokens: int = 4096) -> CrossCheck:
    """Run two checkpoints on the shipped held-out text in float64, float32 and bfloat16 and compare their logits."""
    from streamgauge.simulate import checkpoint
    from streamgauge.simulate.crosscheck import crosscheck as compare

    first, second = (checkpoint.load(path, "float64") for path in (source, converted))
    return compare(first, second, heldout_tokens(first.config.context, tokens))


def heldout_tokens(context: int, at_least: int) -> Tensor:
    """The start of the shipped held-out text as tokens (B, context) with B * context >= ``at_least``."""
    from streamgauge.simulate.data import as_tokens, heldout_text

    tokens = as_tokens(heldout_text())
    rows = -(-at_least // context)
    if at_least < 1 or rows * context > len(tokens):
        raise InputError(f"tokens: found {at_least}, expected 1 to {len(tokens) // context * context}")
    return tokens[: rows * context].view(rows, context)


@contextmanager
def example_checkpoint(name: str) -> Iterator[Path]:
    """The folder of a trained checkpoint that comes with the package, also from a zipped install.

    "static": mHC with static mixers, dynamic reads and writes.  "deficient": the same with mixers stored as matrices,
    some of them singular.  "deepseek": a DeepSeek-V4 of transformers, all its coefficients dynamic.
    """
    with resources.as_file(resources.files("streamgauge.examples") / "data" / name) as folder:
        if not folder.is_dir():
            raise InputError(f"example checkpoint: found {name!r}, expected 'static', 'deficient' or 'deepseek'")
        yield folder


def sidecar(
    source: AnyPath,
    destination: AnyPath,
    *,
    mixers: str = "exact",
    form: str = "graded",
    norm: NormGate | bool | None = None,
    format: str | None = None,
    settings: Mapping[str, str] | None = None,
    map: AnyPath | None = None,
    full: bool = False,
    force: bool = False,
    text: AnyPath | None = None,
    held_out: AnyPath | None = None,
    tokens: int | None = None,
    context: int | None = None,
    refine: int = 0,
    dtype: str = "float32",
    device_map: Any = None,
    progress: Progress | None = None,
) -> Sidecar:
    """Convert another program's checkpoint (DeepSeek-V4, GLM, Liger, ...) to one file of tensors beside it.

    ``full``: to a complete checkpoint instead, everything else linked or copied byte for byte.

    ``mixers``: "exact" (refused where A depends on the state), "bias", "mean", "token-gates" or "identity" (part of A
    is dropped: :mod:`streamgauge.simulate.formats.chosen`).  ``format``, ``settings`` (config fields by hand) and
    ``map`` (a TOML description) say what the folder leaves open.

    With ``text``, a file, the model runs (DeepSeek-V4 and GLM-5.3, needs ``streamgauge[hf]``): mixers are measured on
    it, ``refine`` steps fit the converted tensors to the source's predictions, and ``.loss`` of the result says what
    is lost on ``held_out``, another file, or else on the last quarter of ``text``.  ``tokens``, ``context``,
    ``dtype``, ``device_map`` as in :func:`evaluate`.  "mean", "token-gates", "identity" and ``refine`` need a text.

    A gated network with constant gates gets ``certificate.json`` beside its file.

    **Raises** :class:`InputError`, one line; nothing is written then, and the source is only ever read.
    """
    from streamgauge.proofs.sidecar import certify, why_uncertified
    from streamgauge.simulate.formats.sidecar import convert_folder

    gate = _gate(norm)
    options = _options(mixers, format, settings, map)
    if not isinstance(refine, int):
        raise InputError(f"--refine: found {refine!r}, expected a number of steps")
    finish = None if why_uncertified(mixers) else certify
    places = Path(source), Path(destination)
    if text is None:
        found = {"refine": refine or None, "held-out": held_out, "tokens": tokens, "context": context}
        found |= {"dtype": None if dtype == "float32" else dtype, "device-map": device_map}
        name = next((name for name, value in found.items() if value is not None), None)
        if name is not None:
            raise InputError(f"--{name}: belongs to a text, expected --text FILE with it")
        if mixers == "identity":
            raise InputError("--mixers identity: is only ever compared with its source, expected --text FILE with it")
        return convert_folder(*places, options, form=form, norm=gate, full=full, force=force, finish=finish)
    from streamgauge.simulate.hosted.convert import Reading, convert_hosted

    other = None if held_out is None else Path(held_out)
    reading = Reading(Path(text), other, tokens, context, refine, dtype, device_map)
    return convert_hosted(
        *places, options, reading, form=form, norm=gate, full=full, force=force, finish=finish, progress=progress
    )


def attach(model: Any, sidecar: AnyPath, *, precision: str = "float32") -> Any:
    """Replace the hyper-connections of a loaded Hugging Face model by the gated ones of its sidecar, in place.

    Returns the model; see :func:`streamgauge.simulate.attach.attach`.  Needs ``streamgauge[hf]``.
    """
    from streamgauge.simulate.attach import attach as attach_sidecar

    return attach_sidecar(model, Path(sidecar), precision=precision)


def evaluate(
    source: AnyPath,
    other: AnyPath | None = None,
    *,
    text: AnyPath,
    tokens: int | None = None,
    context: int | None = None,
    dtype: str = "float32",
    device_map: Any = None,
    progress: Progress | None = None,
) -> Comparison | Perplexity:
    """Perplexity of a Hugging Face model's folder on a text file, and how far its converted form is from it.

    ``other``: a sidecar (file or folder; the two models share memory then), a ``--full`` checkpoint, or what an
    attached model saved; without it only the source's :class:`Perplexity` comes back.  ``tokens``, ``context``: how
    much of the text, in windows of how many tokens.  ``dtype``: "float32" | "bfloat16" | "float64"; ``device_map``
    as in ``from_pretrained``.  Needs ``streamgauge[hf]``.

    **Raises** :class:`InputError`, one line.
    """
    from streamgauge.simulate.hosted import compare, models
    from streamgauge.simulate.hosted.text import read_text

    source = Path(source)
    read = read_text(Path(text), source, context=context, limit=tokens)
    if other is None:
        model = models.load_model(source, dtype=dtype, device_map=device_map)
        return compare.perplexity(model, read, progress=progress)
    first, second = models.load_pair(source, other, dtype=dtype, device_map=device_map)
    return compare.compare(first, second, read, progress=progress)


def verify_pointwise(
    source: AnyPath,
    *,
    text: AnyPath,
    tokens: int | None = 4096,
    context: int | None = None,
    dtype: str = "float32",
    progress: Progress | None = None,
) -> Pointwise:
    """Run a Hugging Face model's folder in its per-token triangular form along a text file, and compare the logits.

    The statement about mixers that depend on the state which is exact, see
    :mod:`streamgauge.simulate.hosted.triangular`; the result's ``verdict()`` says whether it held.  ``tokens``,
    ``context``: how much of the text (None: all), in windows of how many tokens.  ``dtype``: "float32" | "bfloat16".
    Needs ``streamgauge[hf]``, and memory for the model in float64 beside it.

    **Raises** :class:`InputError`, one line.
    """
    from streamgauge.simulate.hosted import pointwise
    from streamgauge.simulate.hosted.models import load_model
    from streamgauge.simulate.hosted.text import read_text

    if dtype not in ("float32", "bfloat16"):
        raise InputError(f"verify-pointwise dtype: found {dtype!r}, expected 'float32' or 'bfloat16'")
    source = Path(source)
    read = read_text(Path(text), source, context=context, limit=tokens)
    return pointwise.verify_pointwise(load_model(source, dtype=dtype), read, progress=progress)


def inspect_format(
    path: AnyPath,
    *,
    format: str | None = None,
    settings: Mapping[str, str] | None = None,
    map: AnyPath | None = None,
) -> FormatInspection | Recognised:
    """What the streams of another program's checkpoint do; arguments as in :func:`sidecar`."""
    from streamgauge.simulate.formats.report import inspect_folder

    return inspect_folder(Path(path), _options("bias", format, settings, map))


def _gate(norm: NormGate | bool | None) -> NormGate | None:
    if norm is not None and not isinstance(norm, NormGate | bool):
        raise InputError(f"norm: found {norm!r}, expected a NormGate, True or None")
    return NormGate() if norm is True else norm or None


def _options(mixers: str, name: str | None, settings: Mapping[str, str] | None, described: AnyPath | None) -> Options:
    from streamgauge.simulate.formats.sidecar import Options

    return Options(mixers, name, settings, None if described is None else Path(described))


def inspect(path: AnyPath) -> Inspection:
    """What the streams of a checkpoint do, site by site: see :mod:`streamgauge.simulate.inspection`."""
    from streamgauge.simulate.inspection import inspect_checkpoint

    return inspect_checkpoint(Path(path))
