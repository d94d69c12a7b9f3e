"""Which pairs have changed since these tests passed on them: those, and each chapter's first, are proven and compiled.

`passed.json` holds a digest of each pair's files; `make passed` runs the tests, then writes it. `PROVE=all` takes all.
"""

import hashlib
import json
import os
import re
from pathlib import Path

from common.python.base.toolkit import find_nvcc
from common.python.build.compilation import imports_of
from common.python.corpus.discovery import Pair, find_pairs

ROOT = Path(__file__).resolve().parents[2]
PASSED = Path(__file__).with_name("passed.json")
PAIRS = find_pairs(ROOT)
SLOW = {"adam8bit", "balanced_ragged_decode", "beam_kv_reorder", "continuous_batching", "decode_8b", "dit_sampler"}
SLOW |= {"dlrm_step", "kv_cache"}
HEADERS = [*(ROOT / "common" / "cuda").glob("*.cuh")]
MODEL = re.compile(r"common\.models(?:\.| import )(\w+)")
MODELS = {
    file.stem: [one for one in imports_of(file, ROOT) if one.parent.name == "models"]
    for file in (ROOT / "common" / "models").glob("[a-z]*.py")
}


def included(text: str) -> set[Path]:
    """The project's headers that a source includes, and those that they include."""
    direct = {header for header in HEADERS if f'#include "{header.name}"' in text}
    return direct.union(*(included(header.read_text()) for header in direct))


def digest(pair: Pair) -> str:
    """Of the pair's files, the models that they import and the headers that they include."""
    own = (file for variant in pair.variants for file in (variant.path, variant.path.with_suffix(".cu")))
    files = {file for file in own if file.exists()}
    read = "".join(file.read_text() for file in files)
    files |= included(read).union(*(MODELS[name] for name in MODEL.findall(read)))
    named = [f"{file.name} {hashlib.sha256(file.read_bytes()).hexdigest()}" for file in sorted(files)]
    return hashlib.sha256("\n".join(named).encode()).hexdigest()[:16]


def differ() -> list[Pair]:
    """Those that differ from what passed."""
    passed = {} if os.environ.get("PROVE") == "all" else json.loads(PASSED.read_text())
    return [pair for pair in PAIRS if passed.get(pair.key) != digest(pair)]


CHANGED = differ()
FIRST = {pair.chapter: pair for pair in reversed(PAIRS) if pair.name not in SLOW}  # by chapter
PROVEN = [pair for pair in PAIRS if pair in CHANGED or pair == FIRST[pair.chapter]]

if __name__ == "__main__":
    if find_nvcc() is None:
        raise SystemExit("kernels were not compiled: there is no nvcc")
    PASSED.write_text(json.dumps({pair.key: digest(pair) for pair in PAIRS}, indent=0) + "\n")
