"""Each fault in tests/faults/sanitizer is caught by the tool that is for it; honest twins and real pairs are clean."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fault_suite import ROOT, with_callers

from common.python.base.toolkit import find_program

NO_PEAKS = "nothing is held against peaks here, so none are measured"
CAUGHT = {  # by which tool, and the words that it must use
    "out_of_bounds_write": ("memcheck", "Invalid __global__ write of size 4 bytes"),
    "shared_memory_race": ("racecheck", "Race reported between"),
    "uninitialised_read": ("initcheck", "Uninitialized __global__ memory read of size 4 bytes"),
}

pytestmark = pytest.mark.skipif(find_program("compute-sanitizer") is None, reason="needs compute-sanitizer")


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_callers(ROOT / "tests" / "faults" / "sanitizer", tmp_path_factory.mktemp("faults") / "root")


def sanitize(logs: Path, *words: str, root: Path) -> "subprocess.CompletedProcess[str]":
    command = [str(ROOT / "scripts" / "sanitize.sh"), "--root", str(root), "--logs", str(logs), *words]
    env = os.environ | {"PYTHON": sys.executable}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env)


@pytest.mark.parametrize("fault", CAUGHT)
def test_a_fault_is_caught_by_its_tool(fault: str, faults: Path, tmp_path: Path) -> None:
    tool, words = CAUGHT[fault]
    done = sanitize(tmp_path, f"ch06/optimized_{fault}.py", "--tool", tool, root=faults)
    assert done.returncode == 1, done.stdout + done.stderr
    line = done.stdout.splitlines()[0]
    assert line.startswith(f"{tool:10} ch06:{fault} optimized: ")
    assert words in line
    assert f"optimized_{fault}.cu:" in line


@pytest.mark.parametrize("fault", CAUGHT)
def test_its_honest_twin_is_clean_under_every_tool(fault: str, faults: Path, tmp_path: Path) -> None:
    done = sanitize(tmp_path, f"ch06/optimized_{fault}__honest.py", root=faults)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "4 clean, 0 with errors"


@pytest.mark.parametrize(
    ("pair", "runs"),
    [("ch07:transpose", 4), ("ch09:softmax", 4)],  # CUDA, which shares tiles between threads; Triton
)
def test_a_pair_of_the_corpus_is_clean_under_every_tool(pair: str, runs: int, tmp_path: Path) -> None:
    done = sanitize(tmp_path, pair, root=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == f"{runs} clean, 0 with errors"
