"""Towers of equal width are one batched product with its ReLU; the capture forks into a branch for each width."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch12.baseline_graph_fork_join import workload as workload
from common.models.graphs import Replay
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)
TILE = {"ROWS": 64, "COLUMNS": 128, "INNER": 64, "num_warps": 4, "num_stages": 4}


@triton.jit
def product(x, weight, out, rows, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr, INNER: tl.constexpr):
    """A tile of relu(x @ weight) of one tower, of which all are `width` wide."""
    tower = tl.program_id(2).to(tl.int64)
    row, column = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    x += tower * rows * width + row[:, None] * width
    weight += tower * width * width + column[None, :]
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(0, width, INNER):
        inner = first + tl.arange(0, INNER)
        left = tl.load(x + inner[None, :], (row < rows)[:, None] & (inner < width)[None, :], 0.0)
        right = tl.load(weight + inner[:, None] * width, (inner < width)[:, None] & (column < width)[None, :], 0.0)
        total = tl.dot(left, right, total)
    out += tower * rows * width + row[:, None] * width + column[None, :]
    tl.store(out, tl.maximum(total, 0.0).to(out.dtype.element_ty), (row < rows)[:, None] & (column < width)[None, :])


def branch(features: list[Tensor], layers: Tensor) -> Tensor:
    x = torch.stack(features)
    towers, rows, width = x.shape
    grid = triton.cdiv(width, TILE["COLUMNS"]), triton.cdiv(rows, TILE["ROWS"]), towers
    for weights in layers:
        out = torch.empty_like(x)
        product[grid](x, weights, out, rows, width, **TILE)
        x = out
    return x


def prepare(features: list[Tensor], weights: list[Tensor]) -> Step:
    out = features[0].new_empty(len(features[0]), sum(x.shape[1] for x in features))
    alike: dict[int, list[int]] = {}
    for index, x in enumerate(features):
        alike.setdefault(x.shape[1], []).append(index)
    groups = sorted(alike.values(), key=lambda group: -features[group[0]].shape[1])  # the longest branch first
    stacks = [torch.stack([weights[index] for index in group], dim=1) for group in groups]
    for group, layers in zip(groups, stacks):
        branch([features[index] for index in group], layers)  # compiles, which a capture would refuse
    sides = [torch.cuda.Stream() for _ in groups]

    def work() -> None:
        trunk = torch.cuda.current_stream()
        fork = trunk.record_event()
        done = list(features)
        for side, group, layers in zip(sides, groups, stacks):
            side.wait_event(fork)  # an event, not wait_stream: torch may deal out the capture's own stream as a side
            with torch.cuda.stream(side):
                for index, result in zip(group, branch([features[index] for index in group], layers)):
                    done[index] = result
        for side in sides:
            trunk.wait_stream(side)
        torch.cat(done, dim=1, out=out)

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    replay = Replay(graph, work)

    def step() -> Tensor:
        replay()
        return out

    return step
