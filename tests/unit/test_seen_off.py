"""Whoever has been seen off is waited for, whatever interrupts the wait and whichever thread it is in."""

import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from common.python.launch import Launch
from common.python.leaving import AT_ONCE, Leaving
from common.python.reserve import READY_S, Reserve
from common.python.settings import Settings
from common.python.telemetry import Monitor
from common.python.worker import Worker, WorkerError


@dataclass(eq=False)
class Gone:
    """As much of a worker as is seen off; `meanwhile` happens while its end is waited for, the first time."""

    meanwhile: list[Callable[[], Any]] = field(default_factory=list)
    told: bool = False
    killed: bool = False

    def part(self) -> None:
        self.told = True

    def await_end(self, deadline: float) -> None:
        if self.meanwhile:
            self.meanwhile.pop()()

    def kill(self) -> None:
        self.killed = True


def workers(*found: Gone) -> list[Worker]:
    return cast("list[Worker]", list(found))


def interrupt() -> None:
    raise KeyboardInterrupt


def test_an_interrupt_while_workers_are_waited_for_loses_none_of_them() -> None:
    leaving, first, second = Leaving(), Gone([interrupt]), Gone()
    leaving.see_off(workers(first, second))
    with pytest.raises(KeyboardInterrupt):
        leaving.settle()
    assert leaving.settle()
    assert (first.killed, second.killed) == (True, True)
    assert not leaving.settle()


def test_an_interrupt_while_the_last_ones_are_waited_for_keeps_those_that_come_now() -> None:
    leaving, last, now = Leaving(), Gone([interrupt]), Gone()
    leaving.see_off(workers(last))
    with pytest.raises(KeyboardInterrupt):
        leaving.see_off(workers(now))
    assert now.told
    leaving.settle()
    assert (last.killed, now.killed) == (True, True)


def test_the_last_ones_are_gone_when_others_are_seen_off() -> None:
    leaving, last, now = Leaving(), Gone(), Gone()
    leaving.see_off(workers(last))
    leaving.see_off(workers(now))
    assert (last.killed, now.told, now.killed) == (True, True, False)


def test_those_seen_off_at_once_are_nobody_elses_to_wait_for() -> None:
    other, seen = Gone(), list[tuple[bool, bool]]()

    def meanwhile() -> None:
        AT_ONCE.see_off(workers(other))
        seen.append((other.killed, mine.killed))

    mine = Gone([meanwhile])
    AT_ONCE.see_off(workers(mine))
    assert seen == [(True, False)]
    assert mine.killed
    interrupted, hung = Gone([interrupt]), Gone()
    with pytest.raises(KeyboardInterrupt):
        AT_ONCE.see_off(workers(interrupted, hung))
    assert (interrupted.killed, hung.killed) == (True, True)
    assert not AT_ONCE.settle()


@pytest.mark.parametrize(("endpoint", "waits"), [(None, False), ("node0:29500", True)])
def test_a_leader_that_listens_where_the_next_one_will_is_gone_before(
    tmp_path: Path, endpoint: str | None, waits: bool
) -> None:
    leaving = Leaving()
    settings = Settings(
        tmp_path, tmp_path, tmp_path, "cpu", 0, "cpu", launch=Launch(rdzv_endpoint=endpoint), leaving=leaving
    )
    assert settings.way_out() is (AT_ONCE if waits else leaving)


def test_an_interrupt_while_workers_in_reserve_are_ended_loses_none_of_them() -> None:
    first, second = Idle([interrupt]), Idle()
    ahead = Reserve("ch01:a", lambda index: cast("Worker", (first, second)[index]), [{}] * 2)
    with pytest.raises(KeyboardInterrupt):
        ahead.close()
    assert ahead.close()
    assert (first.killed, second.killed) == (True, True)
    assert not ahead.close()


@dataclass(eq=False)
class Idle(Gone):
    """One in reserve; `meanwhile` happens while it is killed, and `waited` is how long others wait for its answer."""

    waited: float = 0.0
    what: str = "start"

    def ask(self, command: str) -> None:
        pass

    def answer(self, timeout_s: float) -> list[Any]:
        self.waited = timeout_s
        return []

    def answered(self) -> bool:
        return self.what == "reserve"

    def state(self) -> tuple[str, str]:
        return "workload", self.what

    def foretell(self, answered: list[Any]) -> None:
        pass

    def give_up(self) -> None:
        pass

    def kill(self) -> None:
        self.await_end(0.0)
        self.killed = True

    def halt(self) -> bool:
        return True

    def go_on(self) -> None:
        pass


def test_a_pair_is_ready_when_all_of_its_workers_are() -> None:
    first, second = Idle(what="reserve"), Idle()
    ahead = Reserve("ch01:a", lambda index: cast("Worker", (first, second)[index]), [{}] * 2)
    assert not ahead.ready()
    second.what = "reserve"
    assert ahead.ready()


@pytest.mark.parametrize("halted", [False, True])
def test_several_in_reserve_have_the_time_of_each(halted: bool) -> None:
    """They import torch side by side, on one core if need be."""
    found = [Idle(), Idle(), Idle()]
    ahead = Reserve("ch01:a", lambda index: cast("Worker", found[index]), [{}] * 3)
    if halted:
        ahead.halt()
    ahead.settle()
    assert [worker.waited for worker in found] == pytest.approx([3 * READY_S] * 3, abs=1.0)


@pytest.mark.parametrize(
    ("what", "up", "told"),
    [("proof", True, True), ("proof", False, False), ("rehearsal", True, False), ("start", True, False)],
)
def test_only_a_hang_in_the_code_of_the_pair_is_told_of_and_only_when_its_time_is_up(
    what: str, up: bool, told: bool, tmp_path: Path
) -> None:
    class Hanging(Idle):
        log = tmp_path / "log"

        def answer(self, timeout_s: float) -> list[Any]:
            raise WorkerError("hung", "optimized_b", "no answer")

    hanging = Hanging(what=what)
    ahead = Reserve("ch01:b", lambda index: cast("Worker", hanging), [{}])
    deadline = time.monotonic() + (0 if up else 60)
    with pytest.raises(WorkerError) if told else contextlib.nullcontext():
        assert ahead.take(0, deadline) is None
    assert hanging.killed


GIB = 2**30


@pytest.mark.parametrize(
    ("free", "waits"),
    [([], True), ([9 * GIB], False), ([7 * GIB], True), ([9 * GIB, None], True), ([9 * GIB, GIB], True)],
)
def test_who_is_not_in_reserve_is_hired_when_the_last_pairs_worker_is_gone_unless_there_is_room_for_both(
    free: list[int | None], waits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That one's memory may leave no room for a context, and may be why there is nobody in reserve."""
    leaving, last, seen = Leaving(), Gone(), []
    leaving.see_off(workers(last))
    monkeypatch.setattr(Settings, "hire", lambda *how: seen.append(last.killed))
    ready = Idle()
    ahead = Reserve("ch01:a", lambda index: cast("Worker", ready), [{}])
    gpus = [cast("Monitor", SimpleNamespace(free_bytes=lambda found=found: found)) for found in free]
    first, further = (gpus or [None])[0], tuple(gpus[1:])
    settings = Settings(tmp_path, tmp_path, tmp_path, "cpu", 0, "cpu", ahead=ahead, leaving=leaving)
    settings = replace(settings, monitor=first, further_monitors=further)
    pair = cast("Any", None)
    assert settings.worker(pair, 0, False, math.inf) is cast("Worker", ready)
    assert not last.killed
    settings.worker(pair, 0, False, math.inf)
    assert seen == [waits]
