"""The weights are in host memory: each layer's are copied in, the host waits for them, and then the layer runs."""

import torch
from torch import Tensor
from torch.nn.functional import rms_norm

from common.models.caches import causal_attention
from common.models.decoder import EPSILON, Shape, Weights, block, draw_weights, turns
from common.models.references import hidden_states
from common.python.workload import Cost, Draw, Inputs, Step, Workload

# The blocks of TinyLlama, of which eight are enough to see a steady state.
TINYLLAMA = {"layers": 8, "vocabulary": 1, "width": 2048, "heads": 32, "kv_heads": 4, "hidden": 5632}
SMALL = {"layers": 3, "vocabulary": 1, "width": 96, "heads": 6, "kv_heads": 2, "hidden": 131}


def inputs(draw: Draw, shape: dict[str, int], batch: int, length: int, dtype: str) -> Inputs:
    """`layers` are on the host, page-locked where there is a GPU to copy them to, which holds two of them at most."""
    network, element = Shape(**shape), getattr(torch, dtype)
    host = draw_weights(draw.host, network, element)["layers"]
    if draw.device.type != "cpu":
        host = [{name: matrix.pin_memory() for name, matrix in layer.items()} for layer in host]
    x = draw.normal(batch, length, network.width, dtype=element)
    return {"x": x, "layers": host, "shape": network}


def reference(x: Tensor, layers: list[Weights], shape: Shape) -> Tensor:
    weights = {"layers": layers, "norm": torch.ones_like(x[0, 0])}
    tokens = torch.arange(x.shape[1], device=x.device)
    return torch.stack([hidden_states(weights | {"embedding": row}, shape, tokens) for row in x])


def cost(shape: dict[str, int], batch: int, length: int, dtype: str) -> Cost:
    """Each weight crosses PCIe once, and meets every token in two FLOPs; a token sees half of all keys."""
    network, tokens = Shape(**shape), batch * length
    weights = network.layers * network.layer_weights
    return Cost(
        pcie_bytes=weights * getattr(torch, dtype).itemsize,
        flops=2 * tokens * (weights + network.layers * length * network.width),
        dtype="bf16",
        items=tokens,
        unit="tokens",
    )


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        # 88 MB a layer: 1.6 ms on PCIe, and 1.0 to 1.3 ms of work for 6,144 tokens
        "bench": {"shape": TINYLLAMA, "batch": 3, "length": 2048, "dtype": "bfloat16"},
        "test": {"shape": SMALL, "batch": 2, "length": 13, "dtype": "float32"},
    },
    tolerance=2e-2,  # of bf16, which rounds the hidden states 16 times on their way through eight blocks
    clock="end_to_end",
)


def prepare(x: Tensor, layers: list[Weights], shape: Shape) -> Step:
    positions = torch.arange(x.shape[1], device=x.device)[None]

    @torch.inference_mode()
    def step() -> Tensor:
        hidden, (cos, sin) = x, turns(shape, positions, x.dtype)
        for layer in layers:
            here = {name: matrix.to(x.device) for name, matrix in layer.items()}
            hidden = block(here, shape, hidden, cos, sin, causal_attention)
        return rms_norm(hidden, (shape.width,), eps=EPSILON)

    return step
