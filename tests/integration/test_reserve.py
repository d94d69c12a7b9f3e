"""The next pair's worker is ready when its pair's turn comes, or another one is started, and nobody feels either."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from typing import Any, cast

import pytest
from small_tree import HONEST, Tree, doing, late_s

from common.python import reserve
from common.python.crew import Crew
from common.python.machine import Gpu, Machine
from common.python.reserve import NOBODY, Reserve, Reserves
from common.python.results import PairResult, Summary
from common.python.runner import Suite
from common.python.settings import Settings
from common.python.worker import Worker
from tools.testing.safety_cost import noted

FULL = """
tries = []

def prepare(a):
    if a.numel() > 1000:
        tries.append(a)
        if len(tries) <= {refused}:
            raise torch.OutOfMemoryError("no room beside another process")
    return lambda: a * 2
"""


@dataclass
class Watched:
    """A suite over a tree, and what happened in it, in order: phases of pairs, hires, reserves that came to rest."""

    tree: Tree
    events: list[tuple[str, str]] = field(default_factory=list)
    workers: dict[str, list[Worker]] = field(default_factory=dict)
    on: dict[tuple[str, str], Callable[[], None]] = field(default_factory=dict)  # at the first such event
    suite: Suite = field(init=False)

    def run(self, *targets: str, **options: Any) -> Summary:
        self.suite = self.tree.open(*targets, show=self.show, **options)
        return self.suite.run()

    def show(self, phase: str, result: PairResult) -> None:
        self.note(phase, result.key)

    def note(self, event: str, pair: str) -> None:
        self.events.append((event, pair))
        if act := self.on.pop((event, pair), None):
            act()

    def hires(self, pair: str) -> int:
        return self.events.count(("hired", pair))

    def signal(self, number: int, index: int = 0) -> None:
        """Send it to a worker in reserve."""
        worker = self.workers[self.suite.reserve.pairs()[0]][index]
        assert worker.pid, "0 is this very process's group"
        os.kill(worker.pid, number)


@pytest.fixture
def watched(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    """Everything about it is real; a test that is done has left no worker."""
    seen = Watched(tree)
    hire, halt = Settings.hire, Reserve.halt

    def note_hire(settings: Settings, pair: Any, *how: Any) -> Worker:
        seen.note("hired", pair.key)
        worker = hire(settings, pair, *how)
        seen.workers.setdefault(pair.key, []).append(worker)
        return worker

    def note_halted(ahead: Reserve) -> None:
        halt(ahead)
        if ahead.pair:
            seen.note("at rest", ahead.pair)

    monkeypatch.setattr(Settings, "hire", note_hire)
    monkeypatch.setattr(Reserve, "halt", note_halted)
    yield seen
    assert not any(worker._process.is_alive() for workers in seen.workers.values() for worker in workers)


def test_the_next_pairs_worker_is_started_at_once_waited_for_before_timing_and_used(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("common.python.runner.depth", lambda machine: 1)  # whatever this machine has room for
    noting = doing("import os; open(__file__ + '.pid', 'w').write(str(os.getpid()))")
    for key in ("ch01:a", "ch01:b", "ch01:c"):
        watched.tree.pair(key, optimized=noting)
    seen: dict[str, int] = {}
    watched.on["warm-up", "ch01:a"] = lambda: seen.update(b=watched.workers["ch01:b"][0].pid)
    done = watched.run("ch1")
    assert [pair.status for pair in done.pairs] == ["measured"] * 3
    for pair, following in (("ch01:a", "ch01:b"), ("ch01:b", "ch01:c")):
        began, prepared, timed = (watched.events.index((event, pair)) for event in ("start", "prepare", "warm-up"))
        assert began < watched.events.index(("hired", following)) < prepared
        assert watched.events.index(("at rest", following)) < timed
    assert [watched.hires(pair.key) for pair in done.pairs] == [1, 1, 1]
    assert int((watched.tree.root / "ch01" / "optimized_b.py.pid").read_text()) == seen["b"]


def test_pairs_that_have_nothing_to_run_are_passed_over(watched: Watched) -> None:
    for key in ("ch01:a", "ch01:b", "ch01:c"):
        watched.tree.pair(key)
    for stem in ("baseline_b", "optimized_b"):
        (watched.tree.root / "ch01" / f"{stem}.py").write_text("def broken(:\n")
    done = watched.run("ch1")
    assert [pair.status for pair in done.pairs] == ["measured", "failed", "measured"]
    assert watched.events.index(("hired", "ch01:c")) < watched.events.index(("warm-up", "ch01:a"))
    assert [watched.hires(pair.key) for pair in done.pairs] == [1, 0, 1]


@pytest.mark.parametrize(
    ("number", "told"),
    [(signal.SIGKILL, "was killed by SIGKILL"), (signal.SIGSTOP, "no answer within 2 s")],
    ids=["dies", "hangs"],
)
def test_a_reserve_that_is_gone_or_silent_when_its_turn_comes_is_replaced(
    watched: Watched, number: int, told: str
) -> None:
    watched.tree.pair("ch01:a")
    watched.tree.pair("ch01:b")
    watched.on["done", "ch01:a"] = lambda: watched.signal(number)
    done = watched.run("ch1")
    assert_replaced(watched, done, told)


def assert_replaced(watched: Watched, done: Summary, told: str) -> None:
    assert [pair.status for pair in done.pairs] == ["measured"] * 2
    assert (watched.hires("ch01:a"), watched.hires("ch01:b")) == (1, 2)
    log = watched.tree.result("ch01:b").log
    assert "the worker that was started ahead of its pair was given up: " in log
    assert told in log


def test_a_reserve_that_cannot_get_ready_is_replaced(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reserve, "GET_READY", "teeth")  # which is asked otherwise
    watched.tree.pair("ch01:a")
    watched.tree.pair("ch01:b")
    done = watched.run("ch1")
    assert_replaced(watched, done, "TypeError")
    assert watched.events.index(("at rest", "ch01:b")) < watched.events.index(("warm-up", "ch01:a"))


def test_a_reserve_that_is_not_ready_in_time_is_given_up(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reserve, "READY_S", 0.0)  # no fork is as fast
    watched.tree.pair("ch01:a")
    suite = watched.tree.open("ch1")
    suite.scratch = watched.tree.root / "scratch"
    suite._reserve(suite.pairs)
    ahead = suite.reserve.take("ch01:a")
    [worker] = watched.workers["ch01:a"]
    ahead.settle()
    assert ahead.take(0) is None
    assert "given up: no answer within" in worker.log.read_text()


def test_one_that_has_come_to_its_pair_has_the_pairs_time(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reserve, "READY_S", 0.5)
    watched.tree.pair("ch01:a")
    watched.tree.pair("ch01:b", optimized=doing("import time; a.numel() < 1000 and time.sleep(0.5)"))
    done = watched.run("ch1")
    assert [pair.status for pair in done.pairs] == ["measured"] * 2
    assert watched.hires("ch01:b") == 1


def test_what_a_worker_in_reserve_has_started_stands_still_with_it(watched: Watched, tmp_path: Path) -> None:
    note = tmp_path / "note"
    body = f"""
