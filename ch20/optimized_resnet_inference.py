"""Batch norms are folded into weights, and a convolution adds bias and residual and takes ReLU before it stores."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

from ch20.baseline_resnet_inference import Layer
from ch20.baseline_resnet_inference import workload as workload
from common.python.workload import Step

Folded = tuple[Tensor, Tensor]  # weight, channels last, and bias in fp32
CHANNELS = tl.constexpr(64)  # of a product's tiles


@triton.jit(do_not_specialize=["pixels", "side", "side_out"])  # or it is compiled for each layer
def convolve(
    x, weight, bias, residual, out, pixels, side, side_out, inward, outward,
    KERNEL: tl.constexpr, STRIDE: tl.constexpr, RELU: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Output pixels are a matrix's rows, output channels its columns; the sum runs over taps and input channels."""
    tiles = tl.cdiv(outward, COLUMNS)
    row = tl.program_id(0) // tiles * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(0) % tiles * COLUMNS + tl.arange(0, COLUMNS)
    image, pixel = row // (side_out * side_out), row % (side_out * side_out)
    top, left = pixel // side_out * STRIDE - KERNEL // 2, pixel % side_out * STRIDE - KERNEL // 2
    parts = tl.cdiv(inward, CHANNELS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for part in range(KERNEL * KERNEL * parts):
        tap, channel = part // parts, part % parts * CHANNELS + tl.arange(0, CHANNELS)
        y, z = top + tap // KERNEL, left + tap % KERNEL
        inside = (row < pixels) & (y >= 0) & (y < side) & (z >= 0) & (z < side)
        live = channel < inward
        at = ((image * side + y) * side + z) * inward
        taken = tl.load(x + at[:, None] + channel[None, :], mask=inside[:, None] & live[None, :], other=0.0)
        of = (column * KERNEL * KERNEL + tap) * inward
        factor = tl.load(
            weight + of[None, :] + channel[:, None], mask=(column < outward)[None, :] & live[:, None], other=0.0
        )
        total = tl.dot(taken, factor, total)
    total += tl.load(bias + column, mask=column < outward, other=0.0)[None, :]
    to = row[:, None] * outward + column[None, :]
    mask = (row < pixels)[:, None] & (column < outward)[None, :]
    if residual is not None:
        total += tl.load(residual + to, mask=mask, other=0.0).to(tl.float32)
    if RELU:
        total = tl.maximum(total, 0.0)
    tl.store(out + to, total, mask=mask)


def folded(layer: Layer) -> Folded:
    gain = layer["gain"].double() * (layer["variance"].double() + 1e-5).rsqrt()
    weight = (layer["weight"].double() * gain[:, None, None, None]).to(layer["weight"].dtype)
    bias = layer["shift"].double() - layer["mean"].double() * gain
    return weight.contiguous(memory_format=torch.channels_last), bias.float()


def convolved(x: Tensor, layer: Folded, stride: int = 1, residual: Tensor | None = None, relu: bool = True) -> Tensor:
    weight, bias = layer
    outward, inward, kernel, _ = weight.shape
    side, like = (x.shape[2] - 1) // stride + 1, {"dtype": x.dtype, "device": x.device}
    out = torch.empty((len(x), outward, side, side), memory_format=torch.channels_last, **like)
    pixels = len(x) * side**2
    columns = 64 if outward <= 64 or triton.cdiv(pixels, 128) * triton.cdiv(outward, 128) < 200 else 128
    grid = (triton.cdiv(pixels, 128) * triton.cdiv(outward, columns),)
    sizes = pixels, x.shape[2], side, inward, outward
    convolve[grid](
        x, weight, bias, residual, out, *sizes, kernel, stride, relu, 128, columns,
        num_warps=4 if columns == 64 else 8, num_stages=2 if kernel**2 * inward <= 128 else 3,
    )  # fmt: skip
    return out


def prepare(images: Tensor, stem: Layer, blocks: list[list[Layer]], head: Tensor) -> Step:
    (first, bias), stages = folded(stem), [[folded(layer) for layer in block] for block in blocks]
    shift = bias.to(first.dtype)[:, None, None]

    @torch.inference_mode()
    def step() -> Tensor:
        together = images.contiguous(memory_format=torch.channels_last)
        x = F.conv2d(together, first, stride=2, padding=3).contiguous(memory_format=torch.channels_last)
        x = (F.max_pool2d(x, 3, 2, 1) + shift).relu_()  # neither bias nor ReLU changes which of nine is the largest
        for one, two, three, *shortcut in stages:
            stride = 2 if x.shape[1] == 2 * len(two[0]) else 1
            hidden = convolved(convolved(x, one), two, stride)
            x = convolved(hidden, three, residual=convolved(x, shortcut[0], stride, relu=False) if shortcut else x)
        return F.linear(x.mean((2, 3)), head)

    return step
