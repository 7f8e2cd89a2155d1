"""A hub cache's snapshot converts like the folder it stands for; every other link out of a folder is refused."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from foreign_folders import deepseek_folder, read_file
from mutated_module import mutated
from refusals import assert_refused

from streamgauge.simulate.formats import hub
from streamgauge.simulate.formats.dispatch import is_foreign
from streamgauge.simulate.formats.shards import INDEX, Shards
from streamgauge.simulate.formats.sidecar import Options, convert_folder

SHARD = "model-00001-of-00004.safetensors"
OUT = "is a link out of the folder, expected a file in it"


def hub_snapshot(place: Path, *, name: str = "models--org--name", shards: bool = True) -> Path:
    """A cache as the hub's own client makes it: blobs by hash, a snapshot of relative links, a ref."""
    plain = deepseek_folder(place / "plain", shards=shards)
    (plain / "tokenizer.json").write_text("{}")
    (plain / "code").mkdir()
    (plain / "code" / "model.py").write_text("print()")
    repository = place / "hub" / name
    snapshot = repository / "snapshots" / ("0" * 40)
    (repository / "blobs").mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)
    for path in sorted(path for path in plain.rglob("*") if path.is_file()):
        where = path.relative_to(plain)
        blob = repository / "blobs" / hashlib.sha256(path.read_bytes()).hexdigest()
        blob.write_bytes(path.read_bytes())
        (snapshot / where).parent.mkdir(parents=True, exist_ok=True)
        up = "/".join([".."] * (len(where.parts) + 1))
        (snapshot / where).symlink_to(f"{up}/blobs/{blob.name}")
    return snapshot


def relinked(snapshot: Path, target: Path | str, name: str = SHARD) -> None:
    (snapshot / name).unlink()
    (snapshot / name).symlink_to(target)


@pytest.mark.parametrize("shards", [True, False])
@pytest.mark.parametrize("name", ["models--org--name", "models--name"])
def test_a_snapshot_converts_like_the_plain_folder(name: str, shards: bool, tmp_path: Path) -> None:
    snapshot = hub_snapshot(tmp_path, name=name, shards=shards)
    assert is_foreign(snapshot)
    first = convert_folder(tmp_path / "plain", tmp_path / "first", Options("bias"))
    second = convert_folder(snapshot, tmp_path / "second", Options("bias"))
    assert first.path.read_bytes() == second.path.read_bytes()
    (tmp_path / "elsewhere").symlink_to(snapshot)  # a link to the snapshot is the snapshot
    third = convert_folder(tmp_path / "elsewhere", tmp_path / "third", Options("bias"))
    assert first.path.read_bytes() == third.path.read_bytes()


@pytest.mark.parametrize("shards", [True, False])
def test_a_whole_checkpoint_of_a_snapshot_has_files_and_no_links(shards: bool, tmp_path: Path) -> None:
    snapshot = hub_snapshot(tmp_path, shards=shards)
    before = {path: path.read_bytes() for path in (tmp_path / "hub").rglob("*") if path.is_file()}
    for source, name in ((tmp_path / "plain", "first"), (snapshot, "second")):
        convert_folder(source, tmp_path / name, Options("bias"), full=True)
    first, second = (tmp_path / name for name in ("first", "second"))
    assert [path for path in second.rglob("*") if path.is_symlink()] == []
    listed = [sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) for folder in (first, second)]
    assert listed[0] == listed[1]
    assert {"config.json", "tokenizer.json", "code/model.py", INDEX} <= set(listed[1])
    for name in listed[1]:
        if (first / name).is_file():
            assert (first / name).read_bytes() == (second / name).read_bytes(), name
    if shards:  # nobody's mixer is in the last shard: the blob itself, not a link to it
        kept = "model-00004-of-00004.safetensors"
        assert os.path.samefile(second / kept, (snapshot / kept).resolve())
    assert {path: path.read_bytes() for path in (tmp_path / "hub").rglob("*") if path.is_file()} == before
    wanted, _ = read_file(first / "streamgauge.safetensors")
    found, _ = read_file(second / "streamgauge.safetensors")
    assert all(np.array_equal(wanted[key], found[key]) for key in wanted)


def outside(place: Path, snapshot: Path) -> None:
    (place / "secret").write_bytes((snapshot / SHARD).read_bytes())
    relinked(snapshot, place / "secret")


def other_repository(place: Path, snapshot: Path) -> None:
    other = place / "hub" / "models--org--other" / "blobs"
    other.mkdir(parents=True)
    (other / "x").write_bytes((snapshot / SHARD).read_bytes())
    relinked(snapshot, "../../../models--org--other/blobs/x")


