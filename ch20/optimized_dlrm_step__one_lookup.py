"""One kernel looks up all tables' rows, as many at once as memory wants, and writes them where they interact."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch20.baseline_dlrm_step import below_diagonal, interact, perceptron
from ch20.baseline_dlrm_step import workload as workload
from common.python.workload import Step


@triton.jit
def add_bags(embeddings, ids, out, rows, width, batch, bag, BAG: tl.constexpr, WIDTH: tl.constexpr):
    """Of one sample and one table: one warp asks for all rows of the bag, then adds them without shared memory."""
    sample, table = tl.program_id(0), tl.program_id(1)
    entry, column = tl.arange(0, BAG), tl.arange(0, WIDTH)
    row = tl.load(ids + (table * batch + sample).to(tl.int64) * bag + entry, mask=entry < bag, other=0)
    places = (table.to(tl.int64) * rows + row)[:, None] * width + column[None, :]
    there = (entry < bag)[:, None] & (column < width)[None, :]
    total = tl.sum(tl.load(embeddings + places, mask=there, other=0.0).to(tl.float32), axis=0)
    place = (sample.to(tl.int64) * (tl.num_programs(1) + 1) + table + 1) * width + column
    tl.store(out + place, total.to(out.dtype.element_ty), mask=column < width)


def prepare(embeddings: Tensor, ids: Tensor, dense: Tensor, bottom: list[Tensor], top: list[Tensor]) -> Step:
    (tables, rows, width), (batch, bag) = embeddings.shape, ids.shape[1:]
    features, below = dense.new_empty(batch, tables + 1, width), below_diagonal(tables + 1, ids)
    blocks = triton.next_power_of_2(bag), triton.next_power_of_2(width)

    @torch.inference_mode()
    def step() -> Tensor:
        add_bags[(batch, tables)](embeddings, ids, features, rows, width, batch, bag, *blocks, num_warps=1)
        features[:, 0] = perceptron(dense, bottom)
        return interact(features, top, below)

    return step