import pathlib, subprocess, sys
started = subprocess.Popen([sys.executable, "-c", "while True: pass"])
pathlib.Path({str(note)!r}).write_text(str(started.pid))
"""
    watched.tree.pair("ch01:a")
    watched.tree.pair("ch01:b", optimized=body + dedent(HONEST))
    seen: list[str] = []

    def look() -> None:
        seen.append(Path(f"/proc/{note.read_text()}/stat").read_text().rpartition(")")[2].split()[0])

    watched.on["prepare", "ch01:a"] = lambda: until(lambda: note.exists() and bool(note.read_text()))
    watched.on["samples", "ch01:a"] = look
    watched.on["done", "ch01:a"] = look
    done = watched.run("ch1")
    assert [pair.status for pair in done.pairs] == ["measured"] * 2
    assert seen[0] == "T"
    assert seen[1] != "T"


LOCKS = """
    import fcntl, pathlib, time

    def prepare(a):
        lock = open({lock!r}, "w")

        def step():
            if {holds}:
                fcntl.flock(lock, fcntl.LOCK_EX)
                pathlib.Path({note!r}).touch()
                time.sleep(0.5)
                fcntl.flock(lock, fcntl.LOCK_UN)
            return a * 2

        {waits} and fcntl.flock(lock, fcntl.LOCK_EX)
        return step  # torch.compile
