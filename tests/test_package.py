"""The package as it is installed: what is in the wheel, what an import pulls in, and whether types are checked."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("streamgauge", "theory", "kernels", "simulate", "proofs", "examples")
HEAVY = ("numpy", "scipy", "sympy", "flint", "torch", "triton", "matplotlib", "rich", "typer", "safetensors")


def tracked() -> list[str]:
    """Files of the rooms that git knows; a source archive without git has nothing to compare with."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("not a git checkout")
    listed = subprocess.run(["git", "ls-files", *ROOMS], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def run(*command: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command away from this checkout and its environment variables."""
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV", "TRITON_INTERPRET")}
    command = tuple(map(str, command))
    return subprocess.run(command, cwd=cwd, env={**clean, **environment}, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built, without network, from a copy of what is tracked (building in place leaves a stale build/)."""
    place = tmp_path_factory.mktemp("wheel")
    for name in [*tracked(), "pyproject.toml", "README.md", "LICENSE"]:
        target = place / "tree" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)
    build = ("-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "-w")
    made = run(sys.executable, *build, place, place / "tree", cwd=place)
    assert made.returncode == 0, made.stderr
    (found,) = place.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new virtual environment with the wheel in it; dependencies come from the environment the tests run in."""
    place = tmp_path_factory.mktemp("venv")
    made = run(sys.executable, "-m", "venv", "--without-pip", place, cwd=place.parent)
    assert made.returncode == 0, made.stderr
    site = site_packages(place)
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")  # .pth files there are not followed
    pip = ("-m", "pip", "--python", place, "install", "-q", "--no-deps", "--no-index", "--disable-pip-version-check")
    done = run(sys.executable, *pip, wheel, cwd=place)
    assert done.returncode == 0, done.stderr
    return place


def site_packages(venv: Path) -> Path:
    (found,) = venv.glob("lib/python*/site-packages")
    return found


def test_wheel_holds_every_tracked_file_of_the_rooms(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    for name in tracked():
        inside = name if name.startswith("streamgauge/") else f"streamgauge/{name}"
        wanted = name.endswith((".py", "py.typed", ".j2", "expected.json")) or name.startswith("examples/data/")
        assert inside in names or not wanted, f"{name} is tracked but not in the wheel"
    assert {name.split("/")[0] for name in names} == {"streamgauge", "streamgauge-0.1.0.dist-info"}


def test_installed_elsewhere_it_runs_and_adds_one_name(installed: Path, tmp_path: Path) -> None:
    names = {path.name for path in site_packages(installed).iterdir()} - {"dependencies.pth"}
    assert names == {"streamgauge", "streamgauge-0.1.0.dist-info"}
    command = installed / "bin" / "streamgauge"
    version = run(command, "--version", cwd=tmp_path)
    assert (version.returncode, version.stdout) == (0, "streamgauge 0.1.0\n")
    (tmp_path / "mixers.json").write_text('[[["1/2", "1/2"], ["1/2", "1/2"]]]')
    barcode = run(command, "barcode", "mixers.json", "--json", cwd=tmp_path)
    assert barcode.returncode == 0, barcode.stderr
    assert [bar["death"] for bar in json.loads(barcode.stdout)["bars"]] == [0, 1, 1]
    verify = run(command, "verify", "--claim", "TH2", "--out", "report", "--json", cwd=tmp_path)
    assert verify.returncode == 0, verify.stderr
    assert (tmp_path / "report" / "report.html").is_file()
    where = run(installed / "bin" / "python", "-c", "import streamgauge.theory as t; print(t.__file__)", cwd=tmp_path)
    assert Path(where.stdout.strip()).is_relative_to(installed)


def test_the_demo_runs_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    """The shipped model, every line of the table, away from the checkout."""
    done = run(installed / "bin" / "streamgauge", "demo", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert document["ok"] is True
    assert [line["ok"] for line in document["lines"]] == [True] * 9
    assert (tmp_path / "streamgauge-demo" / "converted" / "certificate.json").is_file()


def test_the_checker_in_the_wheel_stands_alone(installed: Path, tmp_path: Path) -> None:
    checker = site_packages(installed) / "streamgauge" / "proofs" / "checker.py"
    (tmp_path / "cert.json").write_text("{}")
    done = run(installed / "bin" / "python", "-I", "-S", checker, "cert.json", cwd=tmp_path)
    assert done.returncode == 1
    assert "format_version" in done.stdout + done.stderr


BLOCKER = """
import importlib.abc, sys
class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "triton"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name.split(".")[0])
sys.meta_path.insert(0, Blocker())
"""


def python(code: str, cwd: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, *flags, "-c", code, cwd=cwd)


def test_theory_needs_neither_torch_nor_triton(tmp_path: Path) -> None:
    modules = sorted(path.stem for path in (ROOT / "theory").glob("*.py") if path.stem != "__init__")
    code = (
        BLOCKER
        + f"""
import importlib, streamgauge.theory
for name in {modules!r}:
    importlib.import_module("streamgauge.theory." + name)
import streamgauge as sg
assert len(sg.barcode([[[1, 0], [0, 0]]]).bars) == 3
print(sorted({{"torch", "triton"}} & set(sys.modules)))
"""
    )
    done = python(code, tmp_path)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_without_torch_commands_that_need_it_say_so_in_one_line_and_the_others_run(tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text("[[[1, 0], [0, 0]]]")
    (tmp_path / "cert.json").write_text("{}")
    code = (
        BLOCKER
        + """
from streamgauge.cli import main
for words in (["convert", "a", "b"], ["inspect", "a"], ["barcode", "."], ["demo"]):
    print(main(words), flush=True)
print(main(["barcode", "m.json", "--out", "m.png"]), main(["check", "cert.json"]))
"""
    )
    done = python(code, tmp_path)
    needs = "streamgauge: error: this needs torch: pip install 'streamgauge[torch]'\n"
    assert done.stderr == 4 * needs
    assert done.stdout.startswith("2\n" * 4)
    assert done.stdout.endswith("0 1\n")
    assert {path.name for path in tmp_path.iterdir()} == {"m.json", "cert.json", "m.png"}


def test_the_blocker_blocks(tmp_path: Path) -> None:
    done = python(BLOCKER + "import torch", tmp_path)
    assert "ModuleNotFoundError" in done.stderr


@pytest.mark.parametrize("flags", [(), ("-O",)], ids=["plain", "optimised"])
def test_import_of_the_front_door_is_light(tmp_path: Path, flags: tuple[str, ...]) -> None:
    code = f"import sys, streamgauge; dir(streamgauge); print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    done = python(code, tmp_path, *flags)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_every_exported_name_exists() -> None:
    import streamgauge

    for name in streamgauge.__all__:
        assert getattr(streamgauge, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        streamgauge.nonsense  # noqa: B018


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_type_checking_reaches_every_room(tmp_path: Path) -> None:
    """The tree that ``make types`` builds resolves every module, and an error planted in any room is reported."""
    made = run("make", "-s", "types", f"TYPES={tmp_path / 'types'}", cwd=ROOT)
    assert made.returncode == 0, made.stderr
    tree = tmp_path / "types" / "streamgauge"
    for name in tracked():
        assert (tree / name.removeprefix("streamgauge/")).is_file(), f"{name} is invisible to mypy"
    skeleton = tmp_path / "planted" / "streamgauge"
    for folder in ("", "cli", *ROOMS[1:]):
        (skeleton / folder).mkdir(parents=True)
        (skeleton / folder / "__init__.py").touch()
        (skeleton / folder / "planted.py").write_text('wrong: int = "text"\n')
    (skeleton / "py.typed").touch()
    flags = ("--config-file", ROOT / "pyproject.toml", "--cache-dir", tmp_path / "cache", "-p", "streamgauge")
    done = run(sys.executable, "-m", "mypy", *flags, cwd=tmp_path, MYPYPATH=str(tmp_path / "planted"))
    assert done.returncode == 1, done.stderr
    for folder in ("", "cli", *ROOMS[1:]):
        place = Path("streamgauge", folder, "planted.py")
        assert f"{place}:1: error: Incompatible types" in done.stdout, f"nothing reported in {place}"
