"""A process for each pair, and all that watches it, cost at most 0.4 s a pair over the same work in one process."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MATRIX = ROOT / "tests" / "faults" / "matrix"


def test_safety_costs_at_most_four_tenths_of_a_second_a_pair() -> None:
    tool = [sys.executable, "-m", "tools.testing.safety_cost", "ch01:healthy", "ch02:healthy_last"]
    done = subprocess.run(
        [*tool, "--root", str(MATRIX)], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "a pair, the median of 6" in done.stdout
