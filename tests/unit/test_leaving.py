"""Whoever has been seen off is waited for, whatever interrupts the wait and whichever thread it is in."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from common.python.launch import Launch
from common.python.leaving import AT_ONCE, Leaving
from common.python.settings import Settings
from common.python.worker import Worker


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
    other, seen = Gone(), []
    mine = Gone([lambda: (AT_ONCE.see_off(workers(other)), seen.append((other.killed, mine.killed)))])
    AT_ONCE.see_off(workers(mine))
    assert seen == [(True, False)]
    assert mine.killed
    interrupted = Gone([interrupt])
    with pytest.raises(KeyboardInterrupt):
        AT_ONCE.see_off(workers(interrupted))
    AT_ONCE.see_off(workers())
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
