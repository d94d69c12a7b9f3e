"""A new token's keys and values are concatenated to the old ones: in each layer the whole cache is copied for them."""

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload

KV_HEADS, HEAD_DIM = 8, 128  # of Llama-3.1-8B


def inputs(draw: Draw, layers: int, batch: int, past: int, steps: int, dtype: str) -> Inputs:
    """Caches (batch, heads, past + steps, head_dim) that are filled up to `past`, what comes, and where it belongs."""
    element, room = getattr(torch, dtype), past + steps
    caches = [draw.normal(batch, KV_HEADS, room, HEAD_DIM, dtype=element) for _ in range(2 * layers)]
    return {
        "keys": caches[:layers],
        "values": caches[layers:],
        "fresh": draw.normal(steps, layers, 2, batch, KV_HEADS, 1, HEAD_DIM, dtype=element),
        "positions": torch.arange(past, room, device=draw.device),
    }


def reference(keys: list[Tensor], values: list[Tensor], fresh: Tensor, positions: Tensor) -> tuple[Tensor, ...]:
    """The caches with the new tokens in them: keys of all layers, then values."""
    for layer, stores in enumerate(zip(keys, values)):
        for store, new in zip(stores, fresh[:, layer].unbind(1)):  # (steps, batch, heads, 1, head_dim)
            store[:, :, positions] = new[:, :, :, 0].permute(1, 2, 0, 3)
    return *keys, *values


def cost(layers: int, batch: int, past: int, steps: int, dtype: str) -> Cost:
    """The new tokens in and out; one kernel could store them all."""
    moved = 2 * 2 * layers * batch * steps * KV_HEADS * HEAD_DIM
    return Cost(read=moved, write=moved, launches=1, items=layers * batch * steps, unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"layers": 8, "batch": 256, "past": 224, "steps": 32, "dtype": "bfloat16"},
        "test": {"layers": 2, "batch": 3, "past": 37, "steps": 3, "dtype": "float16"},  # interpreted: no bf16
    },
    tolerance=0.0,  # a copy is exact
    mutates=("keys", "values"),
)


def prepare(keys: list[Tensor], values: list[Tensor], fresh: Tensor, positions: Tensor) -> Step:
    past = keys[0].shape[2] - len(positions)

    def step() -> tuple[Tensor, ...]:
        stores = [[cache[:, :, :past] for cache in caches] for caches in (keys, values)]
        for of_step in fresh:
            for layer, new in enumerate(of_step):
                for caches, token in zip(stores, new):
                    caches[layer] = torch.cat([caches[layer], token], dim=2)
        return *stores[0], *stores[1]

    return step
