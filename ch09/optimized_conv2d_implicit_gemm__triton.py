"""The product loads each tile of patches straight from the image, as a box shifted by the tap, with zeros outside."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton import knobs
from triton.tools.tensor_descriptor import TensorDescriptor

from ch09.baseline_conv2d_implicit_gemm import workload as workload
from common.python.workload import Step


@triton.jit
def convolve(
    x, filters, out, images, side, channels, results,
    M: tl.constexpr, DOWN: tl.constexpr, ACROSS: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """M results of DOWN x ACROSS pixels of one image: x and out describe [images, side, side, width]."""
    down, across, chunks = tl.cdiv(side, DOWN), tl.cdiv(side, ACROSS), tl.cdiv(channels, K)
    parts = tl.cdiv(results, M)
    # Flattened, both loops are one, and its pipeline of loads runs on across the border between two tiles.
    for number in tl.range(tl.program_id(0), parts * down * across * images, tl.num_programs(0), flatten=True):
        result, place = number % parts * M, number // parts
        top, left, image = place // across % down * DOWN, place % across * ACROSS, place // (across * down)
        total = tl.zeros((M, DOWN * ACROSS), tl.float32)
        for step in range(9 * chunks):
            tap, channel = step // chunks, step % chunks * K
            # Beyond the image, and beyond its channels, there are zeros, which also undo what is read of the next tap.
            box = x.load([image, top + tap // 3 - 1, left + tap % 3 - 1, channel])
            weights = filters.load([result, tap * channels + channel])
            # Pixels are columns: a right operand is read where TMA put it, a left one that is reshaped from registers.
            total = tl.dot(weights, box.reshape(DOWN * ACROSS, K).T, total)
        out.store([image, top, left, result], total.to(out.dtype).T.reshape(1, DOWN, ACROSS, M))


def tile() -> dict[str, int]:
    """Results and pixels of a tile, channels of a step; small ones without TMA or where shared memory is small."""
    major = 9 if knobs.runtime.interpret else torch.cuda.get_device_capability()[0]
    shape = (128, 16, 16, 64, 3) if major in (9, 10) else (128, 8, 8, 32, 3)
    return dict(zip(("M", "DOWN", "ACROSS", "K", "num_stages"), shape)) | {"num_warps": 8}


def prepare(x: Tensor, filters: Tensor) -> Step:
    (images, side, _, channels), results, options = x.shape, len(filters), tile()
    m, down, across, k = (options[name] for name in ("M", "DOWN", "ACROSS", "K"))
    out = x.new_empty(images, side, side, results)
    boxes = TensorDescriptor.from_tensor(x, [1, down, across, k])
    taps = TensorDescriptor.from_tensor(filters.view(results, -1), [m, k])
    into = TensorDescriptor.from_tensor(out, [1, down, across, m])
    tiles = triton.cdiv(results, m) * triton.cdiv(side, down) * triton.cdiv(side, across) * images
    # In the interpreter three programs, so that each has several tiles.
    most = 3 if triton.knobs.runtime.interpret else torch.cuda.get_device_properties().multi_processor_count

    def step() -> Tensor:
        convolve[(min(most, tiles),)](boxes, taps, into, images, side, channels, results, **options)
        return out

    return step
