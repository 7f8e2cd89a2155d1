"""``streamgauge inspect``: numbers against independent routes, JSON without NaN, pictures, bad input."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import Cli

from streamgauge.simulate import checkpoint as files
from streamgauge.simulate.inspection import effective_rank, inspect_checkpoint, saturation
from streamgauge.simulate.stored import static_mixers


def test_json_agrees_with_a_second_route(checkpoint: Path, cli: Cli) -> None:
    ran = cli("inspect", checkpoint, "--json")
    assert ran.code == 0, ran.err
    stored = files.read(checkpoint)
    product = np.eye(3)
    for site, mixer in zip(ran.document["sites"], static_mixers(stored.config, stored.tensors)):
        product = mixer @ product
        sigma = np.linalg.svd(product, compute_uv=False)
        assert site["row_error"] == pytest.approx(abs(mixer.sum(1) - 1).max(), abs=1e-15)
        assert site["column_error"] == pytest.approx(abs(mixer.sum(0) - 1).max(), abs=1e-15)
        assert site["forward_gain"] == pytest.approx(np.linalg.norm(mixer, np.inf))
        assert site["backward_gain"] == pytest.approx(np.linalg.norm(mixer, 1))
        assert site["singular_values"] == pytest.approx(np.sqrt(np.linalg.eigvalsh(mixer @ mixer.T))[::-1])
        assert 10 ** site["log10_running_sigma2"] == pytest.approx(sigma[1], rel=1e-9)
        assert 10 ** site["log10_identity_cond"] == pytest.approx(sigma[0] / sigma[-1], rel=1e-6)
        assert site["running_effective_rank"] == pytest.approx(effective_rank(np.log10(sigma)), rel=1e-9)
        assert max(site["gates"]) <= 1 + 1e-9
    assert {len(ran.document["cond"]), len(ran.document["log10_sigma"])} == {7}


def test_both_marginal_errors_are_reported_and_differ() -> None:
    """The recipe divides one marginal last; a report of that one alone would always look perfect."""
    from streamgauge.theory.sinkhorn import marginal_errors, sinkhorn

    logits = np.array([[4.0, 0, 0, 0], [3.0, 4, 0, 0], [0, 3.0, 4, 0], [0, 0, 3.0, 4]])
    rows, columns = marginal_errors(sinkhorn(logits, "deepseek-v4").mixer)
    assert rows < 2e-6
    assert columns > 1e-4


def test_saturation_counts_logits_without_gradient() -> None:
    """Diagonal 0, off it -8, temperature 0.05, a public start, gets no gradient anywhere; a flat one does."""
    flat = torch.zeros(3, 3, dtype=torch.float64)
    dead = -8 * (1 - torch.eye(4, dtype=torch.float64))
    assert saturation(flat, "deepseek-v4") == 0
    assert saturation(dead, "tokenbender") == 1


def test_effective_rank_of_known_spectra() -> None:
    assert effective_rank(np.zeros(4)) == pytest.approx(4)
    assert effective_rank(np.array([0.0, -np.inf, -np.inf])) == pytest.approx(1)
    assert effective_rank(np.full(3, -200.0)) == pytest.approx(3), "logarithms far below float64's range"
    assert effective_rank(np.full(2, -np.inf)) == 0


def deficient(folder: Path) -> Path:
    import small_networks

    config = replace(small_networks.BASE, mixer="matrix", recipe=None)
    mixers = [small_networks.MIX, small_networks.J2, small_networks.CYCLE]
    return files.save_model(folder / "deficient", small_networks.with_mixers(config, mixers))


def test_rank_deficient_sites_show_as_deaths_not_as_round_off(tmp_path: Path, cli: Cli) -> None:
    ran = cli("inspect", deficient(tmp_path), "--json", "--out", tmp_path / "pictures")
    assert ran.code == 0, ran.err
    ends = [level[-1] for level in ran.document["log10_sigma"]]
    assert ends[1] is not None
    assert ends[2:] == [None] * 5, "exactly zero, and null in strict JSON"
    assert sum(death < 6 for _, death, _ in ran.document["bars"]) == 2
    assert sorted(path.name for path in (tmp_path / "pictures").iterdir()) == [
        "barcode.png",
        "cond.png",
        "singular_values.png",
    ]


def test_a_converted_checkpoint_shows_the_mixers_it_stands_for(checkpoint: Path, converted: Path) -> None:
    before, after = inspect_checkpoint(checkpoint), inspect_checkpoint(converted)
    assert after.form == "stored graded form with norm gate"
    assert after.bars == before.bars
    for first, second in zip(before.sites, after.sites):
        assert second.singular_values == pytest.approx(first.singular_values, rel=1e-12)
        assert second.saturation is None
    assert after.cond == pytest.approx(before.cond, rel=1e-6)


def test_table_has_every_site(checkpoint: Path, cli: Cli) -> None:
    ran = cli("inspect", checkpoint)
    assert ran.code == 0
    for words in ("6 sites, 3 streams", "singular values", "running sigma_2", "gates, graded form", "saturated"):
        assert words in ran.out


def test_saturated_logits_warn(checkpoint: Path, tmp_path: Path, cli: Cli) -> None:
    from safetensors.torch import load_file, save_file

    source = shutil.copytree(checkpoint, tmp_path / "source")
    held = load_file(source / "model.safetensors")
    held["sites.2.mixer.logits"] = 60 * torch.eye(3)
    save_file(held, source / "model.safetensors")
    ran = cli("inspect", source, "--json")
    assert ran.code == 0
    assert "warning: 1 of 6 sites have more than half of their mixing logits saturated" in ran.err
    assert ran.document["warnings"]


def spoil_config(source: Path, **fields: Any) -> None:
    document = json.loads((source / "config.json").read_text())
    document["model"] |= fields
    (source / "config.json").write_text(json.dumps(document))


BAD = {
    "missing": (
        ("nowhere",),
        "nowhere: not found, expected a checkpoint directory (model.safetensors and config.json)",
    ),
    "a file": (("file",), "file: is a file, expected a checkpoint directory (model.safetensors and config.json)"),
    "empty folder": (("folder",), "folder/config.json: not found, expected a file"),
    "truncated": (("truncated",), "truncated/model.safetensors: damaged or truncated, expected a complete "),
    "pickle": (("pickle",), "pickle/model.safetensors: is a pickle (torch.save) file, expected safetensors; pickles"),
    "out is a file": (("good", "--out", "file"), "file: is a file, expected a directory for the pictures"),
    "out under a file": (
        ("good", "--out", "file/x"),
        "file/x: cannot be made (Not a directory), expected a writable parent",
    ),
    "unknown field": (("misspelt",), "misspelt/config.json: config model.widht: unknown field, expected one of "),
    "no argument": ((), "Missing argument 'SRC'."),
    "unknown option": (("good", "--deep"), "No such option: --deep"),
}


@pytest.mark.parametrize(("words", "message"), BAD.values(), ids=BAD)
def test_bad_input(
    words: tuple[str, ...],
    message: str,
    checkpoint: Path,
    tmp_path: Path,
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x")
    for name in ("good", "truncated", "pickle", "misspelt"):
        shutil.copytree(checkpoint, tmp_path / name)
    (tmp_path / "truncated" / "model.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{}")
    torch.save({}, tmp_path / "pickle" / "model.safetensors")
    spoil_config(tmp_path / "misspelt", widht=3)
    ran = cli("inspect", *words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"streamgauge: error: {message}"), ran.err
    assert ran.err.count("\n") == 1
