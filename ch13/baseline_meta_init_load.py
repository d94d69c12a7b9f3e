"""The model is built as for training, with random weights, and the checkpoint's are then copied over all of them."""

import torch
from torch import Tensor, nn

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def network(layers: int, width: int, device: str | None = None) -> nn.Sequential:
    """An MLP; PyTorch's modules draw their first weights as they are made, on the device that is named."""
    inner = [module for _ in range(layers) for module in (nn.Linear(width, width, device=device), nn.GELU())]
    return nn.Sequential(*inner, nn.Linear(width, width, device=device))


def inputs(draw: Draw, layers: int, width: int, tokens: int) -> Inputs:
    shapes = {name: of.shape for name, of in network(layers, width, "meta").state_dict().items()}
    return {
        "checkpoint": {name: draw.host.normal(*shape, std=width**-0.5) for name, shape in shapes.items()},
        "x": draw.normal(tokens, width),
    }


def run(model: nn.Sequential, x: Tensor) -> Tensor:
    """What the model gives for its first tokens, once it is where they are."""
    with torch.inference_mode():
        return model.to(x.device)(x)


def reference(checkpoint: dict[str, Tensor], x: Tensor) -> Tensor:
    matrices = zip(list(checkpoint.values())[::2], list(checkpoint.values())[1::2])
    for index, (weight, bias) in enumerate(matrices):
        x = nn.functional.linear(nn.functional.gelu(x) if index else x, weight, bias)
    return x


def cost(layers: int, width: int, tokens: int) -> Cost:
    """The checkpoint crosses PCIe once, and is read where it lies."""
    held = 4 * (layers + 1) * (width**2 + width)
    return Cost(pcie_bytes=held, host_bytes=held, items=held / 4, unit="weights")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"layers": 15, "width": 2048, "tokens": 4},
        "cpu": {"layers": 15, "width": 512, "tokens": 4},
        "test": {"layers": 3, "width": 37, "tokens": 3},
    },
    tolerance=1e-5,
    clock="end_to_end",
)


def prepare(checkpoint: dict[str, Tensor], x: Tensor) -> Step:
    layers, width = len(checkpoint) // 2 - 1, x.shape[1]

    def step() -> Tensor:
        model = network(layers, width)
        model.load_state_dict(checkpoint)
        return run(model, x)

    return step
