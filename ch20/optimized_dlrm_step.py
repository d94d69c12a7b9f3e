"""One kernel looks up all tables' rows, the next multiplies a sample's vectors and lays out the GEMM's input."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

from ch20.baseline_dlrm_step import perceptron
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
    place = (sample.to(tl.int64) * tl.num_programs(1) + table) * width + column
    tl.store(out + place, total.to(out.dtype.element_ty), mask=column < width)


@triton.jit
def interact(dense, sums, out, scale, tables, width, pitch, VECTORS: tl.constexpr, WIDTH: tl.constexpr):
    """A sample's dense vector, then the products of any two of its vectors: a row of the top network's input."""
    sample = tl.program_id(0).to(tl.int64)
    vector, column = tl.arange(0, VECTORS), tl.arange(0, WIDTH)
    first = tl.load(dense + sample * width + column, mask=column < width, other=0.0)
    place = (sample * tables + vector - 1)[:, None] * width + column[None, :]
    there = ((vector > 0) & (vector <= tables))[:, None] & (column < width)[None, :]
    vectors = tl.load(sums + place, mask=there, other=0.0)
    vectors = tl.where((vector == 0)[:, None], first[None, :], vectors)
    products = tl.dot(vectors, tl.trans(vectors)) * scale
    tl.store(out + sample * pitch + column, first, mask=column < width)
    other = tl.arange(0, VECTORS)
    number = (vector * (vector - 1) // 2)[:, None] + other[None, :]
    below = (vector[:, None] > other[None, :]) & (vector <= tables)[:, None]
    tl.store(out + sample * pitch + width + number, products.to(out.dtype.element_ty), mask=below)


def prepare(embeddings: Tensor, ids: Tensor, dense: Tensor, bottom: list[Tensor], top: list[Tensor]) -> Step:
    (tables, rows, width), (batch, bag) = embeddings.shape, ids.shape[1:]
    sums = dense.new_empty(batch, tables, width)
    inputs = top[0].shape[1]
    pad = -inputs % 8  # rows of 16 bytes: of an odd width, cuBLAS has only slow kernels
    features = dense.new_zeros(batch, inputs + pad)
    vectors, wide = max(16, triton.next_power_of_2(tables + 1)), max(16, triton.next_power_of_2(width))

    @torch.inference_mode()
    def step() -> Tensor:
        add_bags[(batch, tables)](
            embeddings, ids, sums, rows, width, batch, bag, triton.next_power_of_2(bag), wide, num_warps=1
        )
        below = perceptron(dense, bottom)
        interact[(batch,)](below, sums, features, width**-0.5, tables, width, inputs + pad, vectors, wide, num_warps=2)
        return perceptron(features, [F.pad(top[0], (0, pad)), *top[1:]])

    return step
