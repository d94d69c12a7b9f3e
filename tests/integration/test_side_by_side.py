"""Pairs are at work side by side, and each is timed alone: real workers, on whatever machine."""

import errno
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from small_tree import HONEST, Tree, doing, late_s

from common.python.base.reaper import parent_of
from common.python.base.results import PairResult, Summary
from common.python.run.last_run import LastRuns
from common.python.run.session import Session
from common.python.run.settings import Settings
from common.python.run.suite import Suite
from common.python.run.turns import Turns
from common.python.workers.process import Worker
from common.python.workers.sharing import Share
from common.python.workers.worker_pool import Crew

KEYS = ("ch01:a", "ch01:b", "ch01:c")


@dataclass
class Watched:
    """A suite over a tree, and what happened in it: phases of pairs, hires, and who had the machine in which phase."""

    tree: Tree
    events: list[tuple[str, str]] = field(default_factory=list)
    workers: dict[str, list[Worker]] = field(default_factory=dict)
    alone: list[str] = field(default_factory=list)
    siblings: list[bool] = field(default_factory=list)  # whether those of a worker that asked to be alone stood still
    on: dict[tuple[str, str], Callable[[], None]] = field(default_factory=dict)  # at the first such event
    suite: Suite = field(init=False)

    def run(self, *targets: str, jobs: int = 3, **options: Any) -> Summary:
        self.suite = self.tree.open(*targets, show=self.show, jobs=jobs, **options)
        return self.suite.run()

    def show(self, phase: str, result: PairResult) -> None:
        self.events.append((phase, result.key))
        if act := self.on.pop((phase, result.key), None):
            act()

    def hires(self, pair: str) -> int:
        return len(self.workers.get(pair, []))


