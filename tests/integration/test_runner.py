"""A suite leaves a journal that can be gone on from, files that hold every number, and a row for whatever happened."""

import os
import re
import time
from pathlib import Path
from textwrap import dedent

import pytest
from small_tree import HONEST, SPINS, WRONG, Tree, doing, late_s, row

from common.python.base.machine import crowding
from common.python.base.results import PairResult, Summary
from common.python.base.toolkit import find_nvcc
from common.python.run import session
from common.python.stats.host_pace import pace_deviation

EXIT = doing("import os; os._exit(5)")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """A suite in which the second of four pairs crashes, and the third needs what no machine has."""
    tree = Tree(tmp_path_factory.mktemp("runner"))
    tree.pair("ch01:first", optimized=HONEST, wrong=WRONG)
    tree.pair("ch02:crash", optimized=EXIT)
    tree.pair("ch03:huge", optimized=HONEST)
    baseline = tree.root / "ch03" / "baseline_huge.py"
    wants = "from common.python.requirements import needs\nrequires = needs(cores=100_000)\n"
    baseline.write_text(baseline.read_text().replace("workload = ", wants + "workload = "))
    tree.pair("ch04:last")
    tree.run("ch1", "ch2", "ch3", "ch04:last")
    return tree


def summary(tree: Tree) -> Summary:
    return Summary.model_validate_json((tree.folder / "summary.json").read_text())


def test_the_journal_has_a_line_for_every_pair_that_names_its_folder(done: Tree) -> None:
    lines = done.journal()
    told = {line["pair"]: line["status"] for line in lines}  # in the order in which they were done
    assert len(lines) == len(told)
    assert told == {result.key: result.status for result in summary(done).pairs}
    for line in lines:
        assert done.result(line["pair"]).verdict == line["verdict"]
        assert (done.folder / line["folder"] / "config.json").is_file()


def test_a_pair_is_held_against_the_hosts_pace_before_it_and_in_the_pairs_before_it(tree: Tree) -> None:
    """A pair that finds its host slow throughout would take that for its pace."""
    tree.pair("ch01:a")
    tree.pair("ch01:b")

    def quick_host(phase: str, result: PairResult) -> None:
        if (phase, result.key) == ("why", "ch01:a"):
            assert result.best_pace_us == 0.003
            result.best_pace_us = 0.002

    suite = tree.open("ch1", show=quick_host)
    assert (suite.best_pace_us or 0.0) > 0
    suite.best_pace_us = 0.003
    suite.run()
    first, second = tree.result("ch01:a"), tree.result("ch01:b")
    assert second.best_pace_us == 0.002
    assert first.pace_deviation == pace_deviation([first])
    assert second.pace_deviation == pytest.approx(pace_deviation([first, second]))


def test_the_artifacts_have_the_names_of_the_design(done: Tree) -> None:
    top = {path.name for path in done.folder.iterdir()}
    assert {"manifest.json", "journal.jsonl", "summary.json", "summary.md", "summary.csv", "ch01_first"} <= top
    results = done.folder / "ch01_first" / "results"
    assert {path.name for path in results.iterdir()} == {"benchmark_test_results.json", "benchmark_test_results.md"}
    assert (done.folder / "ch01_first" / "logs" / "worker0.log").is_file()
    assert "ch01:first" in (results / "benchmark_test_results.md").read_text()
    assert not list(done.folder.rglob("*.partial"))
    for table in ("summary.csv", "summary.md"):
        assert "optimized_crash" in (done.folder / table).read_text()


def test_resume_does_not_measure_a_single_file_again(tree: Tree) -> None:
    tree.pair("ch01:x")
    tree.run("ch01/optimized_x.py")
    finished = tree.run("ch01/optimized_x.py", resume=tree.folder)
    assert [result.key for result in finished.pairs] == ["ch01:x"]


def test_a_pairs_time_limit_grows_with_the_machines_load(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.pair("ch01:a", HONEST.replace("(a):", "(a):\n        __import__('time').sleep(2)"))
    monkeypatch.setattr(session, "crowding", crowding)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    for load, status in ((1.0, "failed"), (200.0, "measured")):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, load, load))
        assert tree.run("ch1", timeout_multiplier=0.0125, iterations=2).pairs[0].status == status


def test_a_pair_that_hangs_ends_within_two_seconds_of_its_limit_whatever_went_before(tree: Tree) -> None:
    """The limit is that of the pair from its beginning, and holds where no Python runs in either of two workers."""
    slow, hang = HONEST.replace("(a):", "(a):\n        __import__('time').sleep(3)"), doing(SPINS)
    tree.pair("ch01:a", slow, fields="isolated=True,", optimized=hang, second=hang)
    tree.pair("ch01:b")
    heard: dict[tuple[str, str], float] = {}

    def note(phase: str, result: PairResult) -> None:
        heard.setdefault((result.key, phase), time.monotonic())

    finished = tree.run("ch1", show=note, timeout_multiplier=0.05)
    limit_s, took_s = 0.05 * 120, heard["ch01:a", "done"] - heard["ch01:a", "start"]
    assert limit_s <= sum(finished.pairs[0].seconds.values()) <= took_s < limit_s + late_s()
    assert [result.status for result in finished.pairs] == ["failed", "measured"]
    assert re.search(r"during its first step at optimized_a(__\w+)?\.py:", finished.pairs[0].reason or "")


@pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc")
def test_kernels_are_compiled_before_the_first_pair_begins_and_one_that_does_not_is_told_by_its_own_pair(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("common.python.cuda.build_folder", lambda root: tmp_path)  # an empty cache
    for name, body in (("fine", "return 0;"), ("broken", "return nothing;")):
        tree.pair(f"ch01:{name}")
        text = tree.opening("ch01", name, "cuda") + "from common.python.cuda import load_cuda\n" + dedent(HONEST)
        python = tree.file("ch01", f"optimized_{name}", text)
        kernel = f'extern "C" int f(float* a, cudaStream_t stream) {{ {body} }}\n'
        python.with_suffix(".cu").write_text(f"#include <cuda_runtime.h>\n{kernel}")
    with monkeypatch.context() as ahead:
        ahead.setattr("common.python.run.suite.Suite._task", lambda suite, pair: None)
        tree.run("ch01", iterations=2, jobs=2)
    assert [library.name.split("-")[1] for library in tmp_path.rglob("*.so")] == ["optimized_fine"]
    tree.run("ch01", iterations=2, jobs=2)
    fine, broken = (row(tree.result(f"ch01:{name}"), f"optimized_{name}") for name in ("fine", "broken"))
    assert (fine.status, fine.reason) == ("built", "compiled for sm_80, not run: needs a GPU")
    assert (broken.status, "optimized_broken.cu does not compile" in broken.reason) == ("failed", True)
    assert "nothing" in broken.reason
