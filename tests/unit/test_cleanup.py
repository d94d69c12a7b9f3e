"""cleanup.py removes what the project makes, shows it first, and touches nothing else."""

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from synthetic_run import ROOT, git, written

MADE = (
    *("artifacts/20260101T000000.000000Z/summary.json", "artifacts/20260102T000000.000000Z/summary.json"),
    *("artifacts/peaks/GPU-1.json", "build/cuda/x.so", "dist/x.whl", "reports/x.html", ".pytest_cache/x"),
    *(".mypy_cache/x", ".ruff_cache/x", ".hypothesis/x", "x.egg-info/PKG-INFO", "ch07/__pycache__/x.pyc"),
)
OURS = ("README.md", "ch07/baseline_x.py", ".venv/lib/__pycache__/x.pyc", ".git_is_not/x", "notes/build/x")


@pytest.fixture(scope="module")
def cleanup() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cleanup", ROOT / "cleanup.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["cleanup"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def root(tmp_path: Path, cleanup: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A tree with everything in it, in which no harness runs, and a temporary folder of its own."""
    written(tmp_path / "tree", dict.fromkeys((*MADE, *OURS), "x" * 5000))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(cleanup, "first_start", lambda: None)
    yield tmp_path / "tree"
    assert all((tmp_path / "tree" / name).exists() for name in OURS)


def left(root: Path) -> set[str]:
    return {name for name in MADE if (root / name).exists()}


def test_all_that_was_made_goes_and_was_shown(
    cleanup: ModuleType, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cleanup.main(["--yes"], root) == 0
    assert left(root) == set()
    told = capsys.readouterr().out
    for name in ("artifacts", "build", "dist", "reports", ".pytest_cache", "x.egg-info", "ch07/__pycache__"):
        assert f"{root / name}\n" in told
    assert "8 KiB  " in told or "12 KiB  " in told
    assert told.splitlines()[-1].endswith("in all")
    assert cleanup.main(["--yes"], root) == 0
    assert capsys.readouterr().out == "nothing to remove\n"


def test_a_dry_run_removes_nothing(cleanup: ModuleType, root: Path) -> None:
    assert cleanup.main(["--dry-run", "--yes"], root) == 0
    assert left(root) == set(MADE)


@pytest.mark.parametrize(
    ("answer", "code", "goes"), [("y", 0, True), ("yes ", 0, True), ("", 130, False), ("n", 130, False)]
)
def test_it_asks(
    answer: str, code: int, goes: bool, cleanup: ModuleType, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("builtins.input", lambda prompt: answer)
    assert cleanup.main([], root) == code
    assert (left(root) == set()) == goes


@pytest.mark.parametrize("words", [["--bogus"], ["--keep", "-1"], ["--keep", "x"], ["artifacts"]])
def test_usage(words: list[str], cleanup: ModuleType, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cleanup.main(words, root)
    assert caught.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("cleanup.py: ")
    assert left(root) == set(MADE)


def test_the_newest_runs_and_the_peaks_may_stay(cleanup: ModuleType, root: Path) -> None:
    (root / "artifacts/latest").symlink_to("20260102T000000.000000Z")
    assert cleanup.main(["--yes", "--keep", "1"], root) == 0
    assert left(root) == {"artifacts/20260102T000000.000000Z/summary.json", "artifacts/peaks/GPU-1.json"}
    assert cleanup.main(["--yes", "--keep", "5"], root) == 0
    assert len(left(root)) == 2


@pytest.mark.parametrize("above", [".", ".."])
def test_what_git_tracks_stays(above: str, cleanup: ModuleType, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git(root / above, "init", "-q")
    git(root / above, "add", "-f", str(root / "build/cuda"), str(root / MADE[0]))
    assert cleanup.main(["--yes"], root) == 0
    kept = {name for name in MADE if name.startswith(("artifacts", "build"))}
    assert left(root) == kept
    assert capsys.readouterr().out.count("(stays: git tracks files in it)") == 2


def test_links_are_neither_followed_nor_removed_from_afar(cleanup: ModuleType, root: Path) -> None:
    precious = root.parent / "precious"
    written(precious, {"file": "x", "__pycache__/x.pyc": "x"})
    for name in ("dist", "build"):
        cleanup.remove(root / name)
    (root / "build").symlink_to(precious)  # where a generated folder should be
    (root / "linked").symlink_to(precious)  # with a cache inside
    (root / "artifacts" / "link").symlink_to(precious)  # inside what goes
    (root.parent / "tmp" / "benchmark-link").symlink_to(precious)
    assert cleanup.main(["--yes"], root) == 0
    assert (precious / "file").exists()
    assert (precious / "__pycache__").exists()
    assert (root / "build").is_symlink()
    assert (root.parent / "tmp" / "benchmark-link").is_symlink()
    assert not (root / "artifacts").exists()


def test_temporary_folders_of_the_harness_go_and_others_stay(
    cleanup: ModuleType, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = root.parent / "tmp"
    for name in ("benchmark-abc", "benchmark-nvcc-x", "other", "my-benchmark-x"):
        (place / name).mkdir()
    (place / "benchmark-file").write_text("not a folder")
    assert cleanup.main(["--yes"], root) == 0
    assert sorted(path.name for path in place.iterdir()) == ["benchmark-file", "my-benchmark-x", "other"]
    (place / "benchmark-theirs").mkdir()
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert cleanup.main(["--yes"], root) == 0
    assert (place / "benchmark-theirs").exists()
