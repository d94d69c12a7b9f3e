"""A cost above what its tensors hold or its reference multiplies is named; one that is right, or far below, is not."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from common.python.base.results import Cost
from common.python.verify.cost_audit import findings
from common.python.workload import Draw, Inputs, Workload

AGAIN = ": state passes= where steps in turn need them again"


def inputs(draw: Draw, n: int, k: int) -> Inputs:
    """2,048 bytes of a and b at test size, and as many that the reference does not look at."""
    return {"a": draw.normal(n, k), "b": draw.normal(k, n), "spare": draw.normal(2 * n, k)}


def audit(tmp_path: Path, cost: Any, reference: Any = lambda a, b, spare: a @ b, **more: Any) -> list[str]:
    sizes = {"bench": {"n": 4096, "k": 4096}, "test": {"n": 8, "k": 32}}
    how = {"tolerance": 1e-5, "clock": "end_to_end"} | more
    workload = Workload(inputs=inputs, reference=reference, cost=cost, sizes=sizes, **how)
    return findings(workload, torch.device("cpu"), tmp_path)


def right(n: int, k: int, **other: Any) -> Cost:
    return Cost(**{"flops": 2 * n * n * k, "read": 8 * n * k, "write": 4 * n * n} | other)


def test_a_cost_that_is_what_the_problem_needs_or_less_is_right(tmp_path: Path) -> None:
    assert audit(tmp_path, right) == []
    assert audit(tmp_path, lambda n, k: [right(n, k, read=0), right(n, k)]) == [], "two phases may need them twice"
    assert audit(tmp_path, lambda n, k: right(n, k, flops=n * n * k, read=0, write=0)) == []


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"read": 2049}, "its cost has read=2,049, above the 2,048 bytes of its inputs, at test size"),
        ({"write": 300}, "its cost has write=300, above the 256 bytes of its outputs, at test size"),
        (
            {"pcie_bytes": 3e3},
            "its cost has pcie_bytes=3,000, above the 2,304 bytes of its inputs and outputs, at test size",
        ),
        ({"flops": 4100}, "its cost has flops=4,100, above the 4,096 FLOPs of its reference, at test size"),
    ],
)
def test_a_cost_above_its_need_is_named_unless_passes_covers_it(
    other: dict[str, float], told: str, tmp_path: Path
) -> None:
    assert audit(tmp_path, lambda n, k: right(8, 32, **other)) == [told + AGAIN]
    assert audit(tmp_path, lambda n, k: right(8, 32, passes=2, **other)) == []


def test_a_cost_that_grows_faster_than_its_tensors_shows_when_a_figure_is_doubled(tmp_path: Path) -> None:
    told = "its cost has write=512, above the 256 bytes of its outputs, with k=64"
    assert audit(tmp_path, lambda n, k: right(n, k, write=8 * k)) == [told + AGAIN]


def test_a_figure_that_cannot_be_doubled_by_itself_stays_as_it_is(tmp_path: Path) -> None:
    def only_32(a: Tensor, b: Tensor, spare: Tensor) -> Tensor:
        return a.view(-1, 32) @ b.view(32, -1)[:, : len(a)] if a.shape[1] == 32 else a.view(3, 5)

    assert audit(tmp_path, right, only_32) == []


def test_flops_are_held_against_products_alone(tmp_path: Path) -> None:
    assert audit(tmp_path, right, lambda a, b, spare: (a[:, :, None] * b).sum(1)) == []
    vector = audit(tmp_path, lambda n, k: Cost(flops=3 * n * k), lambda a, b, spare: a @ b[:, 0])
    assert vector == [f"its cost has flops=768, above the 512 FLOPs of its reference, at test size{AGAIN}"]


def test_of_ranks_the_first_ones_tensors_count(tmp_path: Path) -> None:
    def exchange(rank: int, a: list[Tensor], b: list[Tensor], spare: list[Tensor]) -> Tensor:
        return a[1 - rank]

    assert audit(tmp_path, lambda n, k: Cost(read=4 * n * k, write=4 * n * k), exchange, gpus=2) == []
    [told] = audit(tmp_path, lambda n, k: Cost(read=4 * n * k + 4, write=4 * n * k), exchange, gpus=2)
    assert told.startswith("its cost has read=1,028, above the 1,024 bytes of its inputs, at test size")


@pytest.mark.parametrize(
    ("other", "clock", "small"),
    [
        ({}, "device", True),
        ({"launches": 1}, "device", False),
        ({}, "end_to_end", False),
        ({"flops": 1e6, "dtype": "fp4"}, "device", False),  # of which an H200 has no rate, so nobody knows what binds
    ],
)
def test_a_pair_bound_by_memory_must_move_more_than_a_cache_holds(
    other: dict[str, Any], clock: str, small: bool, tmp_path: Path
) -> None:
    def outer(a: Tensor, b: Tensor, spare: Tensor) -> Tensor:
        return a[:, :1] * b[:1]

    found = audit(tmp_path, lambda n, k: Cost(write=4 * n * n, **other), outer, clock=clock)
    told = (
        "its cost at bench size is 67.1 MB, which a cache of an H200 keeps in part: move 240 MB, or declare launches="
    )
    assert found == [told] * small
