"""Arithmetic rates: matrix products of every type, dense and 2:4 sparse, at the best of several shapes; mma.sync alone,
plain FMAs, and exponentials.
"""

from collections.abc import Iterator
from functools import partial

import torch
import triton
import triton.language as tl
from torch import Tensor

from common.python.peaks.memory import cuda_kernel, multiprocessors
from common.python.peaks.sampling import Step, Unavailable, Way

SHAPES = (4096, 8192, 16384)  # m, n and k alike
MOST_BYTES = 4 * 2**30  # of operands and result together: a card of 24 GB holds two shapes while they race
# cuSPARSELt's search runs every algorithm several times, so one shape is searched and the other takes its default.
SPARSE_SHAPES = ((8192, 8192, 8192, True), (16384, 8192, 8192, False))  # m, n, k, searched

DENSE = {  # torch's type, and the first architecture that multiplies it
    "bf16": (torch.bfloat16, 80),
    "fp16": (torch.float16, 0),
    "tf32": (torch.float32, 80),
    "fp32": (torch.float32, 0),
    "fp64": (torch.float64, 0),
    "fp8": (torch.float8_e4m3fn, 89),
    "fp8_rowwise": (torch.float8_e4m3fn, 89),
    "int8": (torch.int8, 75),
    "fp4": (torch.float4_e2m1fn_x2, 100),  # two to an element
}
SPARSE = [f"{name}_sparse" for name in ("bf16", "fp16", "tf32", "fp8", "int8", "fp4")]
SPARSE_SM = 80
TRANSPOSED_ONLY = ("fp8", "fp8_rowwise", "fp4", "int8")

FMA_BLOCK, FMA_WARPS, FMA_UNROLL, FMA_ROUNDS = 1024, 4, 16, 256  # eight chains a thread
BYTES_TILE, BYTES_BAND = (128, 256, 128), 16  # m, n, k of a program of 8 warps; tiles of m that follow each other
MMA_BLOCKS, MMA_ROUNDS, MMA_FLOPS = 8, 4096, 8 * 8 * 4096  # a multiprocessor's; of a block's 64 products of a round
FMA_PROGRAMS = 192  # for each multiprocessor: whole waves whether 16, 12 or 8 of them are resident


def ways(name: str) -> Iterator[Way]:
    """Products of `bf16`, `fp8_rowwise`, ... or of `bf16_sparse`, ... Raises Unavailable where the chip lacks it.

    They leave torch's precision of float32 products as they need it, since what they yield is timed later.
    """
    dense = name.removesuffix("_sparse")
    sparse = dense != name
    need_sm(max(DENSE[dense][1], SPARSE_SM if sparse else 0))
    if name == "fp4_sparse":  # cuSPARSELt has it, torch 2.13 does not ask for it
        raise Unavailable("torch has no 2:4 sparse product of fp4")
    if sparse and not torch.backends.cusparselt.is_available():
        raise Unavailable("needs a torch with cuSPARSELt")
    torch.set_float32_matmul_precision("high" if dense == "tf32" else "highest")
    yield from sparse_ways(dense) if sparse else dense_ways(name)


def need_sm(needed: int) -> None:
    major, minor = torch.cuda.get_device_capability()
    if 10 * major + minor < needed:
        raise Unavailable(f"needs sm_{needed}, this is sm_{major}{minor}")


def dense_ways(name: str) -> Iterator[Way]:
    for n in SHAPES:
        if 3 * n * n * DENSE[name][0].itemsize > MOST_BYTES:
            continue
        for transposed in (True,) if name in TRANSPOSED_ONLY else (True, False):
            method = f"{n} x {n} x {n}, B {'transposed' if transposed else 'as it lies'}"
            given = operands(name, n, n, n, transposed, "cuda")
            yield Way(method, 2 * n**3, product(name, *given))
            if name == "int8":  # cuBLAS reaches half of what an H200's datasheet says
                out = torch.empty(n, n, dtype=torch.int32, device="cuda")
                yield Way(f"Triton kernel, {method}", 2 * n**3, partial(multiply_bytes, given[0], given[1].t(), out))