@pytest.fixture
def watched(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    """Everything about it is real; a test that is done has left no worker."""
    seen = Watched(tree)
    hire, alone = Settings.hire, Share.alone

    def note_hire(settings: Settings, pair: Any, *how: Any) -> Worker:
        worker = hire(settings, pair, *how)
        seen.workers.setdefault(pair.key, []).append(worker)
        return worker

    @contextmanager
    def note_alone(share: Share, *how: Any) -> Iterator[bool]:
        with alone(share, *how) as others:
            seen.alone.append(share.doing)
            seen.siblings += [standing(worker) for worker in share.workers if worker not in how] if how else []
            yield others

    monkeypatch.setattr(Settings, "hire", note_hire)
    monkeypatch.setattr(Share, "alone", note_alone)
    yield seen
    assert not any(worker._process.is_alive() for workers in seen.workers.values() for worker in workers)


def standing(worker: Worker) -> bool:
    """Whether it is stopped."""
    return Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def until(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("fields", ["", "isolated=True,"], ids=["forked", "with interpreters of their own"])
def test_several_are_at_work_and_whoever_is_timed_is_so_alone(watched: Watched, fields: str) -> None:
    for key in KEYS:
        watched.tree.pair(key, fields=fields)
    seen: list[bool] = []

    def look(own: str) -> None:
        others = [worker for key, workers in watched.workers.items() if key != own for worker in workers]
        seen.extend(standing(worker) for worker in others if worker._process.is_alive())

    for key in KEYS:
        watched.on["samples", key] = lambda key=key: look(key)  # type: ignore[misc]
    done = watched.run("ch1")
    assert [pair.key for pair in done.pairs] == list(KEYS)
    assert [pair.status for pair in done.pairs] == ["measured"] * 3
    firsts = [watched.events.index(("start", key)) for key in KEYS]
    assert max(firsts) < min(watched.events.index(("done", key)) for key in KEYS)
    assert len(seen) >= 2
    assert all(seen)
    assert set(watched.alone) >= {"warm-up"}
    assert sorted(line["pair"] for line in watched.tree.journal()) == list(KEYS)
    assert sum(sum(pair.seconds.values()) for pair in done.pairs) <= done.seconds


@pytest.mark.parametrize(("jobs", "enough_s"), [(1, 0.25), (2, 0.5)])
def test_proving_has_more_time_beside_others(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, jobs: int, enough_s: float
) -> None:
    seen: list[float] = []
    each = Crew.each

    def note(crew: Crew, command: str, names: list[str], **arguments: Any) -> dict[str, Any]:
        if arguments.get("enough_s"):
            seen.append(arguments["enough_s"])
        return each(crew, command, names, **arguments)

    monkeypatch.setattr(Crew, "each", note)
    watched.tree.pair("ch01:a")
    watched.tree.pair("ch01:b", optimized=SLOW)
    watched.run("ch1", jobs=jobs)
    assert seen[0] == enough_s


def test_one_after_the_other_they_keep_their_order(watched: Watched) -> None:
    for key in KEYS:
        watched.tree.pair(key)
    watched.run("ch1", jobs=1)
    found = dict.fromkeys((key, phase) for phase, key in watched.events if phase in ("start", "done"))
    assert list(found) == [(key, phase) for key in KEYS for phase in ("start", "done")]


def test_what_a_worker_has_started_stands_still_with_it(watched: Watched, tmp_path: Path) -> None:
    note, gone_on = tmp_path / "note", tmp_path / "gone on"
    body = f"""
import pathlib, subprocess, sys, time
started = subprocess.Popen([sys.executable, "-c", "while True: pass"])
pathlib.Path({str(note)!r}).write_text(str(started.pid))
while not pathlib.Path({str(gone_on)!r}).exists():
    time.sleep(0.01)
"""
    watched.tree.pair("ch01:a")
    watched.tree.pair("ch01:b", optimized=body + dedent(HONEST))
    seen: list[str] = []

    def look() -> None:
        seen.append(Path(f"/proc/{note.read_text()}/stat").read_text().rpartition(")")[2].split()[0])

    watched.on["prepare", "ch01:a"] = lambda: until(lambda: note.exists() and bool(note.read_text()))
    watched.on["samples", "ch01:a"] = look
    watched.on["done", "ch01:a"] = lambda: (look(), gone_on.touch())[1]  # type: ignore[func-returns-value]
    done = watched.run("ch1", jobs=2)
    assert [pair.status for pair in done.pairs] == ["measured"] * 2
    assert seen[0] == "T"
    assert seen[1] != "T"


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
def test_a_fault_beside_it_is_not_felt_by_a_pair(watched: Watched, fault: str) -> None:
    watched.tree.pair("ch01:a", optimized=fault)
    watched.tree.pair("ch01:b")
    watched.tree.pair("ch01:c")
    done = watched.run("ch1", timeout_multiplier=0.05)
    assert [pair.status for pair in done.pairs] == ["failed", "measured", "measured"]
    assert watched.hires("ch01:b") == 1


def test_the_longest_of_the_last_suite_is_first_in_the_next_whatever_others_had_the_machine_for(
    watched: Watched,
) -> None:
    """a has it for a second, in which b stands still, and c works for half of one in each of its preparings."""
    moved = watched.tree.root / "moved"
    waits = f"import time, pathlib\nwhile not pathlib.Path({str(moved)!r}).exists(): time.sleep(0.01)"
    watched.tree.pair("ch01:a")
    watched.tree.pair("ch01:b", optimized=doing(waits))
    watched.tree.pair("ch01:c", optimized=SLOW)
    times: dict[str, float] = {}

    def have_it() -> None:
        time.sleep(1.0)
        moved.touch()

    watched.on["samples", "ch01:a"] = have_it
    for phase in ("start", "done"):
        watched.on[phase, "ch01:b"] = lambda phase=phase: times.setdefault(phase, time.monotonic())  # type: ignore[misc]
    watched.run("ch1", jobs=2)
    runs = LastRuns(watched.suite.options.artifacts_dir).known()
    took = {key.split()[0]: run.seconds for key, run in runs.items()}
    assert {run.gib for run in runs.values()} == {0.0}, "of no GPU"
    assert took["ch01:b"] <= times["done"] - times["start"] - 0.95
    assert max(took, key=lambda key: took[key]) == "ch01:c"
    watched.events.clear()
    watched.run("ch1", jobs=2)
    assert watched.events[0] == ("start", "ch01:c")


LACKS = """
    from pathlib import Path

    def prepare(a):
        calls = []
        {at!r} == "prepare" and lacks()

        def step():
            calls.append({at!r})
            calls in (["first step"], ["later step"] * 2) and lacks()
            return a * 2

        return step

    def lacks():
        if Path({beside!r}).exists():
            raise torch.OutOfMemoryError("CUDA out of memory: others have it")
"""
SLOW = doing("import time; a.numel() < 1000 and time.sleep(0.5)")


@pytest.mark.parametrize("where", ["prepare", "first step", "later step"])
def test_a_pair_that_lacks_memory_beside_others_is_run_again_by_itself(watched: Watched, where: str) -> None:
    beside = watched.tree.root / "beside"
    body = LACKS.format(beside=str(beside), at=where)
    watched.tree.pair("ch01:a", optimized=body)
    watched.tree.pair("ch01:b", optimized=SLOW)
    beside.touch()
    watched.on["done", "ch01:b"] = beside.unlink
    done = watched.run("ch1", jobs=2)
    assert [pair.status for pair in done.pairs] == ["measured"] * 2
    assert (watched.hires("ch01:a"), watched.hires("ch01:b")) == (2, 1)
    assert not any("do not fit" in note for note in done.pairs[0].notes)
    assert [key for phase, key in watched.events if phase == "done"] == ["ch01:b", "ch01:a"]


def test_one_that_lacks_it_by_itself_too_has_failed(watched: Watched) -> None:
    always = str(watched.tree.root)
    watched.tree.pair("ch01:a", optimized=LACKS.format(beside=always, at="first step"))
    watched.tree.pair("ch01:b", optimized=SLOW)
    done = watched.run("ch1", jobs=2)
    assert [pair.status for pair in done.pairs] == ["failed", "measured"]
    assert "out of memory" in (done.pairs[0].reason or "")
    assert watched.hires("ch01:a") == 2


LEAVES = """
import os, time
from multiprocessing.util import Finalize  # a forked worker ends without atexit
from pathlib import Path

def leave():
    Path(__file__ + ".leaving").write_text(str(os.getpid()))
    time.sleep({seconds})
    Path(__file__ + ".gone").touch()

Finalize(None, leave, exitpriority=0)
"""


@pytest.mark.parametrize("seconds", [0.3, 600])
def test_the_next_pair_begins_while_a_worker_ends_and_is_timed_when_it_is_gone(
    watched: Watched, seconds: float
) -> None:
    watched.tree.pair("ch01:a", optimized=LEAVES.format(seconds=seconds) + dedent(HONEST))
    watched.tree.pair("ch01:b")
    folder, beside = watched.tree.root / "ch01", dict[str, bool]()

    def look(phase: str) -> None:
        note = folder / "optimized_a.py.leaving"
        until(lambda: note.exists() and bool(note.read_text()))
        beside[phase] = parent_of(int(note.read_text())) is not None

    watched.on["start", "ch01:b"] = lambda: look("start")
    watched.on["samples", "ch01:b"] = lambda: look("samples")
    done = watched.run("ch1", jobs=1)
    assert [pair.status for pair in done.pairs] == ["measured"] * 2
    assert beside == {"start": True, "samples": False}
    assert (folder / "optimized_a.py.gone").exists() == (seconds < 1), "one that does not end is killed"


@pytest.mark.parametrize("who", ["baseline", "optimized"])
def test_a_pair_after_one_that_filled_the_memory_waits_for_its_worker(watched: Watched, who: str) -> None:
    gone = watched.tree.root / "ch01" / "optimized_a.py.gone"
    needs = f"""
from pathlib import Path

def prepare(a):
    if not Path({str(gone)!r}).exists():
        raise torch.OutOfMemoryError("the last pair's worker still holds the memory")
    return lambda: a * 2
"""
    watched.tree.pair("ch01:a", optimized=LEAVES.format(seconds=0.4) + dedent(HONEST))
    watched.tree.pair("ch01:b", **{"optimized": HONEST, who: needs})
    done = watched.run("ch1", jobs=1)
    assert [pair.status for pair in done.pairs] == ["measured"] * 2
    assert not any("do not fit" in note for note in done.pairs[1].notes)
    assert watched.hires("ch01:b") == 1


def test_where_the_gpu_is_for_one_process_a_pair_waits_for_the_end_of_the_last_ones(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Apart(Turns):
        def __init__(self, *about: Any) -> None:
            super().__init__(*about)
            self.lingers = False

    monkeypatch.setattr("common.python.run.suite.Turns", Apart)
    watched.tree.pair("ch01:a", optimized=LEAVES.format(seconds=0.3) + dedent(HONEST))
    watched.tree.pair("ch01:b")
    gone: list[bool] = []
    watched.on["start", "ch01:b"] = lambda: gone.append((watched.tree.root / "ch01/optimized_a.py.gone").exists())
    watched.run("ch1", jobs=1)
    assert gone == [True]


@pytest.mark.parametrize("how", ["fail-fast", "Ctrl-C once", "Ctrl-C twice", "time up", "a listener that breaks"])
def test_a_suite_that_ends_early_ends_all_that_are_at_work(watched: Watched, how: str) -> None:
    hangs = how not in ("fail-fast", "Ctrl-C once")
    watched.tree.pair("ch01:a")
    watched.tree.pair("ch01:b", optimized=doing("import time; time.sleep(600)") if hangs else SLOW)
    for key in ("ch01:c", "ch01:d"):
        watched.tree.pair(key)
    options: dict[str, Any] = {"suite_timeout": 8} if how == "time up" else {"fail_fast": how == "fail-fast"}

    def act() -> None:
        if how == "fail-fast":
            watched.suite.failed = True
        elif how == "Ctrl-C once":
            watched.suite.asked_to_stop = lambda: True
        elif how == "Ctrl-C twice":
            raise KeyboardInterrupt
        elif how == "a listener that breaks":
            raise BrokenPipeError

    watched.on["samples", "ch01:a"] = act
    started = time.monotonic()
    if how == "a listener that breaks":
        with pytest.raises(BrokenPipeError):
            watched.run("ch1", jobs=2)
        return
    done = watched.run("ch1", jobs=2, **options)
    assert time.monotonic() - started < 8 + late_s()
    done_keys = [pair.key for pair in done.pairs]
    if hangs:
        assert "ch01:b" in done.not_run
        assert how != "time up" or done.not_run["ch01:b"] == "the suite's time was up while optimized_b was at work"
    else:
        assert done_keys == ["ch01:a", "ch01:b"], "those at work are finished"
        assert sorted(done.not_run) == ["ch01:c", "ch01:d"]
    assert done.interrupted == how.startswith("Ctrl-C")
    assert not watched.suite.scratch.exists()


CHOOSES = """
    import os, pathlib

    def prepare(a):
        from torch._inductor.runtime.benchmarking import benchmarker

        if a.numel() > 1000:
            benchmarker.benchmark_cpu({timed}, warmup=0, rep=1)
        return lambda: a * 2

    def waits():
        import fcntl
        fcntl.flock(open({lock!r}, "w"), fcntl.LOCK_EX)
"""


def test_while_kernels_are_timed_to_choose_one_others_stand_still(watched: Watched) -> None:
    watched.tree.pair("ch01:a", optimized=CHOOSES.format(timed="lambda: a * 2", lock=""))
    watched.tree.pair("ch01:b")
    done = watched.run("ch1", jobs=2)
    assert [pair.status for pair in done.pairs] == ["measured"] * 2
    assert watched.alone.count("prepare") == len({block.round for block in watched.tree.result("ch01:a").blocks})
    assert set(watched.alone) == {"prepare", "warm-up", "why"}


def test_so_do_the_other_workers_of_its_own_pair(watched: Watched) -> None:
    watched.tree.pair("ch01:a", fields="isolated=True,", optimized=CHOOSES.format(timed="lambda: a * 2", lock=""))
    watched.tree.pair("ch01:b")
    done = watched.run("ch1", jobs=2)
    assert [pair.status for pair in done.pairs] == ["measured"] * 2
    rounds = len({block.round for block in watched.tree.result("ch01:a").blocks})
    assert watched.siblings == [True] * 2 * (rounds + 2), "in each round two, and at two profiled steps"


TELLS = """
    import pathlib, time
    from common.python.workload import Metered

    note, told = pathlib.Path({note!r}), pathlib.Path({told!r})

    def prepare(a):
        until = time.monotonic() + 60
        while not note.exists() and time.monotonic() < until:
            time.sleep(0.01)

        def metrics():
            before = note.read_text()
            time.sleep(0.3)
            moved = note.read_text() != before
            told.touch()
            return {{"others moved": float(moved)}}

        return Metered(lambda: a * 2, metrics)
"""


@pytest.mark.parametrize("fields", ["", "isolated=True,"], ids=["forked", "with interpreters of their own"])
def test_what_a_step_has_to_tell_is_asked_while_others_stand_still(
    watched: Watched, tmp_path: Path, fields: str
) -> None:
    """Beside others on an H100 a peer told 626 ms of what took 14, and a variant 2,083 tokens/s for 8,914."""
    note, told = str(tmp_path / "note"), str(tmp_path / "told")
    watched.tree.pair("ch01:a", fields=fields, optimized=TELLS.format(note=note, told=told))
    watched.tree.pair("ch01:b", optimized=COUNTS.format(note=note, moved=told))
    done = watched.run("ch1", jobs=2)
    assert [pair.status for pair in done.pairs] == ["measured"] * 2
    [row] = [row for row in done.pairs[0].variants if row.name == "optimized_a"]
    assert row.why is not None
    assert row.why.metrics["others moved"] == 0.0


COUNTS = """
    import pathlib, time

    def prepare(a):
        until = time.monotonic() + 60
        while not pathlib.Path({moved!r}).exists() and time.monotonic() < until:
            pathlib.Path({note!r}).write_text(str(time.monotonic()))
            time.sleep(0.01)
        return lambda: a * 2
"""
LOOKS = (
    CHOOSES.replace("            benchmarker", "            beside(0.0, 40.0)\n            benchmarker").replace(
        "        return lambda",
        "            beside(time.monotonic() + 0.2, 10.0)\n            moved.touch()\n        return lambda",
    )
    + """
    import time
    note, moved = pathlib.Path({note!r}), pathlib.Path({moved!r})

    def beside(since, patience_s):
        until = time.monotonic() + patience_s
        while not moved.exists() and (not note.exists() or float(note.read_text() or 0.0) <= since):
            if time.monotonic() > until:
                moved.touch()  # the other one need not go on
                raise RuntimeError("nobody is at work beside this one")
            time.sleep(0.01)
"""
)


def test_they_go_on_as_soon_as_the_kernel_is_chosen(watched: Watched, tmp_path: Path) -> None:
    note, moved = str(tmp_path / "note"), str(tmp_path / "moved")
    watched.tree.pair("ch01:a", optimized=LOOKS.format(timed="lambda: a * 2", lock="", note=note, moved=moved))
    watched.tree.pair("ch01:b", optimized=COUNTS.format(note=note, moved=moved))
    done = watched.run("ch1", jobs=2)
    assert [pair.status for pair in done.pairs] == ["measured"] * 2, done.pairs[0].reason


HOLDS = """
    import fcntl, pathlib, time

    def prepare(a):
        lock = open({lock!r}, "w")

        def step():
            if a.numel() < 1000:
                fcntl.flock(lock, fcntl.LOCK_EX)
                pathlib.Path({note!r}).touch()
                time.sleep(0.5)
                fcntl.flock(lock, fcntl.LOCK_UN)
            return a * 2

        return step
"""


def test_one_that_was_stopped_with_a_lock_that_whoever_chooses_waits_for_goes_on(
    watched: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("common.python.workers.process.PATIENCE_S", 0.2)
    note, lock = str(tmp_path / "note"), str(tmp_path / "lock")
    watched.tree.pair("ch01:a", optimized=CHOOSES.format(timed="waits", lock=lock))
    watched.tree.pair("ch01:b", optimized=HOLDS.format(lock=lock, note=note))
    done = watched.run("ch01:a", "ch01:b", timeout_multiplier=0.2)
    assert [pair.status for pair in done.pairs] == ["measured"] * 2


def test_a_worker_that_dies_while_it_has_the_machine_lets_others_go_on(watched: Watched) -> None:
    watched.tree.pair("ch01:a", optimized=CHOOSES.format(timed="lambda: os._exit(3)", lock=""))
    watched.tree.pair("ch01:b")
    done = watched.run("ch1", jobs=2)
    assert [pair.status for pair in done.pairs] == ["failed", "measured"]


def test_a_worker_knows_how_long_it_was_stopped(tree: Tree) -> None:
    tree.pair("ch01:a")
    worker = Worker(tree.root, tree.root / "scratch", tree.root / "log", {"seed": 0, "reproducible": False})
    try:
        worker.call("load", 60, baseline="ch01.baseline_a", modules={"optimized_a": "ch01.optimized_a"}, size="cpu")
        for _ in range(2):
            worker.stop()
            worker.stopped()
            assert standing(worker)
            time.sleep(0.2)
            worker.go_on()
            worker.go_on()
        assert worker._board.stopped_s() == pytest.approx(0.4, abs=0.1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "pwrite", full)
            worker.stop()
            worker.go_on()
        worker.ask("prepare", names=["optimized_a"], size="cpu", dtypes=[])
        assert worker.answer(60)["failures"] == {}
    finally:
        worker.kill()


def test_those_that_have_hardly_begun_are_waited_for_together(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fresh interpreter needs 0.3 s to say which process it is, and more where the cores are busy."""
    settings = {"seed": 0, "reproducible": False}
    folders = [tree.root / name for name in "abc"]
    workers = [Worker(tree.root, folder / "scratch", folder / "log", settings, fresh=True) for folder in folders]
    monkeypatch.setattr("common.python.workers.process.SAY_S", 30.0)
    try:
        for worker in workers:
            worker.stop()
        for worker in workers:
            worker.stopped()
        assert all(worker.pid and standing(worker) for worker in workers)
        monkeypatch.setattr(Worker, "pid", property(lambda worker: 0))
        monkeypatch.setattr("common.python.workers.process.SAY_S", 0.5)
        began = time.monotonic()
        for worker in workers:
            worker.stop()
        for worker in workers:
            worker.stopped()
        assert 0.5 <= time.monotonic() - began < 1.0
    finally:
        for worker in workers:
            worker.kill()


def full(*what: Any) -> int:
    raise OSError(errno.ENOSPC, "no space left on device")


def test_processes_of_all_sessions_are_known_on_the_gpu(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in KEYS[:2]:
        watched.tree.pair(key)
    seen: list[set[int]] = []
    read = Settings.read_gpus

    def note(settings: Settings, own: Callable[[], set[int]]) -> Any:
        seen.append(own())
        return read(settings, own)

    monkeypatch.setattr(Settings, "read_gpus", note)
    watched.run("ch1", jobs=2)
    pids = {worker._pid for workers in watched.workers.values() for worker in workers}
    assert pids in seen


def test_a_session_by_itself_ends_its_worker(watched: Watched) -> None:
    watched.tree.pair("ch01:a")
    ended: list[bool] = []
    run = Session.run

    def noting(session: Session) -> PairResult:
        session.settings = Settings(**{**vars(session.settings), "share": None})
        result = run(session)
        ended.append(not watched.workers["ch01:a"][0]._process.is_alive())
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "run", noting)
        watched.run("ch1", jobs=1)
    assert ended == [True]


def test_a_signal_that_stops_a_worker_is_the_pairs_own_hang(watched: Watched) -> None:
    watched.tree.pair("ch01:a", optimized=doing(f"import os; os.kill(os.getpid(), {int(signal.SIGSTOP)})"))
    watched.tree.pair("ch01:b")
    done = watched.run("ch1", jobs=1, timeout_multiplier=0.03)
    assert [pair.status for pair in done.pairs] == ["failed", "measured"]
    assert "; a signal had stopped it" in (done.pairs[0].reason or ""), "there is no stack in its log"
    assert re.search(r"^\d+: \S+, state T, in \S+$", done.pairs[0].log, re.M)
