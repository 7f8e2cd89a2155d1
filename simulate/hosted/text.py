"""Text as windows of tokens, and where they come from.

A model folder's own tokenizer makes the tokens; without one, and with at least 256 entries in the vocabulary, the
file's bytes are the tokens.  Windows do not overlap and hold ``context`` tokens; what is left at the end is not used.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from streamgauge.theory.errors import InputError

BYTES = "bytes"
"""Name of the tokenizer that is none: every byte is a token."""
CONTEXT = 512
"""Default length of a window, where the model has as many positions."""
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json")
_MARGIN = 64


@dataclass(frozen=True)
class Text:
    """``tokens``: int64 (B, T), B windows of T tokens in the order of the text.

    ``name``: of the file; ``sha256``: of the whole file's bytes; ``tokenizer``: :data:`BYTES`, or the class of the
    folder's own; ``start``: number of the first window, counted in the whole text.
    """

    tokens: Tensor
    name: str
    sha256: str
    tokenizer: str
    start: int = 0

    @property
    def context(self) -> int:
        """T, the tokens of a window."""
        return int(self.tokens.shape[1])

    def document(self) -> dict[str, Any]:
        """What identifies this text, for a record."""
        return {
            "name": self.name,
            "sha256": self.sha256,
            "tokenizer": self.tokenizer,
            "context": self.context,
            "windows": [self.start, self.start + len(self.tokens)],
            "tokens": self.tokens.numel(),
        }


def read_text(path: str | Path, model: Any, *, context: int | None = None, limit: int | None = None) -> Text:
    """The file at ``path`` in windows of ``context`` tokens, from its beginning.

    - ``model``: a Hugging Face model's folder, or a loaded model (its folder is then where it was loaded from).
    - ``context``: 2 to the model's ``max_position_embeddings``; by default :data:`CONTEXT`, or those if fewer.
    - ``limit``: use at most that many tokens.

    No special tokens are added.  **Raises** :class:`InputError`, one line.
    """
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{path}: is a folder, expected a text file")
    if path.is_char_device() or path.is_block_device():  # which may never end
        raise InputError(f"{path}: is a device, expected a text file")
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: not found, expected a text file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}), expected a text file") from None
    return text_of(data, str(path), model, context=context, limit=limit)


def text_of(data: bytes, place: str, model: Any, *, context: int | None = None, limit: int | None = None) -> Text:
    """As :func:`read_text`, of bytes in memory; ``place`` is what messages and records call them."""
    for what, number in (("context", context), ("tokens", limit)):
        if number is not None and (not isinstance(number, int) or isinstance(number, bool)):
            raise InputError(f"{what}: found {number!r}, expected a whole number")
    folder, vocabulary, positions = _facts(model)
    context = min(CONTEXT, positions) if context is None else context
    if not 2 <= context <= positions:
        raise InputError(f"context: found {context}, expected 2 to {positions}, the positions the model has")
    if limit is not None and limit < context:
        raise InputError(f"tokens: found {limit}, expected at least the context of {context}")
    if not data:
        raise InputError(f"{place}: is empty, expected text")
    name, encode = _tokenizer(folder, vocabulary)
    tokens = encode(data, place, limit)[:limit]
    if len(tokens) < context:
        raise InputError(f"{place}: holds {len(tokens)} tokens, expected at least the context of {context}")
    largest = int(tokens.max())
    if largest >= vocabulary:
        raise InputError(f"{place}: has token {largest}, expected below {vocabulary}, the model's vocabulary")
    rows = len(tokens) // context
    windows = tokens[: rows * context].view(rows, context)
    return Text(windows, Path(place).name, hashlib.sha256(data).hexdigest(), name)


def split(text: Text, held_out: float = 0.25) -> tuple[Text, Text]:
    """The first windows for calibration, the last ones (that fraction, at least one) held out; none is in both.

    **Raises** :class:`InputError` for fewer than 2 windows or a fraction outside (0, 1).
    """
    if not 0 < held_out < 1:
        raise InputError(f"held-out fraction: found {held_out}, expected between 0 and 1")
    rows = len(text.tokens)
    if rows < 2:
        raise InputError(
            f"{text.name}: holds {rows} window of {text.context} tokens, expected at least 2 to split it"
        )
    first = rows - min(rows - 1, max(1, round(held_out * rows)))
    last = replace(text, tokens=text.tokens[first:], start=text.start + first)
    return replace(text, tokens=text.tokens[:first]), last


def read_config(folder: Path) -> Mapping[str, Any]:
    """``config.json`` of a Hugging Face model's folder. **Raises** :class:`InputError` where there is none."""
    place = folder / "config.json"
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "not found"
        raise InputError(f"{folder}: {what}, expected the folder of a Hugging Face model")
    try:
        config = json.loads(place.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{folder}: has no config.json, expected the folder of a Hugging Face model") from None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{place}: is no readable JSON ({str(error).splitlines()[0]})") from None
    if not isinstance(config, dict):
        raise InputError(f"{place}: found {type(config).__name__}, expected an object")
    if config.get("format") == "streamgauge":
        raise InputError(f"{folder}: is a streamgauge checkpoint, expected a Hugging Face model (see sg.crosscheck)")
    return config


