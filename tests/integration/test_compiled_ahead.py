"""Real workers compile ahead of a suite: its pairs find the graphs, and nothing that goes wrong there reaches it."""

import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from textwrap import indent

import pytest
from small_tree import HONEST, SPINS, Tree, late_s, row

from common.python.base.machine import machine
from common.python.base.results import PairResult
from common.python.corpus.discovery import find_pairs
from common.python.run.options import Options
from common.python.run.prebuild import Ahead
from common.python.run.suite import open_suite
from common.python.workers.launch import ONE_HOST

ROOT = Path(__file__).resolve().parents[2]
COMPILED = """
    def doubled(a):
        return a * 2 + (a - a) * {new}  # a number that no earlier test has compiled

    def prepare(a):
        run = torch.compile(doubled, dynamic=False{mode})
        def step():
            return run(a)

        return step
"""
NAMED = "\n    # torch.compile\n"
FAILS = NAMED + "    def prepare(a):\n        raise RuntimeError('no')\n"
compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a C++ compiler")


def compiled(mode: str = "") -> str:
    return COMPILED.format(new=random.SystemRandom().random(), mode=mode)


def run(tree: Tree, **options: object) -> tuple[list[str], dict[str, PairResult]]:
    """What was said while the suite was opened, and its results."""
    heard: list[str] = []
    asked = Options(["ch01"], tree.root, tree.artifacts, iterations=2, warmup=0, seed=7, **options)  # type: ignore[arg-type]
    suite = open_suite(asked, lambda phase, result: None, say=heard.append)
    results = {result.name: result for result in suite.run().pairs}
    return [line for line in heard if "ahead" in line], results


def from_cache(result: PairResult) -> float:
    why = row(result, f"optimized_{result.name}").why
    assert why is not None
    assert why.metrics["graphs"] == 1
    return why.metrics["graphs from the cache"]


@compiler
def test_pairs_find_in_the_cache_what_was_compiled_ahead_of_them(tree: Tree) -> None:
    tree.pair("ch01:a", optimized=compiled())
    tree.pair("ch01:tuned", optimized=compiled(', mode="max-autotune-no-cudagraphs"'))
    [said], results = run(tree)
    assert said.startswith("prepared 2 variants that compile, ahead of their pairs, in ")
    assert {result.status for result in results.values()} == {"measured"}
    assert from_cache(results["a"]) == 1
    assert from_cache(results["tuned"]) == 0, "what was chosen by timing beside other work is found by nobody"


LOCKS = """
    # torch.compile
    import multiprocessing

    locks = []

    def prepare(a):
        locks.append(multiprocessing.get_context("spawn").Lock())
        return lambda: a * 2
"""


def test_what_was_compiled_ahead_leaves_no_semaphore_to_be_told_of_when_the_run_ends(tree: Tree) -> None:
    tree.pair("ch01:a", optimized=LOCKS)
    tree.pair("ch01:b", optimized=LOCKS)
    command = [sys.executable, "-m", "tools.cli.benchmark_cli", "run", "ch01", "--root", str(tree.root)]
    command += ["--artifacts-dir", str(tree.artifacts), "--iterations", "2", "--warmup", "0"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert "prepared 2 variants that compile" in done.stdout, done.stdout + done.stderr
    assert done.stderr == ""


def test_nothing_is_compiled_ahead_of_a_cold_start(tree: Tree) -> None:
    tree.pair("ch01:a", optimized=NAMED + HONEST)
    tree.pair("ch01:b", optimized=NAMED + HONEST)
    for cold_start, lines in ((True, 0), (False, 1)):
        heard: list[str] = []
        asked = Options(["ch01"], tree.root, tree.artifacts, cold_start=cold_start)
        open_suite(asked, lambda phase, result: None, say=heard.append)
        assert len([line for line in heard if "ahead" in line]) == lines


def test_what_fails_dies_or_hangs_ahead_is_told_of_by_its_own_pair_only(tree: Tree) -> None:
    tree.pair("ch01:dies", optimized=NAMED + "    import os\n    os._exit(3)\n")
    tree.pair("ch01:fails", optimized=FAILS)
    tree.pair("ch01:good", optimized=NAMED + HONEST)
    [said], results = run(tree)
    assert said.startswith("prepared 1 variants")
    assert {name: result.status for name, result in results.items()} == {
        "dies": "failed",
        "fails": "failed",
        "good": "measured",
    }
    assert "no" in (row(results["fails"], "optimized_fails").reason or "")


def test_a_variant_that_hangs_ahead_is_ended_at_its_limit(tree: Tree) -> None:
    tree.pair("ch01:hangs", optimized=NAMED + indent(SPINS, " " * 4) + HONEST)
    tree.pair("ch01:good", optimized=NAMED + HONEST)
    heard: list[str] = []
    ahead = Ahead(tree.root, machine(), "test", 7, False, limit_s=8.0)
    started = time.monotonic()
    ahead.compile(find_pairs(tree.root), ONE_HOST, heard.append)
    assert time.monotonic() - started < 8.0 + 3 * late_s()
    assert heard[0].startswith("prepared 1 variants")
    assert ahead.workers == []
