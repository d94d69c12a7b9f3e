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


@triton.jit
def place(index, side_out, stride: tl.constexpr, PADDING: tl.constexpr):
    """Image, and the row and column in it where the filter of an output pixel begins."""
    area = side_out * side_out
    image, pixel = index // area, index % area
    return image, pixel // side_out * stride - PADDING, pixel % side_out * stride - PADDING


@triton.jit
def convolve(
    x, weight, bias, residual, out, pixels, side, side_out, inward, outward,
    KERNEL: tl.constexpr, STRIDE: tl.constexpr, RELU: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Output pixels are a matrix's rows, output channels its columns; the sum runs over the filter's taps and inputs."""
    tiles = tl.cdiv(outward, COLUMNS)
    row = tl.program_id(0) // tiles * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(0) % tiles * COLUMNS + tl.arange(0, COLUMNS)
    image, top, left = place(row, side_out, STRIDE, KERNEL // 2)
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
        total = tl.dot(taken, factor, total, input_precision="ieee")
    total += tl.load(bias + column, mask=column < outward, other=0.0)[None, :]
    to = row[:, None] * outward + column[None, :]
    mask = (row < pixels)[:, None] & (column < outward)[None, :]
    if residual is not None:
        total += tl.load(residual + to, mask=mask, other=0.0).to(tl.float32)
    if RELU:
        total = tl.maximum(total, 0.0)
    tl.store(out + to, total, mask=mask)


@triton.jit
def pool(x, bias, out, pixels, side, side_out, CHANNELS_OUT: tl.constexpr, live, ROWS: tl.constexpr):
    """The largest of 3 x 3 pixels, then bias and ReLU: neither changes which is the largest."""
    row, channel = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, CHANNELS_OUT)
    image, top, left = place(row, side_out, 2, 1)
    most = tl.full((ROWS, CHANNELS_OUT), float("-inf"), tl.float32)
    for tap in tl.static_range(9):
        y, z = top + tap // 3, left + tap % 3
        inside = (row < pixels) & (y >= 0) & (y < side) & (z >= 0) & (z < side)
        at = ((image * side + y) * side + z) * live
        mask = inside[:, None] & (channel < live)[None, :]
        most = tl.maximum(
            most, tl.load(x + at[:, None] + channel[None, :], mask=mask, other=float("-inf")).to(tl.float32)
        )
    most = tl.maximum(most + tl.load(bias + channel, mask=channel < live, other=0.0)[None, :], 0.0)
    tl.store(
        out + row[:, None] * live + channel[None, :], most, mask=(row < pixels)[:, None] & (channel < live)[None, :]
    )


def folded(layer: Layer) -> Folded:
    gain = layer["gain"].double() * (layer["variance"].double() + 1e-5).rsqrt()
    weight = (layer["weight"].double() * gain[:, None, None, None]).to(layer["weight"].dtype)
    bias = layer["shift"].double() - layer["mean"].double() * gain
    return weight.contiguous(memory_format=torch.channels_last), bias.float()


def empty(x: Tensor, channels: int, stride: int) -> Tensor:
    side = (x.shape[2] - 1) // stride + 1
    sizes, like = (len(x), channels, side, side), {"dtype": x.dtype, "device": x.device}
    return torch.empty(sizes, memory_format=torch.channels_last, **like)


def convolved(x: Tensor, layer: Folded, stride: int = 1, residual: Tensor | None = None, relu: bool = True) -> Tensor:
    weight, bias = layer
    outward, inward, kernel, _ = weight.shape
    out = empty(x, outward, stride)
    pixels = out.shape[0] * out.shape[2] * out.shape[3]
    columns = 64 if outward <= 64 or triton.cdiv(pixels, 128) * triton.cdiv(outward, 128) < 200 else 128
    grid = (triton.cdiv(pixels, 128) * triton.cdiv(outward, columns),)
    sizes = pixels, x.shape[2], out.shape[2], inward, outward
    convolve[grid](
        x, weight, bias, residual, out, *sizes, kernel, stride, relu, 128, columns,
        num_warps=4 if columns == 64 else 8, num_stages=2 if kernel**2 * inward <= 128 else 3,
    )  # fmt: skip
    return out


def pooled(x: Tensor, bias: Tensor) -> Tensor:
    out, channels = empty(x, x.shape[1], 2), x.shape[1]
    pixels = out.shape[0] * out.shape[2] * out.shape[3]
    wide = triton.next_power_of_2(channels)
    pool[(triton.cdiv(pixels, 64),)](x, bias, out, pixels, x.shape[2], out.shape[2], wide, channels, 64)
    return out


def prepare(images: Tensor, stem: Layer, blocks: list[list[Layer]], head: Tensor) -> Step:
    (first, shift), stages = folded(stem), [[folded(layer) for layer in block] for block in blocks]

    @torch.inference_mode()
    def step() -> Tensor:
        together = images.contiguous(memory_format=torch.channels_last)
        x = F.conv2d(together, first, stride=2, padding=3).contiguous(memory_format=torch.channels_last)
        x = pooled(x, shift)
        for one, two, three, *shortcut in stages:
            stride = 2 if x.shape[1] == 2 * len(two[0]) else 1
            hidden = convolved(convolved(x, one), two, stride)
            x = convolved(hidden, three, residual=convolved(x, shortcut[0], stride, relu=False) if shortcut else x)
        return F.linear(x.mean((2, 3)), head)

    return step
