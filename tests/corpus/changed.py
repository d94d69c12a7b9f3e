"""Which pairs have changed since these tests passed on them: those, and each chapter's first, are proven and compiled.

`passed.json` holds a digest of each pair's files; `make passed` runs the tests, then writes it. `PROVE=all` takes all.
"""

import hashlib
import json
import os
from pathlib import Path

import pytest

from common.python.base.toolkit import find_nvcc
from common.python.build.compilation import files_of
from common.python.corpus.discovery import Pair, find_pairs

ROOT = Path(__file__).resolve().parents[2]
PASSED = Path(__file__).with_name("passed.json")
PAIRS = find_pairs(ROOT)
HARNESS = ROOT / "common" / "python"
SLOW = {"adam8bit", "balanced_ragged_decode", "beam_kv_reorder", "continuous_batching", "decode_8b", "dit_sampler"}
SLOW |= {"dlrm_step", "kv_cache"}


def digest(pair: Pair) -> str:
    """Of all files of the pair but the harness's."""
    files = [file for file in files_of(pair) if not file.is_relative_to(HARNESS)]
    named = [f"{file.name} {hashlib.sha256(file.read_bytes()).hexdigest()}" for file in sorted(files)]
    return hashlib.sha256("\n".join(named).encode()).hexdigest()[:16]


def differ() -> list[Pair]:
    """Those that differ from what passed."""
    passed = {} if os.environ.get("PROVE") == "all" else json.loads(PASSED.read_text())
    return [pair for pair in PAIRS if passed.get(pair.key) != digest(pair)]


CHANGED = differ()
FIRST = {pair.chapter: pair for pair in reversed(PAIRS) if pair.name not in SLOW}  # by chapter
PROVEN = [pair for pair in PAIRS if pair in CHANGED or pair == FIRST[pair.chapter]]


def nightly_unless_changed(*keys: str) -> pytest.MarkDecorator:
    """For a slow test of these pairs alone: it runs if one of them has changed, and nightly."""
    unchanged = {*keys}.isdisjoint(pair.key for pair in CHANGED)
    return pytest.mark.skipif(unchanged, reason=f"passed on {', '.join(keys)} as they are; make check-all runs it")


if __name__ == "__main__":
    if find_nvcc() is None:
        raise SystemExit("kernels were not compiled: there is no nvcc")
    PASSED.write_text(json.dumps({pair.key: digest(pair) for pair in PAIRS}, indent=0) + "\n")
