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


def test_each_time_is_that_of_the_rank_that_took_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_reduce(longest: torch.Tensor, operation: object, group: object) -> None:
        assert (operation, group, longest.dtype) == (torch.distributed.ReduceOp.MAX, "harness", torch.float64)
        torch.maximum(longest, torch.tensor([2.0, 2.0], dtype=torch.float64), out=longest)

    monkeypatch.setattr(ranks.dist, "all_reduce", all_reduce)
    assert Ranks(0, 2, group="harness").slowest([1.0, 1 + 2**-40 + 2]) == [2.0, 3 + 2**-40]  # no digit is lost
    assert ALONE.slowest([1.0, 3.0]) == [1.0, 3.0]
