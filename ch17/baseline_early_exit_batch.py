"""All layers for all samples, and then for each the answer of its first sure exit: most of the work is for nothing."""

import torch
from torch import Tensor
from torch.nn.functional import gelu, linear, rms_norm

from common.python.workload import Cost, Draw, Inputs, Step, Workload

LEAVE = [0.4, 0.25, 0.15, 0.08, 0.05]  # of all samples, at each exit; the others stay to the end
EXITS, LAYERS = len(LEAVE) + 1, 4  # an exit stands after every four layers
SIDE = 8.0  # how far from zero an exit's score is planted; what the layers add has a standard deviation of 1.6


def leaving(samples: int) -> list[int]:
    """How many samples leave at each exit."""
    early = [int(share * samples) for share in LEAVE]
    return [*early, samples - sum(early)]


def inputs(draw: Draw, samples: int, width: int, classes: int, dtype: str) -> Inputs:
    """Each exit has a probe, and a sample that lies on its positive side may leave there.

    The probes are orthogonal, and samples are planted far out on either side: no rounding decides where one leaves.
    """
    element, depth = getattr(torch, dtype), (LAYERS * EXITS) ** -0.5
    probes, exits = torch.linalg.qr(draw.normal(width, EXITS)).Q.T, torch.arange(EXITS, device=draw.device)
    counts = torch.tensor(leaving(samples), device=draw.device)
    own = exits.repeat_interleave(counts)[draw.permutation(samples), None]
    may = torch.where(exits > own, draw.integers(samples, EXITS, high=2).bool(), exits == own)
    side = torch.where(may, SIDE, -SIDE)
    layers = range(LAYERS * EXITS)
    return {
        "x": (draw.normal(samples, width) + side @ probes).to(element),
        "up": [draw.normal(4 * width, width, std=width**-0.5, dtype=element) for _ in layers],
        "down": [draw.normal(width, 4 * width, std=depth * width**-0.5, dtype=element) for _ in layers],
        "heads": [draw.normal(classes, width, std=width**-0.5, dtype=element) for _ in range(EXITS)],
        "probes": probes.to(element),
    }


def deeper(x: Tensor, up: list[Tensor], down: list[Tensor], index: int) -> Tensor:
    """The states (rows, width) after the layers before exit number `index`."""
    for layer in range(index * LAYERS, (index + 1) * LAYERS):
        x = x + linear(gelu(linear(rms_norm(x, x.shape[-1:]), up[layer]), approximate="tanh"), down[layer])
    return x


def in_full(
    x: Tensor, up: list[Tensor], down: list[Tensor], heads: list[Tensor], probes: Tensor
) -> tuple[Tensor, Tensor]:
    """Each sample's logits (samples, classes) at its exit, and the exit's number."""
    first, logits = torch.full_like(x[:, 0], EXITS - 1, dtype=torch.int64), []
    for index, (head, probe) in enumerate(zip(heads, probes)):
        x = deeper(x, up, down, index)
        first = torch.where(x @ probe > 0, first.clamp(max=index), first)
        logits.append(linear(rms_norm(x, x.shape[-1:]), head))
    return torch.stack(logits)[first, torch.arange(len(x), device=x.device)], first


def cost(samples: int, width: int, classes: int, dtype: str) -> Cost:
    """The layers that each sample needs, and one head."""
    passed = sum(index * count for index, count in enumerate(leaving(samples), start=1))
    layers = LAYERS * EXITS
    return Cost(
        flops=16 * LAYERS * passed * width**2 + 2 * samples * classes * width,
        dtype="bf16",
        read=2 * (width * (8 * layers * width + EXITS * classes) + samples * width),
        write=2 * samples * classes,
        items=samples,
        unit="samples",
    )


workload = Workload(
    inputs=inputs,
    reference=in_full,
    cost=cost,
    sizes={
        # 403 MB of weights; of all that the baseline passes through layers, 61% is past its exit
        "bench": {"samples": 8192, "width": 1024, "classes": 1000, "dtype": "bfloat16"},
        "cpu": {"samples": 192, "width": 64, "classes": 10, "dtype": "float32"},
        "test": {"samples": 43, "width": 19, "classes": 7, "dtype": "float32"},
    },
    tolerance=2e-2,  # bf16 rounds (2e-3) the state after each of up to 24 layers
    frozen=("up", "down", "heads"),
    clock="end_to_end",
)


def prepare(x: Tensor, up: list[Tensor], down: list[Tensor], heads: list[Tensor], probes: Tensor) -> Step:
    def step() -> tuple[Tensor, Tensor]:
        return in_full(x, up, down, heads, probes)

    return step
