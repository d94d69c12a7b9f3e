"""Bandwidth of the GPU's memories: HBM, the L2 cache, and the shared memory of its multiprocessors."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
import triton
import triton.language as tl

from common.python.base.toolkit import HEADERS, find_nvcc
from common.python.cuda import load_cuda
from common.python.peaks.sampling import Unavailable, Way

GIB = 2**30
READ_BLOCK, L2_BLOCK = 8192, 4096  # floats that a program loads at a time: several 16-byte loads a thread in flight
WARPS = 8
L2_PROGRAMS, L2_PASSES = 8, 1024  # programs a multiprocessor, blocks that each of them reads
SHARED_TILE_BYTES, SHARED_BLOCKS, SHARED_PASSES = 32 * 1024, 24, 1024  # the tile is that of peaks.cu


@triton.jit
def sum_blocks(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """out[i] = sum of block i of x (n floats): all of x is read, next to nothing written."""
    block = tl.program_id(0)
    offsets = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + block, tl.sum(tl.load(x + offsets, mask=offsets < n, other=0.0)))


@triton.jit
def write_noise(out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """out[i] = a hash of i (n integers of 32 bits): written without reading anything, and not all alike."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    bits = offsets.to(tl.int32) * 0x9E3779B
    tl.store(out + offsets, bits ^ (bits >> 15), mask=offsets < n)


@triton.jit
def sum_again(x, out, blocks, passes, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """out[i] = sum of the `passes` blocks after block i of x, round and round; .cg keeps them out of L1."""
    program = tl.program_id(0)
    total = tl.zeros([BLOCK], tl.float32)
    for step in range(passes):
        block = (program + step) % blocks
        total += tl.load(x + block * BLOCK + tl.arange(0, BLOCK), cache_modifier=".cg")
    tl.store(out + program, tl.sum(total))


def buffer_floats() -> int:
    """1 GiB of floats, or an eighth of the memory that is free, in whole blocks."""
    free, _ = torch.cuda.mem_get_info()
    return min(GIB, free // 8) // 4 // READ_BLOCK * READ_BLOCK


def read_ways() -> Iterator[Way]:
    n = buffer_floats()
    x = torch.randn(n, device="cuda")
    sums, total = x.new_empty(triton.cdiv(n, READ_BLOCK)), x.new_empty(())
    step = partial(sum_blocks[(len(sums),)], x, sums, n, BLOCK=READ_BLOCK, num_warps=WARPS)
    yield Way("Triton kernel, a sum of each 32 KiB", 4 * n, step)
    yield Way("torch.sum", 4 * n, lambda: torch.sum(x, dim=0, out=total))


def write_ways() -> Iterator[Way]:
    n = buffer_floats()
    out = torch.empty(n, dtype=torch.int32, device="cuda")
    step = partial(write_noise[(triton.cdiv(n, READ_BLOCK),)], out, n, BLOCK=READ_BLOCK, num_warps=WARPS)
    yield Way("Triton kernel, hashed indices", 4 * n, step)
    yield Way("torch.fill_", 4 * n, lambda: out.fill_(0x5A17))


def copy_ways() -> Iterator[Way]:
    n = buffer_floats()
    x = torch.randn(n, device="cuda")
    out = torch.empty_like(x)
    yield Way("torch.neg, one kernel", 8 * n, lambda: torch.neg(x, out=out))
    yield Way("copy_, which is cudaMemcpyAsync", 8 * n, lambda: out.copy_(x))


def triad_ways() -> Iterator[Way]:
    n = buffer_floats()
    x, y = torch.randn(n, device="cuda"), torch.randn(n, device="cuda")
    out = torch.empty_like(x)
    yield Way("torch.add, out = x + 3 y", 12 * n, lambda: torch.add(x, y, alpha=3.0, out=out))


def l2_ways() -> Iterator[Way]:
    """Two sizes, because on GPUs with a divided L2 what both halves read may be kept in both."""
    l2_bytes, programs = torch.cuda.get_device_properties().L2_cache_size, L2_PROGRAMS * multiprocessors()
    for share in (0.25, 0.375):
        blocks = max(1, int(l2_bytes * share) // (4 * L2_BLOCK))
        x = torch.randn(blocks * L2_BLOCK, device="cuda")
        sums = x.new_empty(programs)
        method = f"Triton kernel, {4e-6 * x.numel():.0f} MB read again and again past L1"
        step = partial(sum_again[(programs,)], x, sums, blocks, L2_PASSES, BLOCK=L2_BLOCK, num_warps=WARPS)
        yield Way(method, 4 * L2_BLOCK * L2_PASSES * programs, step)


def shared_ways() -> Iterator[Way]:
    """In CUDA, since Triton does not say where a tile lies."""
    read_shared, blocks = cuda_kernel("read_shared"), SHARED_BLOCKS * multiprocessors()
    out = torch.empty(blocks, device="cuda")
    work = blocks * SHARED_PASSES * SHARED_TILE_BYTES
    yield Way("CUDA kernel, 16-byte loads of a tile", work, lambda: read_shared(out, blocks, SHARED_PASSES))


def cuda_kernel(name: str) -> Callable[..., None]:
    """A function of common/cuda/peaks.cu. Raises Unavailable without nvcc."""
    if find_nvcc() is None:
        raise Unavailable("needs nvcc, for common/cuda/peaks.cu")
    return load_cuda(str(HEADERS / "peaks.cu"), name)


def multiprocessors() -> int:
    return torch.cuda.get_device_properties().multi_processor_count
