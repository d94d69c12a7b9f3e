"""The quick form on the CPU, cut down to seconds: real sessions, real workers, real suites."""

import gzip
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_tree import Tree, assert_usage, cli

from common.python.base.results import PairResult
from tools.selftest import aa, cheats, truth
from tools.selftest import tree as trees
from tools.selftest.command import REPORT
from tools.selftest.models import NAMES, Cheats, Others, Report, Sessions, Truth
from tools.selftest.sessions import FORMS, Bench

CHEATS = Path(__file__).resolve().parents[1] / "cheats" / "ch01"
SHORT = replace(
    FORMS["quick"], session_s=0.05, planted_sessions=1, planted_copies=1, repeats=1, others_pairs=1,
    seconds=dict.fromkeys(NAMES, 20.0),
)  # fmt: skip


@pytest.fixture
def small(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """A chapter of one pair, one cheat with its honest twin, and one subject for sessions, of the least work."""
    tree.pair("ch01:doubles")
    folder = tree.root / "tests" / "cheats" / "ch01"
    folder.mkdir(parents=True)
    for path in (CHEATS / "__init__.py", CHEATS / "row_logsumexp.py"):
        shutil.copy(path, folder)
    subjects = tuple(subject for subject in trees.SUBJECTS if subject.key == "ch01:short")
    monkeypatch.setattr("tools.selftest.aa.SUBJECTS", subjects)
    monkeypatch.setattr("tools.selftest.aa.PAUSED", subjects[0])
    monkeypatch.setitem(FORMS, "quick", SHORT)
    return tree


def selftest(tree: Tree, only: str) -> tuple[int, str, Path]:
    done = cli("selftest", "--only", only, "--root", tree.root, "--artifacts-dir", tree.artifacts, "--seed", "1")
    [folder] = tree.artifacts.glob("*/selftest")
    return done.returncode, done.stdout + done.stderr, folder


def read(folder: Path, name: str, model: Any) -> Any:
    return model.model_validate_json((folder / name / f"{name}.json").read_text())


def test_the_experiments_run_and_leave_every_raw_number(small: Tree) -> None:
    code, output, folder = selftest(small, "aa,truth,others,cheats")
    report = Report.model_validate_json((folder / REPORT).read_text())
    assert report.failed == {}, output
    assert "MEASURED ON THE CPU, NOT ON A GPU" in output
    assert code == (1 if any(promise.standing == "refuted" for promise in report.promises) else 0)
    assert {promise.experiment for promise in report.promises} == set(NAMES)

    [about, second] = read(folder, "aa", Sessions).sessions
    assert second.failed is None
    with gzip.open(folder / "aa" / "sessions.jsonl.gz", "rt") as lines:
        kept = [PairResult.model_validate_json(line) for line in lines]
    assert kept[0].blocks
    assert {proof.when for row in kept[0].variants for proof in row.proofs} >= {"before timing", "after timing"}
    assert [outcome.interval.rounds for outcome in about.outcomes] == [len({b.round for b in kept[0].blocks})] * 2

    known = read(folder, "truth", Truth)
    assert known.failed == []
    assert known.floor_us > 0
    assert len(known.empty_us) == 64
    assert [outcome.planted for outcome in known.planted[0].outcomes] == [0.005, 0.01, 0.02, 0.05]
    with gzip.open(folder / "truth" / "sessions.jsonl.gz", "rt") as lines:
        blocks = PairResult.model_validate_json(lines.readline()).blocks
    assert [block.round for block in blocks] == [index // 4 for index in range(32)]

    others = read(folder, "others", Others)
    assert {timing.method for timing in others.timings} == {"this harness", "torch blocked_autorange"}
    assert all(timing.a_us > 0 and timing.b_us > 0 and timing.seconds > 0 for timing in others.timings)
    assert others.skipped == {"triton do_bench": "it times GPUs only"}

    found = read(folder, "cheats", Cheats)
    assert [row.pair for row in found.rows[-2:]] == ["ch01:doubles"] * 2
    assert (found.honest_pairs, found.not_run, found.honest_not_run) == (1, [], [])
    assert {(row.variant, row.honest, row.refused) for row in found.rows if row.pair == "ch01:constant_output"} == {
        ("baseline_constant_output", True, False),
        ("optimized_constant_output", False, True),
        ("optimized_constant_output__honest", True, False),
    }


def test_an_experiment_that_ends_with_an_error_fails_the_selftest_and_the_others_go_on(
    small: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(bench: Bench, scratch: Path) -> Sessions:
        raise RuntimeError("the heater's process has died\nand more")

    monkeypatch.setattr(aa, "experiment", broken)
    code, output, folder = selftest(small, "aa,truth")
    report = Report.model_validate_json((folder / REPORT).read_text())
    assert report.failed == {"aa": "the heater's process has died"}
    assert {promise.experiment for promise in report.promises} == {"truth"}
    assert (code, "aa failed: the heater's process has died" in output) == (1, True)


def test_what_is_about_a_gpu_is_left_out_on_a_cpu_and_said(small: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, nothing in ((aa, Sessions(sessions=[])), (truth, Truth()), (cheats, Cheats())):
        monkeypatch.setattr(module, "experiment", lambda bench, scratch, nothing=nothing: nothing)
    done = cli("selftest", "--root", small.root, "--artifacts-dir", small.artifacts)
    assert done.returncode == 4  # for nothing ran
    assert "others not run: it is about a GPU" in done.stdout


@pytest.mark.parametrize("words", [["--only", "nonsense"], ["--artifacts-dir", "/dev/null/x"]])
def test_what_cannot_be_is_one_line_and_exit_code_2(words: list[str]) -> None:
    assert_usage(cli("selftest", *words), words[1].split("/x")[0])