def operands(name: str, m: int, n: int, k: int, transposed: bool, device: str) -> tuple[Tensor, ...]:
    """A (m x k), B (k x n) and, for types with scales, one scale for each or one for each row of A and column of B."""
    a = noise(name, m, k, device)
    b = noise(name, n, k, device).t() if transposed else noise(name, k, n, device)
    match name:
        case "fp8":
            return a, b, torch.rand((), device=device) + 0.5, torch.rand((), device=device) + 0.5
        case "fp8_rowwise":
            return a, b, torch.rand(m, 1, device=device) + 0.5, torch.rand(1, n, device=device) + 0.5
        case "fp4":  # a scale for each 16 along k, in the padded order of the tensor cores
            padded = [triton.cdiv(rows, 128) * 128 * triton.cdiv(k // 16, 4) * 4 for rows in (m, n)]
            scales = [torch.rand(count, device=device) + 0.5 for count in padded]
            return a, b, *(scale.to(torch.float8_e4m3fn) for scale in scales)
    return a, b


def noise(name: str, rows: int, columns: int, device: str) -> Tensor:
    """Random elements: zeros would draw less power and run faster."""
    dtype, _ = DENSE[name]
    if dtype is torch.int8:
        return torch.randint(-128, 128, (rows, columns), dtype=dtype, device=device)
    if dtype is torch.float4_e2m1fn_x2:
        return torch.randint(0, 256, (rows, columns // 2), dtype=torch.uint8, device=device).view(dtype)
    wide = dtype if dtype.itemsize > 1 else torch.bfloat16
    return torch.randn(rows, columns, dtype=wide, device=device).to(dtype)


def product(name: str, a: Tensor, b: Tensor, *scales: Tensor) -> Step:
    """A step that multiplies; it returns the product (bf16 for fp8 and fp4, int32 for int8)."""
    if scales:
        scale_a, scale_b = scales
        fast = name != "fp4"
        return partial(torch._scaled_mm, a, b, scale_a, scale_b, out_dtype=torch.bfloat16, use_fast_accum=fast)
    if name == "int8":
        return partial(torch._int_mm, a, b)
    return partial(torch.mm, a, b, out=a.new_empty(a.shape[0], b.shape[1]))


@triton.jit
def byte_tile(a, b, out, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, BAND: tl.constexpr):  # type: ignore[no-untyped-def]
    """A tile of out = a b^T in int32, of a (m, k) and b (n, k) in int8. Tiles are whole, and so are bands of m's."""
    band, place = tl.program_id(0) // (BAND * (n // N)), tl.program_id(0) % (BAND * (n // N))
    row = (band * BAND + place % BAND) * M + tl.arange(0, M)[:, None]
    column = place // BAND * N + tl.arange(0, N)[None, :]
    left, right = a + row * k + tl.arange(0, K)[None, :], b + column * k + tl.arange(0, K)[:, None]
    total = tl.zeros((M, N), tl.int32)
    for start in range(0, k, K):
        total = tl.dot(tl.load(left + start), tl.load(right + start), total, out_dtype=tl.int32)
    tl.store(out + row * n + column, total)


def multiply_bytes(a: Tensor, b: Tensor, out: Tensor) -> None:
    (m, n), (tile_m, tile_n, tile_k) = out.shape, BYTES_TILE
    room = torch.cuda.get_device_properties().shared_memory_per_block_optin if out.is_cuda else 0  # type: ignore[attr-defined]
    stages = max(1, min(4, room // (tile_k * (tile_m + tile_n))))
    given = a, b, out, n, a.shape[1], *BYTES_TILE, BYTES_BAND
    byte_tile[m // tile_m * (n // tile_n),](*given, num_warps=8, num_stages=stages)


def sparse_ways(name: str) -> Iterator[Way]:
    for m, n, k, searched in SPARSE_SHAPES:
        method = f"cuSPARSELt {m} x {n} x {k}, counted as if dense, {'searched' if searched else 'default'} algorithm"
        a, b = torch._cslt_compress(half_zeros(noise(name, m, k // 2, "cuda"))), noise(name, n, k, "cuda").t()
        out_dtype = torch.bfloat16 if b.itemsize == 1 else None
        found = torch._cslt_sparse_mm_search(a, b, out_dtype=out_dtype) if searched else 0
        step = partial(torch._cslt_sparse_mm, a, b, out_dtype=out_dtype, alg_id=found)
        yield Way(method, 2 * m * n * k, step)


def half_zeros(values: Tensor) -> Tensor:
    """Each value (rows x k) beside a zero, on a random side: rows x 2k that keep 2 of 4, and 1 of 2 as TF32 needs."""
    if values.dtype is torch.float8_e4m3fn:  # few operators know it; its zero is a zero byte
        return half_zeros(values.view(torch.int8)).view(values.dtype)
    left = torch.randint(0, 2, values.shape, dtype=torch.bool, device=values.device)
    zero = torch.zeros_like(values)
    return torch.stack([torch.where(left, values, zero), torch.where(left, zero, values)], dim=-1).flatten(1)


@triton.jit
def chaos(out, rounds, BLOCK: tl.constexpr, UNROLL: tl.constexpr):  # type: ignore[no-untyped-def]
    """out[i] = x after `rounds` times UNROLL steps of x = x * x + c: one FMA each, and the bits of x stay random."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = -1.9 + 0.1 * ((offsets * 0x9E3779B) & 0xFFFF).to(tl.float32) / 0x10000  # x stays within 2 of zero
    x = c
    for _ in range(rounds):
        for _ in tl.static_range(UNROLL):
            x = x * x + c
    tl.store(out + offsets, x)


def fma_ways() -> Iterator[Way]:
    programs = FMA_PROGRAMS * multiprocessors()
    out = torch.empty(programs * FMA_BLOCK, device="cuda")
    work = 2 * FMA_BLOCK * FMA_UNROLL * FMA_ROUNDS * programs
    step = partial(chaos[(programs,)], out, FMA_ROUNDS, BLOCK=FMA_BLOCK, UNROLL=FMA_UNROLL, num_warps=FMA_WARPS)
    yield Way("Triton kernel, chains of FMAs in registers", work, step)


def mma_ways() -> Iterator[Way]:
    """bf16 by the instruction that every GPU since Ampere has; Hopper and later have faster ones beside it."""
    need_sm(80)
    multiply = cuda_kernel("multiply_fragments")  # Triton picks the instruction itself
    blocks = MMA_BLOCKS * multiprocessors()
    out = torch.empty(blocks * 256, device="cuda")
    work = MMA_FLOPS * MMA_ROUNDS * blocks
    yield Way("CUDA kernel, mma.sync in registers", work, lambda: multiply(out, blocks, MMA_ROUNDS))


@triton.jit
def powers(out, rounds, BLOCK: tl.constexpr, UNROLL: tl.constexpr, EVERY: tl.constexpr):  # type: ignore[no-untyped-def]
    """out[i] = x after `rounds` times UNROLL steps of x = 2^-x. Every EVERYth is a polynomial, by FMAs; none if 0."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = ((offsets * 0x9E3779B) & 0xFFFF).to(tl.float32) / 0x10000
    for _ in range(rounds):
        for step in tl.static_range(UNROLL):
            if EVERY > 0 and step % EVERY == 0:  # as in ch08:kde_exp2_split, where the polynomial is explained
                whole = 12582912.0 - x
                part = -x - (whole - 12582912.0)
                power = ((0.05517149 * part + 0.24261094) * part + 0.69326099) * part + 0.99992808
                bits = power.to(tl.int32, bitcast=True) + (whole.to(tl.int32, bitcast=True) << 23)
                x = bits.to(tl.float32, bitcast=True)
            else:
                x = tl.exp2(-x)
    tl.store(out + offsets, x)


def exp2_ways() -> Iterator[Way]:
    """Exponentials, however they are made: a kernel that makes some of them by FMAs must not beat the limit."""
    programs = FMA_PROGRAMS // 4 * multiprocessors()
    out = torch.empty(programs * FMA_BLOCK, device="cuda")
    work = FMA_BLOCK * FMA_UNROLL * FMA_ROUNDS * programs
    for every, how in {0: "the special-function unit alone", 4: "a quarter by FMAs", 2: "half of them by FMAs"}.items():
        sizes = {"BLOCK": FMA_BLOCK, "UNROLL": FMA_UNROLL, "EVERY": every}
        step = partial(powers[(programs,)], out, FMA_ROUNDS, **sizes, num_warps=FMA_WARPS)
        yield Way(f"Triton kernel, {how}", work, step)