def _facts(model: Any) -> tuple[Path | None, int, int]:
    """Folder, size of the vocabulary and number of positions of a model or its folder."""
    if isinstance(model, str | Path):
        folder: Path | None = Path(model)
        config, place = read_config(Path(model)), str(model)
        text = config.get("text_config")
        held: Mapping[str, Any] = text if isinstance(text, dict) else config
    else:
        own, place = getattr(model, "config", None), type(model).__name__
        found = getattr(own, "get_text_config", lambda: own)()
        names = ("vocab_size", "max_position_embeddings")
        held = {name: getattr(found, name, None) for name in names}
        origin = Path(getattr(model, "name_or_path", "") or "")
        folder = origin if str(origin) != "." and origin.is_dir() else None
    sizes = []
    for name in ("vocab_size", "max_position_embeddings"):
        value = held.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 2:
            raise InputError(f"{place}: config has {name} {value!r}, expected a number of at least 2")
        sizes.append(value)
    return folder, sizes[0], sizes[1]


Encode = Callable[[bytes, str, "int | None"], Tensor]


def _tokenizer(folder: Path | None, vocabulary: int) -> tuple[str, Encode]:
    if folder is not None and any((folder / name).exists() for name in _TOKENIZERS):
        return _own_tokenizer(folder)
    if vocabulary < 256:
        where = "the model" if folder is None else str(folder)
        raise InputError(
            f"{where}: has no tokenizer and a vocabulary of {vocabulary}, expected a tokenizer, or at least 256 "
            "entries to read bytes as tokens"
        )
    return BYTES, lambda data, place, limit: torch.frombuffer(bytearray(data[:limit]), dtype=torch.uint8).long()


def _own_tokenizer(folder: Path) -> tuple[str, Encode]:
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise InputError("a tokenizer needs transformers: pip install 'streamgauge[hf]'") from None
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # whatever the files hold: tokenizers raises plain Exception
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{folder}: its tokenizer cannot be loaded ({type(error).__name__}: {reason})") from None

    def encode(data: bytes, place: str, limit: int | None) -> Tensor:
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{place}: is not UTF-8 at byte {error.start}, expected UTF-8 for a tokenizer") from None
        size = len(text) if limit is None else 8 * limit + 4096
        while True:  # only as much of a long text as the limit needs
            ids = tokenizer(text[:size], add_special_tokens=False, verbose=False)["input_ids"]
            if size >= len(text) or (limit is not None and len(ids) >= limit + _MARGIN):
                return torch.tensor(ids, dtype=torch.int64)
            size *= 4

    return type(tokenizer).__name__, encode
