"""The quick form on the CPU, cut down to seconds: real sessions, real workers, real suites."""

import gzip
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pandas
import pytest
from small_tree import Tree, assert_usage, cli

from common.python.base.results import PairResult
from tools.selftest import tree as trees
from tools.selftest.command import EXPERIMENTS, REPORT
from tools.selftest.promises import NAMES, Promise, Report
from tools.selftest.sessions import FORMS, Bench

CHEATS = Path(__file__).resolve().parents[1] / "cheats" / "ch01"
SHORT = replace(FORMS["quick"], session_s=0.05, repeats=1, others_pairs=1, seconds=dict.fromkeys(NAMES, 20.0))


@pytest.fixture
def small(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """A chapter of one pair, one cheat with its honest twin, and one subject for sessions, of the least work."""
    tree.pair("ch01:doubles")
    folder = tree.root / "tests" / "cheats" / "ch01"
    folder.mkdir(parents=True)
    for path in (CHEATS / "__init__.py", CHEATS / "row_logsumexp.py"):
        shutil.copy(path, folder)
    monkeypatch.setattr(trees, "SUBJECTS", (trees.SHORT, trees.SPIN))
    monkeypatch.setitem(FORMS, "quick", SHORT)
    return tree


def selftest(tree: Tree, only: str) -> tuple[int, str, Path]:
    done = cli("selftest", "--only", only, "--root", tree.root, "--artifacts-dir", tree.artifacts, "--seed", "1")
    [folder] = tree.artifacts.glob("*/selftest")
    return done.returncode, done.stdout + done.stderr, folder


def sessions(folder: Path, name: str) -> list[PairResult]:
    with gzip.open(folder / name / "sessions.jsonl.gz", "rt") as lines:
        return [PairResult.model_validate_json(line) for line in lines]


def test_the_experiments_run_and_leave_every_raw_number(small: Tree, capfd: pytest.CaptureFixture[str]) -> None:
    code, output, folder = selftest(small, "aa,truth,others,cheats")
    report = Report.model_validate_json((folder / REPORT).read_text())
    assert report.failed == {}, output
    assert "MEASURED ON THE CPU, NOT ON A GPU" in output
    assert code == (1 if any(promise.standing == "refuted" for promise in report.promises) else 0)
    assert {promise.experiment for promise in report.promises} == set(NAMES)

    [first] = sessions(folder, "aa")
    assert first.blocks
    assert {proof.when for row in first.variants for proof in row.proofs} >= {"before timing", "after timing"}
    read = json.loads((folder / "truth" / "empty_step.json").read_text())
    assert read["floor_us"] > 0
    assert len(read["empty_us"]) == 64
    timings = pandas.read_csv(folder / "others" / "timings.csv")
    assert {*timings["method"]} == {"this harness", "torch blocked_autorange"}
    assert (timings[["a_us", "b_us", "seconds"]] > 0).all(axis=None)

    told = {promise.promise: promise for promise in report.promises}
    assert {promise.n for name, promise in told.items() if name.startswith("A/A")} == {2}
    assert told["fewest ratios of equal sides that are over 1% from 1"].note == "triton do_bench: it times GPUs only"
    assert told["every cheat is refused"].measured == "3 of 3"
    assert told["no honest one is refused"].measured == "0 of 8"
    assert told["no honest one is refused"].note == "1 of the chapters' pairs run"


def test_an_experiment_that_ends_with_an_error_fails_the_selftest_and_the_others_go_on(
    small: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(bench: Bench, scratch: Path) -> list[Promise]:
        raise RuntimeError("the heater's process has died\nand more")

    monkeypatch.setitem(EXPERIMENTS, "aa", broken)
    code, output, folder = selftest(small, "aa,truth")
    report = Report.model_validate_json((folder / REPORT).read_text())
    assert report.failed == {"aa": "the heater's process has died"}
    assert {promise.experiment for promise in report.promises} == {"truth"}
    assert (code, "aa failed: the heater's process has died" in output) == (1, True)


def test_what_is_about_a_gpu_is_left_out_on_a_cpu_and_said(small: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("aa", "truth", "cheats"):
        monkeypatch.setitem(EXPERIMENTS, name, lambda bench, scratch: [])
    done = cli("selftest", "--root", small.root, "--artifacts-dir", small.artifacts)
    assert done.returncode == 4  # for nothing ran
    assert "others not run: it is about a GPU" in done.stdout


@pytest.mark.parametrize("words", [["--only", "nonsense"], ["--artifacts-dir", "/dev/null/x"]])
def test_what_cannot_be_is_one_line_and_exit_code_2(words: list[str]) -> None:
    assert_usage(cli("selftest", *words), words[1].split("/x")[0])