"""


def test_one_that_was_stopped_with_a_lock_that_a_compiler_waits_for_goes_on(
    watched: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("common.python.settings.PATIENCE_S", 0.2)
    note, lock = str(tmp_path / "note"), str(tmp_path / "lock")
    small, large = "a.numel() < 1000", "a.numel() > 1000"
    watched.tree.pair("ch01:a", optimized=LOCKS.format(lock=lock, note=note, holds="False", waits=large))
    watched.tree.pair("ch01:b", optimized=LOCKS.format(lock=lock, note=note, holds=small, waits="False"))
    watched.on["wait", "ch01:a"] = lambda: until(Path(note).exists)
    done = watched.run("ch01:a", "ch01:b", timeout_multiplier=0.1)
    assert [pair.status for pair in done.pairs] == ["measured"] * 2
    assert watched.hires("ch01:b") == 1


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_reserve_whose_pair_is_gone_serves_no_other(watched: Watched) -> None:
    for key in ("ch01:a", "ch01:b", "ch01:c"):
        watched.tree.pair(key)
    watched.on["warm-up", "ch01:a"] = (watched.tree.root / "ch01" / "baseline_b.py").unlink
    done = watched.run("ch1")
    assert [pair.status for pair in done.pairs] == ["measured", "failed", "measured"]
    assert (watched.hires("ch01:b"), watched.hires("ch01:c")) == (1, 1)


def test_a_reserve_that_cannot_start_is_none(tree: Tree) -> None:
    def hire(index: int) -> Worker:
        raise OSError("no process more")

    nobody = Reserve("ch01:a", hire, [{}])
    nobody.settle()
    assert nobody.take(0) is None
    assert nobody.pids() == set()


@pytest.mark.parametrize(
    "fault",
    [
        doing("import os; os._exit(5)"),
        doing("import time; time.sleep(600)"),
        "\n1 / 0\n" + HONEST,
        doing("import os, signal; os.kill(os.getppid(), signal.SIGKILL)"),
    ],
    ids=["exits", "hangs", "import", "kills its reaper"],
)
def test_the_pair_after_a_fault_has_its_worker_all_the_same(watched: Watched, fault: str) -> None:
    watched.tree.pair("ch01:a", optimized=fault)
    watched.tree.pair("ch01:b")
    done = watched.run("ch1", timeout_multiplier=0.03)
    assert [pair.status for pair in done.pairs] == ["failed", "measured"]
    assert (watched.hires("ch01:a"), watched.hires("ch01:b")) == (1, 1)


@pytest.mark.parametrize(("refused", "turns"), [(1, False), (2, True)], ids=["fits by itself", "does not fit"])
def test_a_pair_that_fills_the_memory_has_it_to_itself(watched: Watched, refused: int, turns: bool) -> None:
    """The reserve, which holds a context, is given back, and only then do variants that do not fit run in turns."""
    watched.tree.pair("ch01:a", padded=FULL.format(refused=refused), optimized=HONEST)
    watched.tree.pair("ch01:b")
    held: list[dict[int, Worker]] = []
    watched.on["warm-up", "ch01:a"] = lambda: held.append(watched.suite.reserve._waiting[0]._workers)
    done = watched.run("ch1")
    assert held == [{}]
    assert [pair.status for pair in done.pairs] == ["measured"] * 2
    assert any("do not fit in memory together" in note for note in watched.tree.result("ch01:a").notes) == turns
    assert watched.hires("ch01:b") == 2


def test_each_variant_of_an_isolated_pair_has_its_own_interpreter_in_reserve(watched: Watched) -> None:
    noting = doing("import os; open(__file__ + '.pid', 'w').write(str(os.getpid()))")
    watched.tree.pair("ch01:a")
    watched.tree.pair("ch01:b", fields="isolated=True,", optimized=noting)
    seen: list[int] = []
    watched.on["done", "ch01:a"] = lambda: seen.extend(worker.pid for worker in watched.workers["ch01:b"])
    done = watched.run("ch1")
    assert [pair.status for pair in done.pairs] == ["measured"] * 2
    assert watched.hires("ch01:b") == len(set(seen)) == 3, "baseline, optimized and control"
    assert int((watched.tree.root / "ch01" / "optimized_b.py.pid").read_text()) in seen
    assert all(worker._process._start_method == "spawn" for worker in watched.workers["ch01:b"])


def test_interpreters_that_have_hardly_started_stand_still_and_become_ready_later(watched: Watched) -> None:
    watched.tree.pair("ch01:a", fields="isolated=True,")
    suite = watched.tree.open("ch1")
    suite.scratch = watched.tree.root / "scratch"
    suite._reserve(suite.pairs)
    ahead = suite.reserve.take("ch01:a")
    ahead.halt()
    workers = watched.workers["ch01:a"]
    assert [standing(worker) for worker in workers] == ["T"] * 3
    assert [ahead.take(index) for index in range(3)] == workers
    for worker in workers:
        worker.kill()


def standing(worker: Worker) -> str:
    return Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_of_several_in_reserve_only_the_one_that_died_is_replaced(watched: Watched) -> None:
    watched.tree.pair("ch01:a")
    watched.tree.pair("ch01:b", fields="isolated=True,")
    watched.on["done", "ch01:a"] = lambda: watched.signal(signal.SIGKILL, 1)
    done = watched.run("ch1")
    assert [pair.status for pair in done.pairs] == ["measured"] * 2
    assert watched.hires("ch01:b") == 4
    assert "was killed by SIGKILL" in watched.tree.result("ch01:b").log


@pytest.mark.parametrize(
    ("fields", "options"),
    [("gpus=2,", {}), ("gpus=2, isolated=True,", {}), ("", {"cold_start": True})],
    ids=["ranks", "isolated ranks", "cold start"],
)
def test_ranks_and_cold_starts_have_no_reserve(tree: Tree, fields: str, options: dict[str, Any]) -> None:
    tree.pair("ch01:a", fields=fields)
    suite = tree.open("ch1", **options)
    suite.scratch = tree.root / "scratch"
    suite._reserve(suite.pairs)
    assert suite.reserve.take("ch01:a") is NOBODY


def test_a_gpu_of_one_process_has_no_reserve(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    class Exclusive:
        def shared(self) -> bool:
            return False

    monkeypatch.setattr("common.python.runner.Monitor.open", lambda uuid: Exclusive())
    tree.pair("ch01:a")
    suite = tree.open("ch1")
    suite.scratch, suite.uuid = tree.root / "scratch", "12ab"
    suite._reserve(suite.pairs)
    assert suite.reserve.take("ch01:a") is NOBODY


def test_a_worker_in_reserve_is_no_foreign_process_on_the_gpu(tree: Tree) -> None:
    class Gauge:
        def read(self, own: set[int]) -> set[int]:
            return own

    class Held(Reserve):
        def pids(self) -> set[int]:
            return {7}

    several = Reserves()
    several.add(Held())
    for waiting in (Held(), several):
        place = (tree.root, tree.root, tree.root)
        settings = Settings(*place, "cpu", 0, "cpu", monitor=cast("Any", Gauge()), reserve=waiting)
        assert settings.read_gpus(lambda: {5}) == [{5, 7}]  # type: ignore[comparison-overlap]


@pytest.mark.parametrize("how", ["fail-fast", "Ctrl-C", "time up"])
def test_a_suite_that_ends_early_ends_its_reserve(watched: Watched, tmp_path: Path, how: str) -> None:
    watched.tree.pair("ch01:a", optimized=doing("import time; time.sleep(600)") if how == "time up" else HONEST)
    watched.tree.pair("ch01:b")
    options: dict[str, Any] = {"suite_timeout": 6} if how == "time up" else {"fail_fast": how == "fail-fast"}
    if how == "Ctrl-C":
        watched.on["samples", "ch01:a"] = interrupt
    if how == "fail-fast":
        watched.on["samples", "ch01:a"] = lambda: setattr(watched.suite, "failed", True)
    started = time.monotonic()
    done = watched.run("ch1", **options)
    assert time.monotonic() - started < 6 + late_s()
    assert "ch01:b" in done.not_run
    assert watched.hires("ch01:b") == 1
    assert not watched.workers["ch01:b"][0]._process.is_alive()
    assert not watched.suite.scratch.exists()


def interrupt() -> None:
    raise KeyboardInterrupt


def test_what_a_reserve_is_asked_is_no_work_of_its_pair(tree: Tree) -> None:
    tree.pair("ch01:a")
    tree.pair("ch01:b")
    suite = tree.open("ch1")
    suite.folder = tree.root / "again"
    for _, _, commands in noted(suite):
        asked = [command for command, _ in commands]
        assert asked[0] == "load"
        assert asked.count("load") == 1
        assert not {reserve.GET_READY, reserve.ANSWER} & set(asked)


def test_a_reserve_that_is_not_done_stands_still_while_its_predecessor_is_timed(watched: Watched) -> None:
    for key in ("ch01:a", "ch01:b"):
        watched.tree.pair(key)
    seen: dict[str, str] = {}

    def look(name: str) -> None:
        [worker] = watched.workers["ch01:b"]
        seen[name] = standing(worker)

    watched.on["samples", "ch01:a"] = lambda: look("timed")
    watched.on["why", "ch01:a"] = lambda: look("profiled")
    watched.on["done", "ch01:a"] = lambda: look("after")
    done = watched.run("ch1")
    assert [pair.status for pair in done.pairs] == ["measured"] * 2
    assert (seen["timed"], seen["profiled"]) == ("T", "T"), "a profile and a step's own metrics are times as well"
    assert seen["after"] != "T"
    assert watched.hires("ch01:b") == 1


@pytest.mark.parametrize("body", [HONEST, f"\n    # torch.compile\n{HONEST}"], ids=["plain", "compiles"])
def test_between_the_rounds_it_goes_on_and_only_compiling_stops_it(
    watched: Watched, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.tree.pair("ch01:a", optimized=body)
    watched.tree.pair("ch01:b")
    seen: list[tuple[str, bool]] = []
    each, block = Crew.each, Crew.block

    def look(crew: Crew, command: str, names: list[str], **asked: Any) -> dict[str, Any]:
        if seen:
            seen.append((command, standing(watched.workers["ch01:b"][0]) == "T"))
        return each(crew, command, names, **asked)

    def note(crew: Crew, *asked: Any) -> dict[str, Any]:
        seen.append(("block", standing(watched.workers["ch01:b"][0]) == "T"))
        return block(crew, *asked)

    monkeypatch.setattr(Crew, "each", look)
    monkeypatch.setattr(Crew, "block", note)
    done = watched.run("ch01:a", "ch01:b")
    assert [pair.status for pair in done.pairs] == ["measured"] * 2
    of_a = seen[: 1 + next(index for index, (command, _) in enumerate(seen) if command == "why")]
    assert {still for command, still in of_a if command == "prove"} == {False}
    assert {still for command, still in of_a if command == "prepare"} == {body != HONEST}
    assert {still for command, still in of_a if command == "block"} == {True}
    assert of_a[-1] == ("why", True)


@pytest.mark.parametrize("word", ["torch.compile", "autotune"])
def test_it_stands_still_while_its_predecessor_may_time_kernels_to_choose_one_and_goes_on_in_the_proof(
    watched: Watched, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.tree.pair("ch01:a", optimized=f"\n    # {word}\n{HONEST}")
    watched.tree.pair("ch01:b")
    seen: list[tuple[str, str]] = []
    each = Crew.each

    def look(crew: Crew, command: str, names: list[str], **asked: Any) -> dict[str, Any]:
        if asked.get("size", "") != "test" and len(seen) < 2 and (seen or command == "prepare"):
            seen.append((command, standing(watched.workers["ch01:b"][0])))
        return each(crew, command, names, **asked)

    monkeypatch.setattr(Crew, "each", look)
    done = watched.run("ch1")
    assert [pair.status for pair in done.pairs] == ["measured"] * 2
    assert [command for command, _ in seen] == ["prepare", "prove"]
    assert [state == "T" for _, state in seen] == [True, False]


@pytest.fixture
def deep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of three pairs wait, whatever this machine has room for."""
    monkeypatch.setattr("common.python.runner.depth", lambda machine: 3)


