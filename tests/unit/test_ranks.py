"""Ranks that agree, without a process for each: what they say to each other is put into their mouths."""

from typing import Any

import pytest
import torch

from common.python.proof import ranks
from common.python.proof.ranks import ALONE, Ranks


@pytest.mark.parametrize(
    ("said", "agreed"),
    [
        ([None, None], None),
        (["wrong", "wrong"], "wrong"),
        ([None, "wrong"], "wrong, on rank 1"),
        (["off by 1", "off by 2"], "off by 1, on rank 0"),
    ],
)
def test_one_reason_is_everybodys(monkeypatch: pytest.MonkeyPatch, said: list[Any], agreed: str | None) -> None:
    monkeypatch.setattr(ranks.dist, "all_gather_object", lambda into, mine, group: into.__setitem__(slice(None), said))
    for rank in range(2):
        assert Ranks(rank, 2).agree(said[rank]) == agreed


@pytest.mark.parametrize("theirs", [False, True])
def test_either_asks_the_others(monkeypatch: pytest.MonkeyPatch, theirs: bool) -> None:
    def all_reduce(said: torch.Tensor, operation: object, group: object) -> None:
        said.fill_(max(int(said), int(theirs)))

    monkeypatch.setattr(ranks.dist, "all_reduce", all_reduce)
    assert Ranks(0, 2).either(False) is theirs
    assert Ranks(0, 2).either(True) is True


def test_the_least_of_all_values_is_everybodys(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_reduce(smallest: torch.Tensor, operation: object, group: object) -> None:
        assert operation == torch.distributed.ReduceOp.MIN
        smallest.fill_(min(float(smallest), 7.5))

    monkeypatch.setattr(ranks.dist, "all_reduce", all_reduce)
    assert [Ranks(0, 2).least(value) for value in (9.0, 3.0, None)] == [7.5, 3.0, None]
    assert ALONE.least(9.0) == 9.0


def test_each_time_is_that_of_the_rank_that_took_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_reduce(longest: torch.Tensor, operation: object, group: object) -> None:
        assert (operation, group, longest.dtype) == (torch.distributed.ReduceOp.MAX, "harness", torch.float64)
        torch.maximum(longest, torch.tensor([2.0, 2.0], dtype=torch.float64), out=longest)

    monkeypatch.setattr(ranks.dist, "all_reduce", all_reduce)
    assert Ranks(0, 2, group="harness").slowest([1.0, 1 + 2**-40 + 2]) == [2.0, 3 + 2**-40]  # no digit is lost
    assert ALONE.slowest([1.0, 3.0]) == [1.0, 3.0]


def test_a_rank_leaves_a_meeting_when_the_last_one_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    counters = memoryview(bytearray(16)).cast("q")
    yields: list[int] = []

    def others_turn() -> None:
        yields.append(counters[0])
        if len(yields) == 3:
            counters[1] = 1

    monkeypatch.setattr(ranks.os, "sched_yield", others_turn)
    first = Ranks(0, 2, counters=counters)
    first.meet()
    assert yields == [1, 1, 1]
    counters[1] = 2  # it is at the next meeting already
    first.meet()
    assert list(counters) == [2, 2]


def test_alone_nothing_is_said_and_nobody_is_waited_for() -> None:
    ALONE.meet()
    ALONE.enqueue_meeting()
    assert (ALONE.agree("wrong"), ALONE.agree(None)) == ("wrong", None)
    assert (ALONE.either(True), ALONE.either(False)) == (True, False)
