"""The FP4 training recipe call by call: rotate, find maxima, scale, round by noise, pack; each walks through memory."""

import torch
from torch import Tensor

from common.models.formats import decoded
from common.python.workload import Cost, Draw, Inputs, Metered, Step, Workload

BLOCK = 16  # numbers that are rotated together and share a scale
LARGEST = 6.0  # of e2m1: 0, 0.5, 1, 1.5, 2, 3, 4, 6
SHARE = 0.167  # a sixth and a little: after a sixth, scales could lie midway between two e4m3 numbers
LOW, HIGH = 2.0**-6, 448.0  # of a scale, in normal e4m3 numbers


def inputs(draw: Draw, rows: int, blocks: int) -> Inputs:
    """Multiples of 1/16, so that rotating them is exact; a Hadamard matrix with random signs; random bytes."""
    signs = torch.ones(1, 1, device=draw.device)
    while len(signs) < BLOCK:
        signs = torch.cat([torch.cat([signs, signs], 1), torch.cat([signs, -signs], 1)])
    rotation = signs * (2 * draw.integers(BLOCK, 1, high=2) - 1) / 4
    x = draw.normal(rows, blocks * BLOCK, std=16.0).round_().clamp_(-127, 127).div_(16)
    noise = draw.integers(rows, blocks * BLOCK, high=256, dtype=torch.uint8)
    return {"x": x.to(torch.bfloat16), "rotation": rotation.to(torch.bfloat16), "noise": noise}


def quantized(x: Tensor, rotation: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Two codes a byte, and the blocks' scales in e4m3, as bytes."""
    rotated = x.float().view(-1, BLOCK) @ rotation.float()
    scale = (rotated.abs().amax(-1, keepdim=True) * SHARE).clamp(LOW, HIGH).to(torch.float8_e4m3fn)
    size = (rotated.abs() / scale.float()).clamp(max=LARGEST)
    # where it stands among the eight sizes, with a fraction; the noise decides whether it goes up
    place = torch.where(size < 2, 2 * size, torch.where(size < 4, size + 2, size / 2 + 4))
    code = (place + (noise.view(-1, BLOCK) + 0.5) / 256).to(torch.uint8) + (rotated < 0).to(torch.uint8) * 8
    packed = code[:, ::2] | code[:, 1::2] << 4
    return packed.view(len(x), -1), scale.view(torch.uint8).view(len(x), -1)


workload = Workload(
    inputs=inputs,
    reference=lambda x, rotation, noise: quantized(x.float(), rotation.float(), noise),  # exact in fp32
    cost=lambda rows, blocks: Cost(read=3 * BLOCK * rows * blocks, write=(BLOCK // 2 + 1) * rows * blocks),
    sizes={"bench": {"rows": 32768, "blocks": 512}, "test": {"rows": 197, "blocks": 11}},
    tolerance=0.0,  # bytes
)


def metered(step: Step, x: Tensor, rotation: Tensor, noise: Tensor) -> Metered:
    """What rounding costs, beside the step: the normwise relative error of the formula's numbers, in the first rows."""

    def metrics() -> dict[str, float]:
        some, turn = x[:64].float(), rotation.float()
        packed, scales = quantized(some, turn, noise[:64])
        codes, rotated = torch.stack((packed & 15, packed >> 4), dim=-1).view(-1, BLOCK), some.view(-1, BLOCK) @ turn
        numbers = decoded(codes, "e2m1") * decoded(scales.view(-1, 1), "e4m3")
        return {"quantisation error": float((numbers - rotated).norm() / rotated.norm())}

    return Metered(step, metrics)


def prepare(x: Tensor, rotation: Tensor, noise: Tensor) -> Metered:
    def step() -> tuple[Tensor, Tensor]:
        return quantized(x, rotation, noise)

    return metered(step, x, rotation, noise)