@pytest.mark.usefixtures("deep")
def test_the_workers_of_the_next_pairs_get_ready_and_all_stand_still_while_one_is_timed(watched: Watched) -> None:
    keys = ["ch01:a", "ch01:b", "ch01:c", "ch01:d", "ch01:e"]
    for key in keys:
        watched.tree.pair(key)
    waiting: dict[str, list[str]] = {}
    states: list[str] = []

    def look() -> None:
        waiting["a"] = watched.suite.reserve.pairs()
        states.extend(standing(watched.workers[key][0]) for key in waiting["a"])

    later: list[str] = []
    watched.on["samples", "ch01:a"] = look
    watched.on["done", "ch01:a"] = lambda: later.extend(standing(watched.workers[key][0]) for key in waiting["a"])
    watched.on["samples", "ch01:b"] = lambda: waiting.update(b=watched.suite.reserve.pairs())
    watched.on["samples", "ch01:d"] = lambda: waiting.update(d=watched.suite.reserve.pairs())
    done = watched.run("ch1")
    assert [pair.status for pair in done.pairs] == ["measured"] * 5
    assert waiting == {"a": keys[1:4], "b": keys[2:5], "d": keys[4:]}
    assert states == ["T"] * 3
    assert "T" not in later
    assert [watched.hires(key) for key in keys] == [1] * 5


