"""Checkpoints: exact round trips, and one clear line for everything that can be wrong with a file."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from rule_networks import CASES, network, tokens
from safetensors.torch import load_file, save_file
from torch import Tensor

from streamgauge.simulate import checkpoint
from streamgauge.theory.errors import InputError


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return checkpoint.save_model(
        tmp_path / "net", network("mhc-logits").to_precision("float32"), {"training": {"a": 1}}
    )


@pytest.mark.parametrize("case", CASES)
def test_round_trip_is_exact(case: str, tmp_path: Path) -> None:
    model = network(case)
    path = checkpoint.save_model(tmp_path / "sub" / "net", model, {"later": [1, {"b": None}]})
    assert sorted(p.name for p in path.iterdir()) == ["config.json", "model.safetensors"]
    assert [p.name for p in path.parent.iterdir()] == ["net"]  # nothing left beside
    stored = checkpoint.read(path)
    assert stored.config == model.config
    assert stored.metadata == {"later": [1, {"b": None}]}
    for name, tensor in model.state_dict().items():
        assert torch.equal(stored.tensors[name], tensor), name
    x = tokens(model)
    with torch.no_grad():
        assert torch.equal(checkpoint.load(path, "float64")(x), model(x))


def test_expected_shapes_are_the_tensors_of_the_contract() -> None:
    model = network("converted-norm-gated")
    shapes = checkpoint.expected_shapes(model.config)
    assert shapes == {name: tuple(t.shape) for name, t in model.state_dict().items()}
    n, d = 3, 8
    assert {
        name: shape for name, shape in shapes.items() if name.startswith("sites.1.") and "branch" not in name
    } == {
        "sites.1.gates": (n,),
        "sites.1.coef.weight": (2 * n, n * d),
        "sites.1.coef.scale": (2,),
        "sites.1.coef.base": (2 * n,),
        "sites.1.gauge.read": (n, n),
        "sites.1.gauge.write": (n, n),
        "sites.1.gauge.metric": (n, n),
    }
    assert {name: shape for name, shape in shapes.items() if name.startswith(("head", "entry"))} == {
        "entry": (n,),
        "head.weight": (n, n * d),
        "head.scale": (1,),
        "head.base": (n,),
        "head.gauge.read": (n, n),
        "head.gauge.metric": (n, n),
    }


def test_stored_dtypes_are_kept_and_read_without_loss(tmp_path: Path) -> None:
    """Converted files mix float64 coefficients with float32 branches; neither is rounded on the way in."""
    model = network("converted-gated")
    tensors = {
        name: tensor
        if ".gauge." in name or "coef" in name
        else tensor.to(torch.bfloat16 if "branch" in name else torch.float32)
        for name, tensor in model.state_dict().items()
    }
    path = checkpoint.save(tmp_path / "net", model.config, tensors)
    again = checkpoint.read(path)
    assert {n: t.dtype for n, t in again.tensors.items()} == {n: t.dtype for n, t in tensors.items()}
    for name, tensor in again.model("float64").state_dict().items():
        assert torch.equal(tensor, tensors[name].double()), name


def test_every_written_tensor_is_contiguous_and_its_own(tmp_path: Path) -> None:
    model = network("ihc")
    tensors = dict(model.state_dict())
    tensors["sites.0.coef.base"] = torch.arange(12.0, dtype=torch.float64)[::2]  # a view with stride 2
    tensors["sites.1.branch.down.weight"] = tensors["sites.1.branch.up.weight"].mT  # shares memory
    path = checkpoint.save(tmp_path / "net", model.config, tensors)
    again = checkpoint.read(path).tensors
    for name, tensor in tensors.items():
        assert torch.equal(again[name], tensor), name


def test_hashes_are_those_of_the_files(saved: Path) -> None:
    import hashlib

    for name, digest in checkpoint.read(saved).sha256.items():
        assert hashlib.sha256((saved / name).read_bytes()).hexdigest() == digest


def test_loading_leaves_the_random_state_alone(saved: Path) -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    checkpoint.load(saved)
    assert torch.equal(torch.rand(2), expected)


# --- writing


def test_an_existing_destination_is_refused_without_force(saved: Path) -> None:
    before = (saved / "model.safetensors").read_bytes()
    other = network("ihc")
    with pytest.raises(InputError) as caught:
        checkpoint.save_model(saved, other)
    assert str(caught.value) == f"{saved}: exists already; expected a new path, or force to replace it"
    assert (saved / "model.safetensors").read_bytes() == before
    checkpoint.save_model(saved, other, force=True)
    assert checkpoint.read(saved).config == other.config
    assert [p.name for p in saved.parent.iterdir()] == ["net"]


def test_force_does_not_replace_what_is_no_checkpoint(tmp_path: Path) -> None:
    model = network("ihc")
    plain = tmp_path / "notes.txt"
    plain.write_text("mine")
    with pytest.raises(InputError, match="is not a directory; only a checkpoint directory can be replaced"):
        checkpoint.save_model(plain, model, force=True)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "thesis.tex").write_text("mine")
    with pytest.raises(InputError, match=r"holds 'thesis.tex'"):
        checkpoint.save_model(folder, model, force=True)
    inner = tmp_path / "named alike" / "config.json"
    inner.mkdir(parents=True)
    with pytest.raises(InputError, match=r"holds 'config.json'"):
        checkpoint.save_model(inner.parent, model, force=True)
    with pytest.raises(InputError, match="cannot be created"):
        checkpoint.save_model(plain / "net", model)
    assert plain.read_text() == (folder / "thesis.tex").read_text() == "mine"


def test_an_interrupted_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(*given: object, **named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "save_file", cut)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save_model(tmp_path / "net", network("ihc"))
    assert list(tmp_path.iterdir()) == []


def test_metadata_that_is_not_json_is_refused(tmp_path: Path) -> None:
    for bad in ({"x": float("nan")}, {"x": torch.zeros(1)}):
        with pytest.raises(InputError, match="metadata cannot be written as JSON"):
            checkpoint.save_model(tmp_path / "net", network("ihc"), bad)
    assert list(tmp_path.iterdir()) == []


# --- reading what is wrong


def with_tensors(change: Callable[[dict[str, Tensor]], object]) -> Callable[[Path], object]:
    def damage(path: Path) -> None:
        tensors = load_file(path / "model.safetensors")
        change(tensors)
        save_file({k: v.contiguous() for k, v in tensors.items()}, path / "model.safetensors")

    return damage


def with_text(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda path: (path / name).write_bytes(change((path / name).read_bytes()))


def with_config(change: Callable[[dict], object]) -> Callable[[Path], object]:
    def damage(path: Path) -> None:
        document = json.loads((path / "config.json").read_text())
        change(document)
        (path / "config.json").write_text(json.dumps(document))

    return damage


def replaced_by_directory(name: str) -> Callable[[Path], object]:
    return lambda path: ((path / name).unlink(), (path / name).mkdir())


def hole(tensors: dict[str, Tensor], value: float) -> None:
    tensors["sites.1.coef.weight"][2, 5] = value


W, C = "{path}/model.safetensors", "{path}/config.json"
BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "no weights": (lambda p: (p / "model.safetensors").unlink(), f"{W}: not found, expected a file"),
    "no config": (lambda p: (p / "config.json").unlink(), f"{C}: not found, expected a file"),
    "directory as weights": (replaced_by_directory("model.safetensors"), f"{W}: is a directory, expected a file"),
    "directory as config": (replaced_by_directory("config.json"), f"{C}: is a directory, expected a file"),
    "truncated": (
        with_text("model.safetensors", lambda b: b[:-7]),
        f"{W}: damaged or truncated, expected a complete",
    ),
    "cut in the header": (with_text("model.safetensors", lambda b: b[:100]), f"{W}: damaged or truncated"),
    "empty": (with_text("model.safetensors", lambda b: b""), f"{W}: damaged or truncated"),
    "pickle": (
        lambda p: (p / "model.safetensors").write_bytes(pickle.dumps({"a": 1})),
        f"{W}: is a pickle (torch.save) file, expected safetensors; pickles are never loaded",
    ),
    "torch.save": (lambda p: torch.save({"a": torch.ones(2)}, p / "model.safetensors"), f"{W}: is a pickle"),
    "text": (with_text("model.safetensors", lambda b: b"hello, world, hello"), f"{W}: damaged or truncated"),
    "shape": (
        with_tensors(lambda t: t.update({"sites.0.coef.base": torch.zeros(5)})),
        f"{W}: tensor sites.0.coef.base has shape (5,), expected (6,)",
    ),
    "transposed": (
        with_tensors(lambda t: t.update({"sites.2.coef.weight": t["sites.2.coef.weight"].mT})),
        f"{W}: tensor sites.2.coef.weight has shape (24, 6), expected (6, 24)",
    ),
    "nan": (with_tensors(lambda t: hole(t, float("nan"))), f"{W}: tensor sites.1.coef.weight has nan at (2, 5)"),
    "infinity": (with_tensors(lambda t: hole(t, float("inf"))), f"{W}: tensor sites.1.coef.weight has inf at (2, 5)"),
    "half coefficients": (
        with_tensors(lambda t: t.update({"sites.1.mixer.logits": t["sites.1.mixer.logits"].bfloat16()})),
        f"{W}: tensor sites.1.mixer.logits has dtype bfloat16, expected float32, float64",
    ),
    "integers": (
        with_tensors(lambda t: t.update({"embed.weight": t["embed.weight"].int()})),
        f"{W}: tensor embed.weight has dtype int32, expected float32, float64, bfloat16, float16",
    ),
    "missing": (
        with_tensors(lambda t: t.pop("head.scale")),
        f"{W}: tensor head.scale is missing, expected shape (1,)",
    ),
    "unexpected": (
        with_tensors(lambda t: t.update({"sites.3.gates": torch.ones(3)})),
        f"{W}: tensor sites.3.gates is unexpected; the config implies no tensor of that name",
    ),
    "not JSON": (with_text("config.json", lambda b: b[:-5]), f"{C}: not JSON (Expecting"),
    "a key twice": (
        with_text("config.json", lambda b: b.replace(b'"model": {', b'"model": {"loops": 2,')),
        f"{C}: not JSON (the key 'loops' stands twice)",
    ),
    "a huge number": (
        with_text("config.json", lambda b: b.replace(b'"loops": 1', b'"loops": ' + b"9" * 5000)),
        f"{C}: not JSON (Exceeds the limit",
    ),
    "not text": (with_text("config.json", lambda b: b"\xff\xfe\x00"), f"{C}: not JSON"),
    "deep": (with_text("config.json", lambda b: b"[" * 200_000), f"{C}: not JSON"),
    "unknown field": (
        with_config(lambda c: c["model"].update(gate=1)),
        f"{C}: config model.gate: unknown field, expected one of context",
    ),
    "missing field": (with_config(lambda c: c["model"].pop("heads")), f"{C}: config model.heads: missing"),
    "future": (with_config(lambda c: c.update(format_version=9)), f"{C}: config format_version: found 9, expected 1"),
}


@pytest.mark.parametrize("name", BAD)
def test_damage_is_named_in_one_line(name: str, saved: Path) -> None:
    damage, words = BAD[name]
    damage(saved)
    with pytest.raises(InputError) as caught:
        checkpoint.read(saved)
    assert str(caught.value).startswith(words.format(path=saved))
    assert "\n" not in str(caught.value)


def test_what_is_no_directory(saved: Path) -> None:
    for path, words in (
        (saved / "nothing", "not found, expected a checkpoint directory (model.safetensors and config.json)"),
        (saved / "config.json", "is a file, expected a checkpoint directory (model.safetensors and config.json)"),
    ):
        with pytest.raises(InputError) as caught:
            checkpoint.read(path)
        assert str(caught.value) == f"{path}: {words}"


def test_a_converted_file_needs_float64_gauges(tmp_path: Path) -> None:
    model = network("converted-ihc").to_precision("float32")
    with pytest.raises(InputError, match=r"gauge\.\w+ has dtype float32, expected float64"):
        checkpoint.save_model(tmp_path / "net", model)


def test_a_pickle_is_never_executed(saved: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (Path.touch, (saved / "executed",))  # type: ignore[return-value]

    for protocol in range(2, 6):
        (saved / "model.safetensors").write_bytes(pickle.dumps(Trap(), protocol=protocol))
        with pytest.raises(InputError, match="pickles are never loaded"):
            checkpoint.read(saved)
    assert not (saved / "executed").exists()
