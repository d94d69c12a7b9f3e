"""A process for each pair, and all that watches it, cost at most 0.4 s a pair over the same work in one process.

The pairs are ones of the corpus, since the start of the next pair's worker hides behind what a pair does while it is
not timed: the trivial pairs of tests/faults would wait for nearly all of it, and nobody runs a suite of those. These
are short, so that the difference of two times is not lost in them, and neither isolated nor compiled by torch.compile.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAIRS = (
    *("ch01:pinned_copy", "ch02:tensor_core_gemm", "ch02:zero_copy_gather", "ch06:block_reduction"),
    *("ch06:vector_add_grid", "ch07:strided_copy", "ch10:cp_async_stages", "ch12:sinkhorn_while_node"),
)


def test_safety_costs_at_most_four_tenths_of_a_second_a_pair() -> None:
    tool = [sys.executable, "-m", "tools.testing.safety_cost", *PAIRS]
    done = subprocess.run(tool, cwd=ROOT, capture_output=True, text=True, check=False, timeout=500)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" s more") == 3 * len(PAIRS)
    assert "a pair, the median of 3 suites" in done.stdout
