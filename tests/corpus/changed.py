"""Which pairs have changed since a GPU measured them: they are proven and compiled anew; `make check-all` takes all."""

import hashlib
import os
import subprocess
from functools import cache
from pathlib import Path

from common.python.build.compilation import imports_of
from common.python.corpus.discovery import Pair, find_pairs
from common.python.regress.expectations import expected

ROOT = Path(__file__).resolve().parents[2]
PAIRS = find_pairs(ROOT)
HARNESS = ROOT / "common" / "python"
HEADERS = [*(ROOT / "common" / "cuda").glob("*.cuh")]


@cache
def blobs(commit: str) -> dict[str, str]:
    """Git's hash of each file at that commit, by path; empty where this clone does not hold the commit."""
    command = ["git", "ls-tree", "-r", "--format=%(objectname) %(path)", commit]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return {path: name for name, path in (line.split(" ", 1) for line in listed.stdout.splitlines())}


def is_as_measured(pair: Pair, commit: str | None) -> bool:
    """Whether the pair's files are those that a GPU measured, and so proved, at that commit."""
    imported = {file for variant in pair.variants for file in imports_of(variant.path, ROOT)}
    files = {file for file in imported if HARNESS not in file.parents}
    kernels = [cu for variant in pair.variants if (cu := variant.path.with_suffix(".cu")).exists()]
    read = "".join(cu.read_text() for cu in kernels)
    files |= {*kernels, *(header for header in HEADERS if f'#include "{header.name}"' in read)}
    now = {file: hashlib.sha1(b"blob %d\0" % file.stat().st_size + file.read_bytes()).hexdigest() for file in files}
    return commit is not None and all(blobs(commit).get(str(f.relative_to(ROOT))) == name for f, name in now.items())


def to_prove() -> list[Pair]:
    """The first pair of each chapter, and those that no GPU has proved as they are."""
    if os.environ.get("PROVE") == "all":
        return PAIRS
    measured = {key: one.commit for key, one in expected(ROOT, "NVIDIA H200").items()}
    first = {pair.chapter: pair for pair in reversed(PAIRS)}.values()
    return [pair for pair in PAIRS if pair in first or not is_as_measured(pair, measured.get(pair.key))]


PROVEN = to_prove()
