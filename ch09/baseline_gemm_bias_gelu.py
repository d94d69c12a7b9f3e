"""A product on Triton's persistent TMA loop stores its sums; a second kernel reads them back for bias and GELU."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F
from triton.tools.tensor_descriptor import TensorDescriptor

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, m: int, n: int, k: int, dtype: str) -> Inputs:
    element = getattr(torch, dtype)
    return {
        "a": draw.normal(m, k, dtype=element),
        "b": draw.normal(n, k, std=k**-0.5, dtype=element),  # as a linear keeps it
        "bias": draw.normal(n, std=0.5, dtype=element),
    }


workload = Workload(
    inputs=inputs,
    reference=lambda a, b, bias: F.gelu(a @ b.T + bias, approximate="tanh"),
    cost=lambda m, n, k, dtype: Cost(
        flops=2 * m * n * k, dtype="bf16", read=2 * (m * k + n * k + n), write=2 * m * n, items=m, unit="tokens"
    ),
    sizes={
        # The first half of GPT-2 medium's MLP: so few FLOPs a result that its bytes matter.
        "bench": {"m": 32768, "n": 4096, "k": 1024, "dtype": "bfloat16"},
        # float16 because Triton's interpreter has no bf16 dot; TMA copies rows that begin at multiples of 16 bytes
        "test": {"m": 397, "n": 328, "k": 136, "dtype": "float16"},
    },
    tolerance=6e-3,  # one or two roundings to bf16, each by 0.17% on average, and the hardware's tanh
)


@triton.jit
def gelu(x, FAST: tl.constexpr):
    inner = 0.7978845608028654 * x * (1.0 + 0.044715 * x * x)
    if FAST:  # one instruction of the special function unit, where 1 / (1 + exp) takes two
        tanh = tl.inline_asm_elementwise(
            "tanh.approx.f32 $0, $1;", "=f,f", [inner], dtype=tl.float32, is_pure=True, pack=1
        )
    else:  # Triton's interpreter runs no assembly
        tanh = 2.0 * tl.sigmoid(2.0 * inner) - 1.0
    return 0.5 * x * (1.0 + tanh)


@triton.jit
def product(a, b, out, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr):
    tiles_m, tiles_n = tl.cdiv(m, M), tl.cdiv(n, N)
    # Flattened, both loops are one, and its pipeline of loads runs on across the border between two tiles.
    for number in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0), flatten=True):
        i, j = tl.swizzle2d(number // tiles_n, number % tiles_n, tiles_m, tiles_n, GROUP)
        total = tl.zeros((M, N), tl.float32)
        for step in range(tl.cdiv(k, K)):
            x, y = a.load([i * M, step * K]), b.load([j * N, step * K])  # beyond the edges there are zeros
            total = tl.dot(x, y.T, total)
        out.store([i * M, j * N], total.to(out.dtype))


@triton.jit
def bias_gelu(out, bias, count, n, FAST: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(out + at, mask=at < count, other=0.0).to(tl.float32)
    x += tl.load(bias + at % n, mask=at < count, other=0.0).to(tl.float32)
    tl.store(out + at, gelu(x, FAST), mask=at < count)


def tile() -> dict[str, int]:
    """The tile and its pipeline: wide where an SM has shared memory for it, as on an H100 or a B200."""
    roomy = triton.knobs.runtime.interpret or torch.cuda.get_device_properties().shared_memory_per_block_optin > 220_000
    shape = {"M": 128, "N": 256, "K": 64} if roomy else {"M": 128, "N": 128, "K": 32}
    return {**shape, "GROUP": 8, "num_warps": 8, "num_stages": 3}


def descriptors(a: Tensor, b: Tensor, out: Tensor) -> tuple[tuple[int], tuple[TensorDescriptor, ...], dict[str, int]]:
    """The grid, TMA's view of both operands and of the result, and the kernel's options."""
    options = tile()
    m, n, k = (options[side] for side in "MNK")
    pairs = (a, [m, k]), (b, [n, k]), (out, [m, n])
    tiles = triton.cdiv(len(a), m) * triton.cdiv(len(b), n)
    # In the interpreter three programs, so that each has several tiles.
    most = 3 if triton.knobs.runtime.interpret else torch.cuda.get_device_properties().multi_processor_count
    return (min(most, tiles),), tuple(TensorDescriptor.from_tensor(*pair) for pair in pairs), options


def prepare(a: Tensor, b: Tensor, bias: Tensor) -> Step:
    (m, k), n = a.shape, len(b)
    out = a.new_empty(m, n)
    grid, views, options = descriptors(a, b, out)
    blocks, fast = (triton.cdiv(m * n, 1024),), not triton.knobs.runtime.interpret

    def step() -> Tensor:
        product[grid](*views, m, n, k, **options)
        bias_gelu[blocks](out, bias, m * n, n, FAST=fast, BLOCK=1024, num_warps=4)
        return out

    return step
