#!/usr/bin/env python3
"""Removes what this project makes: artifacts, build caches and temporary files, after showing each with its size.

Never a tracked file, never through a symbolic link, never outside this folder but for the harness's own temporary
folders. What a harness that runs now may be using stays. Exit codes: 0 done or nothing to do, 1 something could not be
removed, 2 usage, 130 not confirmed.
"""

import argparse
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent
CACHES = ("build", "dist", "reports", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis")
RUNS = "artifacts"
PEAKS, LATEST = (
    "peaks",
    "latest",
)  # in there: what this machine was measured to do, which takes a minute to measure again
SPARED = {".git", ".venv", "venv", "node_modules"}  # no caches are looked for in here
TEMPORARY = "benchmark-"
# Of the command lines of processes that may be at work on such files.
HARNESS = ("benchmark_cli", "benchmark_peak", "analyze_expectations", "pytest", "common.python", "tools.testing")


@dataclass(frozen=True)
class Item:
    """A file or folder that may go: its bytes on disk, and when anything in it last changed."""

    path: Path
    size: int
    changed: float


def items(root: Path, temporary: Path, keep: int) -> Iterator[Item]:
    """All that may go, tracked or not: generated folders by name, runs but the newest `keep`, temporary folders."""
    for name in CACHES:
        yield from item(root / name)
    for path in sorted(root.glob("*.egg-info")):
        yield from item(path)
    for place, folders, _ in os.walk(root):
        folders[:] = [name for name in folders if name not in SPARED]  # os.walk follows no links
        if place == str(root):
            folders[:] = [name for name in folders if name not in (*CACHES, RUNS)]
        if "__pycache__" in folders:
            folders.remove("__pycache__")
            yield from item(Path(place, "__pycache__"))
    yield from runs(root / RUNS, keep)
    for path in sorted(temporary.glob(f"{TEMPORARY}*")):
        about = path.lstat()
        if stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid():
            yield from item(path)


def runs(folder: Path, keep: int) -> Iterator[Item]:
    """The artifacts folder whole, or all in it but the newest runs, by their names, and the peaks."""
    if not keep or folder.is_symlink() or not folder.is_dir():
        yield from item(folder)
        return
    found = sorted(path for path in folder.iterdir() if path.name not in (PEAKS, LATEST))
    for path in found[:-keep]:
        yield from item(path)


def item(path: Path) -> Iterator[Item]:
    """The path, if it is there. A symbolic link is never one of ours, and what it points to is never looked at."""
    if path.is_symlink() or not path.exists():
        return
    inside = [path]
    for place, folders, files in os.walk(path):
        inside += [Path(place, name) for name in (*folders, *files)]
    about = [one.lstat() for one in inside if os.path.lexists(one)]
    yield Item(path, sum(one.st_blocks * 512 for one in about), max(one.st_mtime for one in about))


def tracked(root: Path, path: Path) -> bool:
    """Whether git keeps anything of this path; False where there is no git or no repository here."""
    repository = any((place / ".git").exists() for place in (root, *root.parents))
    if shutil.which("git") is None or not path.is_relative_to(root) or not repository:
        return False
    done = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z", "--", f":(literal){path}"], capture_output=True, check=False
    )
    return done.returncode != 0 or bool(done.stdout)  # what git cannot tell of stays


def first_start() -> float | None:
    """When the oldest harness process of this user that still runs was started; None if there is none."""
    starts = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            about = folder.stat()
        except OSError:  # it ended meanwhile
            continue
        ours = about.st_uid == os.getuid() and int(folder.name) != os.getpid()
        if ours and any(name in word for word in words for name in HARNESS):
            starts.append(about.st_mtime)
    return min(starts, default=None)


def size_text(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def printable(path: Path) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in str(path))


def remove(path: Path) -> str | None:
    """Remove it and all in it, links as links; why it could not be, if so."""
    try:
        if path.is_symlink() or not path.is_dir():
            path.unlink()
        else:
            shutil.rmtree(path)
    except OSError as error:
        return f"{printable(path)}: {error.strerror or error}"
    return None


class Arguments(argparse.ArgumentParser):
    """argparse with one line for what was wrong: that of `tools`, which this file does without, to stand alone."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def options(words: list[str] | None) -> argparse.Namespace:
    parser = Arguments(prog="cleanup.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--yes", action="store_true", help="remove without asking, for scripts")
    parser.add_argument("--dry-run", action="store_true", help="only show")
    parser.add_argument("--keep", type=int, default=0, metavar="N", help="leave the newest N runs and the peaks")
    found = parser.parse_args(words)
    if found.keep < 0:
        parser.error(f"--keep {found.keep} is no number of runs: 0 or more")
    return found


def main(words: list[str] | None = None, root: Path = ROOT) -> int:
    asked = options(words)
    started = first_start()
    chosen, size = [], 0
    for one in items(root, Path(tempfile.gettempdir()), asked.keep):
        told = f"{size_text(one.size):>9}  {printable(one.path)}"
        if tracked(root, one.path):
            print(f"{told}  (stays: git tracks files in it)")
        elif started is not None and one.changed >= started:
            print(f"{told}  (stays: a harness that runs now may be using it)")
        else:
            print(told)
            chosen.append(one.path)
            size += one.size
    if not chosen:
        print("nothing to remove")
        return 0
    print(f"{size_text(size):>9}  in all")
    if asked.dry_run:
        return 0
    try:
        if not asked.yes and input("Remove these? [y/N] ").strip().lower() not in ("y", "yes"):
            return 130
    except EOFError:
        print("\ncleanup.py: nobody to ask: --yes removes without asking", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    wrong = [told for path in chosen if (told := remove(path))]
    for told in wrong:
        print(f"cleanup.py: {told}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
