"""Breadth-first search: after each level the host reads how many vertices it found, and launches a grid for them."""

import torch
from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload

requires = needs(sm=80)
CORNERS = 64  # for each metro line: it joins two corners, however far apart, so levels grow wide soon


def inputs(draw: Draw, side: int) -> Inputs:
    """Streets of a square town, a tenth closed, and metro lines: the neighbours of vertex v begin at offsets[v]."""
    corners = torch.arange(side * side, device=draw.device).view(side, side)
    across = torch.stack([corners[:, :-1].flatten(), corners[:, 1:].flatten()])
    streets = torch.cat([across, torch.stack([corners[:-1].flatten(), corners[1:].flatten()])], dim=1)
    streets = streets[:, draw.permutation(streets.shape[1])[: streets.shape[1] * 9 // 10]]
    lines = draw.integers(2, side * side // CORNERS, high=side * side)
    ends = torch.cat([streets, lines, streets.flip(0), lines.flip(0)], dim=1)
    degrees, middle = torch.bincount(ends[0], minlength=side * side), side // 2 * side + side * 3 // 8
    return {
        "offsets": torch.cat([degrees.new_zeros(1), degrees.cumsum(0)]).int(),
        "targets": ends[1][ends[0].argsort()].int(),
        # near the centre, so that all draws have about as many levels
        "source": draw.integers(1, low=middle, high=middle + side // 4 + 1, dtype=torch.int32),
    }


def reference(offsets: Tensor, targets: Tensor, source: Tensor) -> Tensor:
    """Streets and lines from the source to each vertex; -1 where there is no way."""
    distances = offsets.new_full((len(offsets) - 1,), -1)
    origins = torch.arange(len(distances), device=offsets.device).repeat_interleave(offsets.diff().long())
    distances[source.long()] = 0
    for level in range(1, len(distances)):
        reached = targets[distances[origins] == level - 1].long()
        reached = reached[distances[reached] < 0]
        if len(reached) == 0:
            break
        distances[reached] = level
    return distances


workload = Workload(
    inputs=inputs,
    reference=reference,
    # A kernel with barriers over the grid does all levels in one launch.
    cost=lambda side: Cost(launches=1, read=8 * side * side, write=4 * side * side),
    sizes={"bench": {"side": 512}, "test": {"side": 131}},  # whose widest levels have some 25,000 and 1,600 vertices
    tolerance=0.0,
    clock="end_to_end",
)


def prepare(offsets: Tensor, targets: Tensor, source: Tensor) -> Step:
    search = load_cuda(__file__, "search")
    distances, order = (offsets.new_empty(len(offsets) - 1) for _ in range(2))
    found, seen = offsets.new_empty(1), torch.empty(1, dtype=torch.int32, pin_memory=True)

    def step() -> Tensor:
        search(offsets, targets, source, distances, order, found, seen, len(distances))
        return distances

    return step
