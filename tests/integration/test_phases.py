"""A run has two phases: all pairs are proven at once, then timed one after the other; in turn with room for one."""

import time

import pytest
from small_tree import HONEST, NOTE_PROCESS, WRONG, Tree, doing, late_s, nothing_left, row
from test_endings import PAIRS, three

from common.python.base.results import PairResult
from common.python.run.session import APART, Session

HANGS_AT_TEST_SIZE = doing("if a.numel() < 1000: import time; time.sleep(600)")
# A stand-in for a full GPU: there is no room while another pair is at work.
NO_ROOM_BESIDE = """
    import os, time
    from pathlib import Path

    def prepare(a):
        mine = Path({folder!r}, f"at_work_{{os.getpid()}}")
        mine.touch()
        if a.numel() < 1000 and not Path({folder!r}, "was_beside").exists():
            while len(list(Path({folder!r}).glob("at_work_*"))) < 2:
                time.sleep(0.01)
            Path({folder!r}, "was_beside").touch()
            raise torch.OutOfMemoryError("no room")

        def step():
            return a * 2

        return step
"""


class Heard:
    """Listens to a suite, and can stop it in a phase."""

    def __init__(self) -> None:
        self.phases: list[tuple[str, str]] = []

    def __call__(self, phase: str, result: PairResult) -> None:
        self.phases.append((result.key, phase))

    def place(self, key: str, phase: str) -> int:
        return self.phases.index((key, phase))


def test_all_pairs_are_proven_before_the_first_is_timed_and_timed_one_after_the_other(tree: Tree) -> None:
    three(tree)
    heard = Heard()
    assert tree.open("ch1", show=heard, jobs=3).run().complete
    proven = [heard.place(key, "proven") for key in PAIRS]
    starts = [heard.place(key, "start") for key in PAIRS]
    assert starts == sorted(starts)
    first = min(heard.place(key, "samples") for key in PAIRS)
    assert max(proven) < first
    timed = [key for key, phase in heard.phases[first:] if phase == "samples"]
    assert timed == sorted(timed), "one ends before the next begins"


def test_with_room_for_one_pair_at_a_time_each_has_its_row_before_the_next_is_proven(tree: Tree) -> None:
    three(tree)
    heard = Heard()
    assert tree.open("ch1", show=heard, jobs=1).run().complete
    rows = [(key, phase) for key, phase in heard.phases if phase in ("proven", "done")]
    assert rows == [(key, phase) for key in PAIRS for phase in ("proven", "done")]


# What ends a suite early, in either phase.


@pytest.mark.parametrize("twice", [False, True])
def test_ctrl_c_while_pairs_are_proven_keeps_what_is_done_and_says_why_the_rest_was_not_run(
    tree: Tree, twice: bool
) -> None:
    """Here where the second has been proven; while it is timed, test_endings sends the signals."""
    three(tree)

    def show(phase: str, result: PairResult) -> None:
        if (phase, result.key) == ("proven", "ch01:b"):
            suite.asked_to_stop = lambda: True
            if twice:
                raise KeyboardInterrupt

    suite = tree.open("ch1", show=show, jobs=1)
    summary = suite.run()
    assert [line["pair"] for line in tree.journal()] == [pair.key for pair in summary.pairs] == ["ch01:a"]
    assert (summary.complete, summary.not_run) == (False, {"ch01:b": "Ctrl-C", "ch01:c": "Ctrl-C"})
    assert nothing_left()


def test_a_failed_proof_ends_a_suite_that_is_to_fail_fast_before_anything_is_timed(tree: Tree) -> None:
    three(tree)
    tree.pair("ch01:b", optimized=WRONG)
    summary = tree.run("ch1", fail_fast=True, jobs=2)
    assert [pair.key for pair in summary.pairs] == ["ch01:b"]
    assert summary.not_run == {"ch01:a": "--fail-fast", "ch01:c": "--fail-fast"}


def test_a_failure_while_timing_ends_a_suite_that_is_to_fail_fast(tree: Tree) -> None:
    three(tree)
    tree.pair("ch01:b", optimized=doing("if a.numel() > 1000: return a * 3"))
    summary = tree.run("ch1", fail_fast=True)
    assert summary.pairs[-1].key in ("ch01:a", "ch01:b")  # on a busy machine the control of the first may be off
    assert summary.not_run["ch01:c"] == "--fail-fast"


def seconds_of_a_run(tree: Tree) -> float:
    """What its pairs take, however busy the machine."""
    started = time.monotonic()
    tree.run("ch1")
    return time.monotonic() - started


def test_a_suites_time_ends_a_proof_that_hangs_and_is_not_all_spent_on_proofs(tree: Tree) -> None:
    """That it ends what hangs while it is timed, test_endings shows."""
    tree.pair("ch01:a")
    limit_s = 4 + 6 * seconds_of_a_run(tree)  # half is for proofs
    tree.pair("ch01:b", optimized=HANGS_AT_TEST_SIZE)
    started = time.monotonic()
    summary = tree.run("ch1", jobs=2, suite_timeout=limit_s)
    assert time.monotonic() - started < limit_s + late_s()
    assert [pair.key for pair in summary.pairs] == ["ch01:a"]
    assert "the suite's time was up" in summary.not_run["ch01:b"]
    assert nothing_left()


# Company.


def test_a_pair_that_ran_out_of_memory_beside_others_is_proven_again_alone(tree: Tree) -> None:
    folder = str(tree.root)
    tree.pair("ch01:a", optimized=NO_ROOM_BESIDE.format(folder=folder))
    tree.pair("ch01:b", optimized=NOTE_PROCESS.format(file=f"{folder}/at_work_b"))
    heard = Heard()
    summary = tree.open("ch1", show=heard, jobs=2).run()
    assert (tree.root / "was_beside").exists()
    assert [pair.status for pair in summary.pairs] == ["measured", "measured"]
    result = tree.result("ch01:a")
    assert APART not in result.notes
    proofs = row(result, "optimized_a").proofs
    assert {proof.when for proof in proofs} >= {"before timing", "after timing"}
    assert [proof.reason for proof in proofs if proof.reason] == []  # a busy machine may cost the verdict, no proof
    assert heard.place("ch01:b", "proven") < heard.place("ch01:a", "proven")


def test_what_autotunes_is_compiled_while_nothing_else_is_at_work(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    at_work, company, prove = set[str](), dict[str, set[str]](), Session.prove

    def noted(session: Session, prebuild: list[str] | None = None) -> PairResult:
        key = session.pair.key
        at_work.add(key)
        company[key] = at_work - {key}
        try:
            time.sleep(0.2)
            return prove(session, prebuild)
        finally:
            for other in at_work:
                company[other] |= at_work - {other}
            at_work.discard(key)

    monkeypatch.setattr(Session, "prove", noted)
    three(tree)
    tree.pair("ch01:b", optimized=HONEST + '\n    MODE = "max-autotune"  # of torch.compile\n')
    assert tree.open("ch1", jobs=3).run().complete
    assert company == {"ch01:a": {"ch01:c"}, "ch01:b": set(), "ch01:c": {"ch01:a"}}