SLOW_TO_IMPORT = "\n    import time\n    time.sleep({seconds})\n" + HONEST


@pytest.mark.usefixtures("deep")
def test_a_pair_whose_workers_take_long_to_get_ready_lets_others_go_before_it(watched: Watched) -> None:
    """The table has them in their order all the same, the journal as they were done; a wait is a pair's start."""
    watched.tree.pair("ch01:a")
    watched.tree.pair("ch01:b", optimized=SLOW_TO_IMPORT.format(seconds=6))
    watched.tree.pair("ch01:c")
    watched.tree.pair("ch01:d")
    done = watched.run("ch1")
    assert [pair for event, pair in watched.events if event == "done"] == ["ch01:a", "ch01:c", "ch01:d", "ch01:b"]
    assert [line["pair"] for line in watched.tree.journal()] == ["ch01:a", "ch01:c", "ch01:d", "ch01:b"]
    assert [(pair.key, pair.status) for pair in done.pairs] == [(f"ch01:{name}", "measured") for name in "abcd"]
    assert [pair.seconds["start"] < 2.0 for pair in done.pairs] == [True, False, True, True]
    assert done.seconds - sum(sum(pair.seconds.values()) for pair in done.pairs) < 1.0
    assert [watched.hires(pair.key) for pair in done.pairs] == [1] * 4


