"""Eight products in turn, each of 144 tiles for 132 multiprocessors: in each one's second wave 12 work and 120 idle."""

from collections.abc import Callable
from functools import partial

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from common.python.workload import Cost, Draw, Inputs, Step, Workload


@triton.jit
def product(x, weight, out, rows, inner, ROWS: tl.constexpr, COLUMNS: tl.constexpr, INNER: tl.constexpr):
    """x @ weight, one tile a program; tiles of the same columns follow each other, so that L2 serves the weights."""
    tile, down = tl.program_id(0), tl.cdiv(rows, ROWS)
    row, column = tile % down * ROWS, tile // down * COLUMNS
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, inner, INNER):  # beyond the edges there are zeros
        total = tl.dot(x.load([row, start]), weight.load([start, column]), total)
    out.store([row, column], total.to(out.dtype))


def products(xs: Tensor, weights: Tensor, out: Tensor) -> list[Callable[[], None]]:
    """The launch of each product."""
    (rows, inner), columns = xs.shape[1:], weights.shape[2]
    # Wide where a multiprocessor has shared memory for it, as on an H100 or a B200.
    roomy = triton.knobs.runtime.interpret or torch.cuda.get_device_properties().shared_memory_per_block_optin > 220_000
    m, n, k = (128, 256, 64) if roomy else (128, 128, 32)
    tiles = triton.cdiv(rows, m) * triton.cdiv(columns, n)

    def launch(x: TensorDescriptor, weight: TensorDescriptor, into: TensorDescriptor) -> None:
        product[(tiles,)](x, weight, into, rows, inner, m, n, k, num_warps=8, num_stages=3)

    shapes = [m, k], [k, n], [m, n]
    views = ([TensorDescriptor.from_tensor(*pair) for pair in zip(parts, shapes)] for parts in zip(xs, weights, out))
    return [partial(launch, *each) for each in views]


def inputs(draw: Draw, count: int, rows: int, inner: int, columns: int) -> Inputs:
    return {
        "xs": draw.normal(count, rows, inner, dtype=torch.float16),
        "weights": draw.normal(count, inner, columns, std=inner**-0.5, dtype=torch.float16),
    }


def cost(count: int, rows: int, inner: int, columns: int) -> Cost:
    read, write = 2 * count * inner * (rows + columns), 2 * count * rows * columns
    return Cost(flops=2 * count * rows * inner * columns, dtype="fp16", read=read, write=write)


workload = Workload(
    inputs=inputs,
    reference=lambda xs, weights: xs @ weights,
    cost=cost,
    # On an H100 or H200 9 x 16 tiles a product; a multiprocessor holds one, for it takes 144 KiB of shared memory
    sizes={
        "bench": {"count": 8, "rows": 1152, "inner": 8192, "columns": 4096},
        "test": {"count": 3, "rows": 131, "inner": 72, "columns": 264},  # TMA: rows of multiples of 16 bytes
    },
    tolerance=1e-3,  # rounded to fp16
)


def prepare(xs: Tensor, weights: Tensor) -> Step:
    out = xs.new_empty(*xs.shape[:2], weights.shape[2])

    launches = products(xs, weights, out)

    def step() -> Tensor:
        for launch in launches:
            launch()
        return out

    return step
