"""A checkpoint is a directory: ``model.safetensors`` and ``config.json``.

Loading needs exactly the tensors that the config implies, finite, of the right shapes and dtypes.  Writing goes to a
directory beside the destination that is renamed when complete.  Pickle is never read or written here.
Everything wrong with a file is an :class:`InputError` of one line naming the file and the tensor or field.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from streamgauge.simulate.config import ModelConfig, from_document, to_document
from streamgauge.simulate.model import ByteLM
from streamgauge.simulate.network import is_coefficient
from streamgauge.theory.errors import InputError

WEIGHTS, CONFIG, CERTIFICATE = "model.safetensors", "config.json", "certificate.json"
SIDECAR = "sidecar.safetensors"
"""What stands beside a checkpoint of another program: its converted tensors."""
OWN_FILES = (WEIGHTS, CONFIG, CERTIFICATE, SIDECAR, "training_state.safetensors", "loss.json", "loss.png")
"""What a checkpoint directory may hold; one with anything else in it is never replaced."""
_MAX_CONFIG_BYTES = 64 * 2**20
_WIDE = (torch.float32, torch.float64)
_ANY = (*_WIDE, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint directory holds.

    ``tensors`` as stored (dtype included), in order of name; ``metadata``: the keys of config.json beside the model
    ("training", "conversion", ...); ``sha256`` of each file by its name.
    """

    path: Path
    config: ModelConfig
    tensors: Mapping[str, Tensor]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    sha256: Mapping[str, str] = field(default_factory=dict)

    def model(self, precision: str = "float32") -> ByteLM:
        """A network that runs, in evaluation mode: filled in float64, then rounded once to ``precision``."""
        with torch.random.fork_rng(devices=[]):
            out = ByteLM(self.config).to_precision("float64")
        out.load_state_dict({name: tensor.double() for name, tensor in self.tensors.items()})
        return out.to_precision(precision).eval()


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of a checkpoint with that config. Allocates nothing."""
    with torch.device("meta"):
        model = ByteLM(config)
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


def save(
    path: str | Path,
    config: ModelConfig,
    tensors: Mapping[str, Tensor],
    metadata: Mapping[str, Any] | None = None,
    *,
    force: bool = False,
    finish: Callable[[Path], None] | None = None,
) -> Path:
    """Write a checkpoint directory; returns its path.

    The destination appears complete or not at all.  ``finish`` is called with the staged directory before it is
    renamed into place and may add files to it.  **Raises** :class:`InputError` as :func:`refuse_existing` does, if
    the parent is not a directory, or if the tensors are not those of the config.
    """
    target = Path(path)
    refuse_existing(target, force)
    check_tensors(config, tensors, str(target))
    document = to_document(config, metadata)
    try:
        text = json.dumps(document, indent=1, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise InputError(f"{target}: metadata cannot be written as JSON: {error}") from None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise InputError(f"{target}: cannot be created ({error.strerror}); expected a writable parent") from None
    try:
        stored = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
        save_file(stored, beside / WEIGHTS, metadata={"format": "pt"})
        (beside / CONFIG).write_text(text, encoding="utf-8")
        if finish is not None:
            finish(beside)
        for written in beside.iterdir():
            written.chmod(0o644)
        beside.chmod(0o755)
        put_in_place(beside, target)
    except (OSError, SafetensorError) as error:  # no space left, and the like
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise InputError(f"{target}: cannot be written ({reason})") from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return target


def refuse_existing(target: Path, force: bool) -> None:
    """Refuse a destination that exists: always, unless ``force`` is given and it is a checkpoint directory.

    Replacing removes the whole directory, so one that holds anything else is never replaced.
    """
    if target.name == "..":
        raise InputError(f"{target}: ends in '..', expected the name of the directory to make")
    if not os.path.lexists(target):
        return
    if not force:
        raise InputError(f"{target}: exists already; expected a new path, or force to replace it")
    if target.is_symlink() or not target.is_dir():
        raise InputError(f"{target}: is not a directory; only a checkpoint directory can be replaced")
    foreign = sorted(x.name for x in target.iterdir() if x.name not in OWN_FILES or x.is_dir())
    if foreign:
        raise InputError(
            f"{target}: holds {foreign[0]!r}; only a directory with nothing but a checkpoint is replaced"
        )


def refuse_within(destination: Path, source: Path) -> None:
    """Refuse a destination that is the source or lies inside it: a source is never touched."""
    place, whole = destination.resolve(), source.resolve()
    if place == whole:
        raise InputError(f"{destination}: is the source itself, expected another path")
    if whole in place.parents:
        raise InputError(f"{destination}: lies inside the source {source}, expected another path")


def save_model(
    path: str | Path, model: ByteLM, metadata: Mapping[str, Any] | None = None, *, force: bool = False
) -> Path:
    """:func:`save` of a network's own config and tensors, in the dtypes they have."""
    return save(path, model.config, model.state_dict(), metadata, force=force)