@pytest.mark.usefixtures("deep")
def test_where_nobody_is_ready_the_first_who_is_goes(watched: Watched) -> None:
    watched.tree.pair("ch01:a")
    watched.tree.pair("ch01:b", optimized=SLOW_TO_IMPORT.format(seconds=8))
    watched.tree.pair("ch01:c", optimized=SLOW_TO_IMPORT.format(seconds=3))
    done = watched.run("ch1")
    assert [pair for event, pair in watched.events if event == "done"] == ["ch01:a", "ch01:c", "ch01:b"]
    start_s = {pair.key: pair.seconds["start"] for pair in done.pairs}
    assert 1.0 < start_s["ch01:c"] < 5.0, "waiting for it is its start"


@pytest.mark.usefixtures("deep")
def test_a_pair_without_workers_is_not_passed_over(watched: Watched) -> None:
    for key in ("ch01:a", "ch01:b", "ch01:c", "ch01:d"):
        watched.tree.pair(key)
    watched.on["samples", "ch01:a"] = (watched.tree.root / "ch01" / "baseline_b.py").unlink
    watched.on["done", "ch01:a"] = lambda: watched.suite.reserve.keep(["ch01:c", "ch01:d"])
    watched.run("ch1")
    assert [pair for event, pair in watched.events if event == "done"] == ["ch01:a", "ch01:b", "ch01:c", "ch01:d"]