def deeper(place: Path, snapshot: Path) -> None:
    inner = snapshot.parent.parent / "blobs" / "inner"
    inner.mkdir()
    (inner / "x").write_bytes((snapshot / SHARD).read_bytes())
    relinked(snapshot, "../../blobs/inner/x")


def blob_is_a_link(place: Path, snapshot: Path) -> None:
    blob = (snapshot / SHARD).resolve()
    blob.rename(place / "secret")
    blob.symlink_to(place / "secret")


def blobs_is_a_link(place: Path, snapshot: Path) -> None:
    blobs = snapshot.parent.parent / "blobs"
    blobs.rename(place / "moved")
    blobs.symlink_to(place / "moved")


def other_revision(place: Path, snapshot: Path) -> None:
    other = snapshot.parent / ("1" * 40)
    other.mkdir()
    (other / SHARD).write_bytes((snapshot / SHARD).read_bytes())
    relinked(snapshot, other / SHARD)


def no_snapshots(place: Path, snapshot: Path) -> None:
    snapshot.parent.rename(snapshot.parent.parent / "revisions")


def no_models(place: Path, snapshot: Path) -> None:
    snapshot.parent.parent.rename(snapshot.parent.parent.parent / "datasets--org--name")


LINKS: dict[str, tuple[Callable[[Path, Path], None], str]] = {
    "out of the cache": (outside, OUT),
    "another repository's blob": (other_repository, OUT),
    "deeper than a blob": (deeper, OUT),
    "a blob that is a link": (blob_is_a_link, OUT),
    "blobs elsewhere": (blobs_is_a_link, OUT),
    "another revision": (other_revision, OUT),
    "no folder of snapshots": (no_snapshots, OUT),
    "no model's repository": (no_models, OUT),
    "a blob that is not there": (lambda place, snapshot: relinked(snapshot, "../../blobs/none"), OUT),
    "the folder of blobs": (lambda place, snapshot: relinked(snapshot, "../../blobs"), OUT),
    "config.json out": (lambda place, snapshot: relinked(snapshot, "/etc/hostname", "config.json"), OUT),
    "index out": (lambda place, snapshot: relinked(snapshot, place / "plain" / INDEX, INDEX), OUT),
}


def damaged(name: str, place: Path) -> Path:
    """The snapshot after that damage, wherever it then lies."""
    snapshot = hub_snapshot(place)
    LINKS[name][0](place, snapshot)
    return next(path for path in (place / "hub").glob("*/*/" + "0" * 40))


@pytest.mark.parametrize("name", LINKS)
def test_other_links_are_refused(name: str, tmp_path: Path) -> None:
    snapshot = damaged(name, tmp_path)
    assert_refused(lambda: convert_folder(snapshot, tmp_path / "out", Options("bias")), LINKS[name][1])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("entry", ["../../blobs/x", "/etc/passwd", "..", "."])
def test_index_entries_stay_names(entry: str, tmp_path: Path) -> None:
    snapshot = hub_snapshot(tmp_path)
    text = (snapshot / INDEX).read_text().replace(SHARD, entry)
    blob = snapshot.parent.parent / "blobs" / "index"
    blob.write_text(text)
    relinked(snapshot, blob, INDEX)
    assert_refused(lambda: Shards(snapshot), "expected a file of the folder itself")


def test_a_whole_checkpoint_leaves_other_links_out(tmp_path: Path) -> None:
    snapshot = hub_snapshot(tmp_path)
    relinked(snapshot, "/etc/hostname", "tokenizer.json")
    convert_folder(snapshot, tmp_path / "out", Options("bias"), full=True)
    assert not (tmp_path / "out" / "tokenizer.json").exists()
    assert (tmp_path / "out" / "code" / "model.py").read_text() == "print()"


MUTANTS = {
    "any folder": ('home.parent.name != "snapshots" or ', ""),
    "any repository": (' or not repository.name.startswith("models--")', ""),
    "anywhere below": ("target.parent == blobs", "blobs in target.parents"),
    "anywhere": ("target.parent == blobs and ", ""),
    "no file": (" and target.is_file()", ""),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_take_a_link_that_must_be_refused(name: str, tmp_path: Path) -> None:
    """Control: on every damage the true one says no, and every mutant says yes to one of them at least."""
    mutant, taken = mutated(hub, *MUTANTS[name]), 0
    for i, damage in enumerate(LINKS):
        snapshot = damaged(damage, tmp_path / str(i))
        for path in sorted(snapshot.iterdir()):
            if path.is_symlink():
                taken += mutant.is_own_blob(snapshot, path) and not hub.is_own_blob(snapshot, path)
    assert taken > 0
