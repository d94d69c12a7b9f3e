"""tools.testing.safety_cost on a CPU, where its figure is held to nothing: tests share their machine's cores."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from small_tree import NOTE_PROCESS, WRONG, Tree

from tools.testing.safety_cost import Cost, a_pair

ROOT = Path(__file__).resolve().parents[2]


def cost(tree: Tree, repeats: int = 1) -> "subprocess.CompletedProcess[str]":
    """A process of its own, since it imports the tree's chapters."""
    tool = [sys.executable, "-m", "tools.testing.safety_cost", "ch01:x", "--repeats", str(repeats)]
    return subprocess.run(
        [*tool, "--root", str(tree.root)], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )


def test_it_tells_the_time_in_the_harness_and_in_one_process(tree: Tree) -> None:
    tree.pair("ch01:x")
    done = cost(tree)
    one, middle = done.stdout.splitlines()
    told = re.fullmatch(r"ch01:x: (.*) s, in one process (.*) s: (.*) s more", one)
    assert told, done.stdout + done.stderr
    harness_s, alone_s, more_s = map(float, told.groups())
    assert alone_s > 0
    assert abs(harness_s - alone_s - more_s) < 0.02
    assert middle == f"safety costs {more_s:.2f} s a pair, the median of 1 suites; at most 0.4 s are allowed"
    assert abs(more_s - 0.4) < 0.006 or done.returncode == (more_s > 0.4)  # 0.40 may be either, as it is told


def test_each_suite_is_held_against_a_process_of_its_own_which_is_none_that_worked_before(tree: Tree) -> None:
    seen = tree.root / "pids"
    tree.pair("ch01:x", optimized=NOTE_PROCESS.format(file=str(seen)))
    done = cost(tree, repeats=2)
    assert done.stdout.count(" s more") == 2, done.stdout + done.stderr
    assert len(set(seen.read_text().split())) == 3 + 2  # workers of three suites, of which the first does not count


def test_the_figure_is_a_mean_over_each_suite_the_first_pair_included() -> None:
    suites = [(1, 1.0, 0.1), (1, 0.5, 0.4), (2, 9.0, 1.0), (2, 2.0, 2.0), (3, 0.5, 0.5), (3, 0.7, 0.5)]
    costs = [Cost("ch01:x", repeat, harness_s, alone_s) for repeat, harness_s, alone_s in suites]
    assert a_pair(costs) == pytest.approx(0.5)


def test_a_pair_that_cannot_be_measured_is_told_in_one_line(tree: Tree) -> None:
    tree.pair("ch01:x", optimized=WRONG)
    done = cost(tree)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"safety_cost: ch01:x is failed here: wrong at test size.*\n", done.stderr)