@pytest.mark.usefixtures("deep")
@pytest.mark.parametrize("limit", ["its time", "the suite's"])
def test_where_nobody_gets_ready_the_wait_has_an_end(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(reserve, "READY_S", 0.5 if limit == "its time" else 60.0)
    watched.tree.pair("ch01:a")
    for key in ("ch01:b", "ch01:c"):
        watched.tree.pair(key, optimized=SLOW_TO_IMPORT.format(seconds=600))
    more = {"timeout_multiplier": 0.03} if limit == "its time" else {"suite_timeout": 6.0}
    done = watched.run("ch1", **more)
    if limit == "its time":
        assert [pair.status for pair in done.pairs] == ["measured", "failed", "failed"]
        assert all("no answer within" in (pair.reason or "") for pair in done.pairs[1:])
    else:
        assert [pair.status for pair in done.pairs] == ["measured"]
        assert done.not_run == dict.fromkeys(["ch01:b", "ch01:c"], "the suite's time was up")
        assert done.seconds < 6.0 + late_s()


@pytest.mark.usefixtures("deep")
def test_a_pair_that_fills_the_memory_ends_all_that_wait(watched: Watched) -> None:
    watched.tree.pair("ch01:a", padded=FULL.format(refused=1), optimized=HONEST)
    for key in ("ch01:b", "ch01:c", "ch01:d"):
        watched.tree.pair(key)
    living: list[bool] = []
    following = ("ch01:b", "ch01:c", "ch01:d")
    watched.on["warm-up", "ch01:a"] = lambda: living.extend(
        watched.workers[key][0]._process.is_alive() for key in following
    )
    done = watched.run("ch1")
    assert [pair.status for pair in done.pairs] == ["measured"] * 4
    assert living == [False] * 3
    assert [watched.hires(key) for key in following] == [2] * 3


@pytest.mark.usefixtures("deep")
def test_who_waits_for_a_pair_that_is_gone_is_ended_and_another_waits(watched: Watched) -> None:
    keys = ["ch01:a", "ch01:b", "ch01:c", "ch01:d", "ch01:e"]
    for key in keys:
        watched.tree.pair(key)
    seen: list[list[str]] = []
    watched.on["warm-up", "ch01:a"] = (watched.tree.root / "ch01" / "baseline_b.py").unlink
    watched.on["samples", "ch01:c"] = lambda: seen.append(watched.suite.reserve.pairs())
    done = watched.run("ch1")
    assert [pair.status for pair in done.pairs] == ["measured", "failed", "measured", "measured", "measured"]
    assert seen == [["ch01:d", "ch01:e"]]
    assert not watched.workers["ch01:b"][0]._process.is_alive()


@pytest.mark.usefixtures("deep")
def test_nobody_waits_behind_a_pair_that_can_have_no_worker_in_reserve(tree: Tree) -> None:
    tree.pair("ch01:a")
    tree.pair("ch01:b", fields="gpus=2,")
    tree.pair("ch01:c")
    suite = tree.open("ch1")
    suite.scratch = tree.root / "scratch"
    suite._reserve(suite.pairs)
    assert suite.reserve.pairs() == ["ch01:a"]
    assert suite.reserve.close()
    assert not suite.reserve.close()


@pytest.mark.parametrize(
    ("cores", "memory_gib", "gpus_gib", "pairs"),
    [
        (16, 128, [139], 3),
        (64, 512, [80, 24], 1),
        (64, 512, [80], 2),
        (4, 128, [139], 1),
        (16, 30, [139], 1),
        (8, 64, [], 2),
    ],
)
def test_more_than_one_pair_has_workers_in_reserve_where_there_is_room(
    cores: int, memory_gib: float, gpus_gib: list[float], pairs: int
) -> None:
    gpus = [Gpu(name="GPU", uuid="1", sm=90, memory_gib=gib) for gib in gpus_gib]
    machine = Machine(
        hostname="h", system="Linux", cpu="c", cores=cores, memory_gib=memory_gib, numa_nodes=1, gpus=gpus
    )
    assert reserve.depth(machine) == pairs
