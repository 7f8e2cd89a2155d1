"""``streamgauge convert``: what it writes and says; one exact line for every bad input, and nothing left behind."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import Cli
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file


def copy(source: Path, folder: Path) -> Path:
    return shutil.copytree(source, folder / "source")


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("form", ["identity", "binary", "graded"])
@pytest.mark.parametrize(
    "norm", [(), ("--norm",), ("--norm", "--eps", "0.01", "--cap", "1")], ids=["", "norm", "cap"]
)
def test_converts_with_a_certificate_that_passes(
    form: str, norm: tuple[str, ...], checkpoint: Path, tmp_path: Path, cli: Cli
) -> None:
    before = tree(checkpoint)
    ran = cli("convert", checkpoint, tmp_path / "out", "--form", form, *norm, "--json")
    assert ran.code == 0, ran.err
    said = ran.document
    assert (said["form"], said["sites"], said["streams"]) == (form, 6, 3)
    assert said["norm_gate"] == (
        None if not norm else {"eps": 0.01, "cap": 1.0} if len(norm) > 1 else {"eps": 0, "cap": None}
    )
    assert said["files"].keys() == {"certificate.json", "config.json", "model.safetensors"}
    assert tree(checkpoint) == before, "the source was touched"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    checked = cli("check", tmp_path / "out" / "certificate.json", "--file", tmp_path / "out", "--source", checkpoint)
    assert checked.code == 0, checked.out


def test_summary_is_readable(checkpoint: Path, tmp_path: Path, cli: Cli) -> None:
    ran = cli("convert", checkpoint, tmp_path / "out", "--norm", "--cap", 1)
    assert ran.code == 0, ran.err
    for words in ("graded + norm gate (eps 0, cap 1", "sites, streams", "largest cond(P_l)", "certificate.json ("):
        assert words in ran.out
    assert "\x1b[" not in ran.out, "colour codes in a pipe"


def test_restore_gives_the_mixers_back(checkpoint: Path, converted: Path, tmp_path: Path, cli: Cli) -> None:
    from streamgauge.simulate import checkpoint as files
    from streamgauge.simulate.stored import static_mixers

    ran = cli("convert", converted, tmp_path / "back", "--restore", "--json")
    assert ran.code == 0, ran.err
    first, second = (files.read(path) for path in (checkpoint, tmp_path / "back"))
    error = abs(static_mixers(first.config, first.tensors) - static_mixers(second.config, second.tensors)).max()
    assert error < 1e-12


def test_force_replaces(checkpoint: Path, tmp_path: Path, cli: Cli) -> None:
    out = tmp_path / "out"
    assert cli("convert", checkpoint, out).code == 0
    refused = cli("convert", checkpoint, out, "--norm")
    assert refused.err == f"streamgauge: error: {out}: exists already; expected a new path, or force to replace it\n"
    assert cli("convert", checkpoint, out, "--norm", "--force").code == 0
    assert json.loads((out / "config.json").read_text())["model"]["residual"] == "norm-gated"


def tensors(change: Callable[[dict[str, torch.Tensor]], None]) -> Callable[[Path], None]:
    def spoil(source: Path) -> None:
        held = load_file(source / "model.safetensors")
        change(held)
        save_file(held, source / "model.safetensors")

    return spoil


def model(**fields: Any) -> Callable[[Path], None]:
    def spoil(source: Path) -> None:
        document = json.loads((source / "config.json").read_text())
        document["model"] |= fields
        (source / "config.json").write_text(json.dumps(document))

    return spoil


LOGITS = "sites.0.mixer.logits"


def wrong_shape(held: dict[str, torch.Tensor]) -> None:
    held[LOGITS] = torch.zeros(2, 2)


def not_a_number(held: dict[str, torch.Tensor]) -> None:
    held[LOGITS][0, 1] = float("nan")


def wrong_dtype(held: dict[str, torch.Tensor]) -> None:
    held[LOGITS] = held[LOGITS].to(torch.int64)


def missing_tensor(held: dict[str, torch.Tensor]) -> None:
    del held[LOGITS]


def extra_tensor(held: dict[str, torch.Tensor]) -> None:
    held["surprise"] = torch.zeros(1)


def truncated(source: Path) -> None:
    data = (source / "model.safetensors").read_bytes()
    (source / "model.safetensors").write_bytes(data[: len(data) // 2])


def as_pickle(source: Path) -> None:
    torch.save({LOGITS: torch.zeros(3, 3)}, source / "model.safetensors")


def weights_are_a_folder(source: Path) -> None:
    (source / "model.safetensors").unlink()
    (source / "model.safetensors").mkdir()


def becomes_a_file(source: Path) -> None:
    shutil.rmtree(source)
    source.write_text("no checkpoint")


WEIGHTS = "{source}/model.safetensors"
# how the source is spoilt, and the exact message ("*" at the end: a library's own words follow)
SOURCES: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (
        shutil.rmtree,
        "{source}: not found, expected a checkpoint directory (model.safetensors and config.json)",
    ),
    "a file": (
        becomes_a_file,
        "{source}: is a file, expected a checkpoint directory (model.safetensors and config.json)",
    ),
    "weights are a directory": (weights_are_a_folder, f"{WEIGHTS}: is a directory, expected a file"),
    "truncated": (truncated, f"{WEIGHTS}: damaged or truncated, expected a complete safetensors file (*"),
    "pickle": (
        as_pickle,
        f"{WEIGHTS}: is a pickle (torch.save) file, expected safetensors; pickles are never loaded",
    ),
    "wrong shape": (tensors(wrong_shape), f"{WEIGHTS}: tensor {LOGITS} has shape (2, 2), expected (3, 3)"),
    "NaN": (tensors(not_a_number), f"{WEIGHTS}: tensor {LOGITS} has nan at (0, 1), expected finite numbers"),
    "wrong dtype": (tensors(wrong_dtype), f"{WEIGHTS}: tensor {LOGITS} has dtype int64, expected float32, float64"),
    "missing tensor": (tensors(missing_tensor), f"{WEIGHTS}: tensor {LOGITS} is missing, expected shape (3, 3)"),
    "unexpected tensor": (
        tensors(extra_tensor),
        f"{WEIGHTS}: tensor surprise is unexpected; the config implies no tensor of that name",
    ),
    "no config": (
        lambda source: (source / "config.json").unlink(),
        "{source}/config.json: not found, expected a file",
    ),
    "config is no JSON": (
        lambda source: (source / "config.json").write_text("{"),
        "{source}/config.json: not JSON (*",
    ),
    "foreign config": (
        lambda source: (source / "config.json").write_text('{"model_type": "llama"}'),
        "{source}/config.json: config format: found None, expected 'streamgauge'; another program's "
        "checkpoint: sg.sidecar, sg.inspect_format",
    ),
    "unknown recipe": (
        model(recipe="sinkhorn"),
        "{source}/config.json: config model.recipe: found 'sinkhorn', expected a Sinkhorn recipe: *",
    ),
    "looped": (
        model(loops=2),
        "{source}: the stack is applied 2 times with the same weights; expected 1 "
        "(around a loop the product of the mixers is a holonomy that no change of basis removes)",
    ),
}


def matches(err: str, message: str, **names: object) -> bool:
    wanted = "streamgauge: error: " + message.format(**names)
    if wanted.endswith("*"):
        return err.startswith(wanted[:-1]) and err.count("\n") == 1
    return err == wanted + "\n"


@pytest.mark.parametrize(("spoil", "message"), SOURCES.values(), ids=SOURCES)
def test_bad_source(
    spoil: Callable[[Path], object], message: str, checkpoint: Path, tmp_path: Path, cli: Cli
) -> None:
    source = copy(checkpoint, tmp_path)
    spoil(source)
    ran = cli("convert", source, tmp_path / "out", "--json")
    assert (ran.code, ran.out) == (2, "")
    assert matches(ran.err, message, source=source), ran.err
    assert {path.name for path in tmp_path.iterdir()} <= {"source"}, "something half-written was left"


def test_a_network_without_mixing_matrices_has_nothing_to_convert(tmp_path: Path, cli: Cli) -> None:
    from dataclasses import replace

    import small_networks

    from streamgauge.simulate.checkpoint import save_model

    source = save_model(tmp_path / "source", small_networks.network(replace(small_networks.BASE, residual="ihc")))
    ran = cli("convert", source, tmp_path / "out")
    assert matches(ran.err, "{source}: residual is 'ihc', expected *", source=source), ran.err


OPTIONS: dict[str, tuple[tuple[object, ...], str]] = {
    "unknown form": (("--form", "diagonal"), "form: found 'diagonal', expected one of identity, binary, graded"),
    "cap without norm": (("--cap", 1), "--cap: belongs to the norm gate, expected --norm with it"),
    "eps without norm": (("--eps", 1), "--eps: belongs to the norm gate, expected --norm with it"),
    "cap zero": (("--norm", "--cap", 0), "--cap: found 0.0, expected a finite number above 0"),
    "eps NaN": (("--norm", "--eps", "nan"), "--eps: found nan, expected a finite number of at least 0"),
    "restore with form": (
        ("--restore", "--form", "binary"),
        "--restore: takes the form from SRC, expected neither --form nor --norm with it",
    ),
    "restore what was not converted": (
        ("--restore",),
        "{source}: not a converted checkpoint (no gauge or no 'conversion' record)",
    ),
    "no number": (("--norm", "--cap", "big"), "Invalid value for '--cap': *"),
}


@pytest.mark.parametrize(("options", "message"), OPTIONS.values(), ids=OPTIONS)
def test_bad_options(options: tuple[object, ...], message: str, checkpoint: Path, tmp_path: Path, cli: Cli) -> None:
    ran = cli("convert", checkpoint, tmp_path / "out", *options)
    assert (ran.code, ran.out) == (2, "")
    assert matches(ran.err, message, source=checkpoint), ran.err
    assert list(tmp_path.iterdir()) == []


def test_bad_destinations(checkpoint: Path, converted: Path, tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "file").write_text("x")
    under = tmp_path / "file" / "out"
    cases = {
        tmp_path / "file": "{out}: exists already; expected a new path, or force to replace it",
        under: "{out}: cannot be created (*",
        checkpoint: "{out}: exists already; expected a new path, or force to replace it",
    }
    for out, message in cases.items():
        ran = cli("convert", checkpoint, out)
        assert (ran.code, ran.out) == (2, "")
        assert matches(ran.err, message, out=out), ran.err
    same = cli("convert", checkpoint, checkpoint, "--force")
    assert matches(same.err, "{out}: is the source itself, expected another path", out=checkpoint)
    plain_file = cli("convert", checkpoint, tmp_path / "file", "--force")
    assert matches(
        plain_file.err,
        "{out}: is not a directory; only a checkpoint directory can be replaced",
        out=tmp_path / "file",
    )
    inside = cli("convert", checkpoint, checkpoint / "out")
    assert matches(inside.err, "{out}: lies inside the source {source}, *", out=checkpoint / "out", source=checkpoint)
    inside = cli("convert", "--restore", converted, converted / "out")
    assert matches(inside.err, "{out}: lies inside the source {source}, *", out=converted / "out", source=converted)
    upwards = cli("convert", checkpoint, tmp_path / "new" / "..")
    assert matches(upwards.err, "{out}: ends in '..', *", out=tmp_path / "new" / "..")
    again = cli("convert", converted, tmp_path / "out")
    assert matches(again.err, "{source}: already converted; *", source=converted)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("number", "code", "word"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_interrupt_leaves_nothing(
    number: int, code: int, word: str, checkpoint: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal while the certificate is being made, the last step before the folder is renamed into place."""
    from streamgauge.proofs import model

    def interrupted(*_: object) -> None:
        os.kill(os.getpid(), number)
        time.sleep(5)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(model, "model_certificate", interrupted)
    ran = cli("convert", checkpoint, tmp_path / "out")
    assert (ran.code, ran.out, ran.err) == (code, "", f"streamgauge: {word}\n")
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
    "fault",
    [SafetensorError("I/O error: No space left on device (os error 28)"), OSError(28, "No space left on device")],
)
def test_full_disk_is_said_and_leaves_nothing(
    fault: Exception, checkpoint: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    from streamgauge.simulate import checkpoint as module

    def full(*_: object, **__: object) -> None:
        raise fault

    monkeypatch.setattr(module, "save_file", full)
    ran = cli("convert", checkpoint, tmp_path / "out")
    assert (ran.code, ran.out) == (2, "")
    assert matches(ran.err, "{out}: cannot be written (*", out=tmp_path / "out"), ran.err
    assert "No space left on device" in ran.err
    assert list(tmp_path.iterdir()) == []


def test_help_shows_an_example(cli: Cli) -> None:
    for command in ("demo", "convert", "inspect", "barcode", "check"):
        ran = cli(command, "--help")
        assert ran.code == 0
        assert re.search(rf"Example:\s+streamgauge\s+{command}", ran.out), command
    assert "Example: streamgauge bench theory" in cli("bench", "theory", "--help").out
