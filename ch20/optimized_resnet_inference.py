"""Batch norms are folded into weights, and cuDNN's convolutions add bias and residual and take ReLU."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

from ch20.baseline_resnet_inference import Layer
from ch20.baseline_resnet_inference import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)  # cuDNN


@triton.jit(do_not_specialize=["pixels", "side", "side_out"])
def pool(x, bias, out, pixels, side, side_out, CHANNELS: tl.constexpr, WIDTH: tl.constexpr, PIXELS: tl.constexpr):
    """The largest of nine, then bias and ReLU, neither of which changes which of nine is the largest."""
    pixel, channel = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS), tl.arange(0, WIDTH)
    image, place = pixel // (side_out * side_out), pixel % (side_out * side_out)
    top, left = place // side_out * 2 - 1, place % side_out * 2 - 1
    most, live = tl.full((PIXELS, WIDTH), float("-inf"), tl.float32), (channel < CHANNELS)[None, :]
    for tap in tl.static_range(9):
        y, z = top + tap // 3, left + tap % 3
        inside = (pixel < pixels) & (y >= 0) & (y < side) & (z >= 0) & (z < side)
        at = ((image * side + y) * side + z) * CHANNELS
        mask = inside[:, None] & live
        taken = tl.load(x + at[:, None] + channel[None, :], mask=mask, other=float("-inf"))
        most = tl.maximum(most, taken.to(tl.float32))
    most = tl.maximum(most + tl.load(bias + channel, mask=channel < CHANNELS, other=0.0).to(tl.float32)[None, :], 0.0)
    tl.store(out + pixel[:, None] * CHANNELS + channel[None, :], most, mask=(pixel < pixels)[:, None] & live)


def pooled(x: Tensor, bias: Tensor) -> Tensor:
    images, channels, side, _ = x.shape
    half = (side + 1) // 2
    out = torch.empty((images, channels, half, half), dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    x, sizes = x.contiguous(memory_format=torch.channels_last), (images * half**2, side, half)
    pool[(triton.cdiv(sizes[0], 32),)](x, bias, out, *sizes, channels, triton.next_power_of_2(channels), 32)
    return out


def folded(layer: Layer) -> tuple[Tensor, Tensor]:
    dtype, gain = layer["weight"].dtype, layer["gain"].double() * (layer["variance"].double() + 1e-5).rsqrt()
    weight, bias = layer["weight"] * gain[:, None, None, None], layer["shift"].double() - layer["mean"].double() * gain
    return weight.to(dtype).contiguous(memory_format=torch.channels_last), bias.to(dtype)


def prepare(images: Tensor, stem: Layer, blocks: list[list[Layer]], head: Tensor) -> Step:
    (first, bias), stages = folded(stem), [[folded(layer) for layer in block] for block in blocks]
    for block in stages:
        if len(block) == 4:  # the shortcut's bias is added with the third convolution's
            block[2] = block[2][0], block[2][1] + block[3][1]

    def place(weight: Tensor, stride: int) -> tuple[list[int], list[int], list[int], int]:
        return [stride] * 2, [weight.shape[2] // 2] * 2, [1, 1], 1

    @torch.inference_mode()
    def step() -> Tensor:
        with torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=True):
            together = images.contiguous(memory_format=torch.channels_last)
            x = pooled(F.conv2d(together, first, stride=2, padding=3), bias)
            for one, two, three, *shortcut in stages:
                stride = 2 if x.shape[1] == 2 * len(two[0]) else 1
                hidden = torch.cudnn_convolution_relu(x, *one, *place(one[0], 1))
                hidden = torch.cudnn_convolution_relu(hidden, *two, *place(two[0], stride))
                kept = F.conv2d(x, shortcut[0][0], stride=stride) if shortcut else x
                x = torch.cudnn_convolution_add_relu(hidden, three[0], kept, 1.0, three[1], *place(three[0], 1))
        return F.linear(x.mean((2, 3)), head)

    return step