def read(path: str | Path) -> Checkpoint:
    """Read and check a checkpoint directory; tensors keep the dtype they are stored in."""
    folder = Path(path)
    if not folder.exists():
        raise InputError(f"{folder}: not found, expected a checkpoint directory ({WEIGHTS} and {CONFIG})")
    if not folder.is_dir():
        raise InputError(f"{folder}: is a file, expected a checkpoint directory ({WEIGHTS} and {CONFIG})")
    config_text = _file_bytes(folder / CONFIG, _MAX_CONFIG_BYTES)
    try:
        document = json.loads(config_text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{folder / CONFIG}: not JSON ({str(error).splitlines()[0]})") from None
    try:
        config, metadata = from_document(document)
    except InputError as error:
        raise InputError(f"{folder / CONFIG}: {error}") from None
    tensors = read_tensors(folder / WEIGHTS)
    check_tensors(config, tensors, str(folder / WEIGHTS))
    hashes = {CONFIG: hashlib.sha256(config_text).hexdigest(), WEIGHTS: file_sha256(folder / WEIGHTS)}
    return Checkpoint(folder, config, tensors, metadata, hashes)


def load(path: str | Path, precision: str = "float32") -> ByteLM:
    """The network of a checkpoint directory, ready to run in ``precision``."""
    return read(path).model(precision)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Every tensor of one safetensors file, in order of name."""
    _regular(path)
    with path.open("rb") as stream:
        head = stream.read(8)
    if (
        head[:2] == b"\x80\x02"
        or (head[:1] == b"\x80" and len(head) > 1 and head[1] < 6)
        or head[:4] == b"PK\x03\x04"
    ):
        raise InputError(f"{path}: is a pickle (torch.save) file, expected safetensors; pickles are never loaded")
    try:
        with safe_open(path, framework="pt") as stored:
            return {name: stored.get_tensor(name) for name in sorted(stored.keys())}
    except (SafetensorError, OSError, ValueError, AttributeError, KeyError, RuntimeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path}: damaged or truncated, expected a complete safetensors file ({reason})") from None


def check_tensors(config: ModelConfig, tensors: Mapping[str, Tensor], where: str) -> None:
    """Refuse, by name, missing and unexpected tensors, wrong shapes and dtypes, NaN and infinities."""
    shapes = expected_shapes(config)
    for name in shapes:
        if name not in tensors:
            raise InputError(f"{where}: tensor {name} is missing, expected shape {shapes[name]}")
    for name, tensor in tensors.items():
        if name not in shapes:
            raise InputError(f"{where}: tensor {name} is unexpected; the config implies no tensor of that name")
        if tuple(tensor.shape) != shapes[name]:
            raise InputError(f"{where}: tensor {name} has shape {tuple(tensor.shape)}, expected {shapes[name]}")
        allowed = _allowed_dtypes(name)
        if tensor.dtype not in allowed:
            wanted = ", ".join(str(d).removeprefix("torch.") for d in allowed)
            found = str(tensor.dtype).removeprefix("torch.")
            raise InputError(f"{where}: tensor {name} has dtype {found}, expected {wanted}")
        bad = ~torch.isfinite(tensor)
        if bad.any():
            at = tuple(int(i) for i in bad.nonzero()[0])
            raise InputError(f"{where}: tensor {name} has {float(tensor[at])} at {at}, expected finite numbers")


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _allowed_dtypes(name: str) -> tuple[torch.dtype, ...]:
    if ".gauge." in name:
        return (torch.float64,)  # a certificate speaks of these bits
    return _WIDE if is_coefficient(name) else _ANY


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} stands twice")
    return out


def _regular(path: Path) -> None:
    if path.is_dir():
        raise InputError(f"{path}: is a directory, expected a file")
    if not path.is_file():
        raise InputError(f"{path}: not found, expected a file")


def _file_bytes(path: Path, limit: int) -> bytes:
    _regular(path)
    size = path.stat().st_size
    if size > limit:
        raise InputError(f"{path}: {size} bytes, expected at most {limit}")
    return path.read_bytes()


def put_in_place(beside: Path, target: Path, mark: str = "old") -> None:
    """Rename the finished directory into place; a replaced one goes only after the new one stands.

    ``mark``: part of the name that the replaced one has meanwhile, beside ``target``.
    """
    if not target.exists():
        beside.rename(target)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{target.name}.{mark}.", dir=target.parent))
    target.rename(old / target.name)
    try:
        beside.rename(target)
    except OSError:
        (old / target.name).rename(target)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)
