"""The next layer's weights cross PCIe as one copy: the small copy that each decode step needs waits behind it."""

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, fetched: int, steps: int, rows: int, width: int) -> Inputs:
    return {
        "weights": draw.host.normal(fetched, dtype=torch.float16),
        "tokens": draw.host.integers(steps, rows, high=rows),
        "start": draw.normal(rows, width),
        "embedding": draw.normal(rows, width),
        "mix": draw.normal(width, width, std=width**-0.5),
    }


def reference(weights: Tensor, tokens: Tensor, start: Tensor, embedding: Tensor, mix: Tensor) -> tuple[Tensor, Tensor]:
    for ids in tokens.to(start.device):
        start = ((start + embedding[ids]) @ mix).tanh()
    return weights.to(start.device), start


def cost(fetched: int, steps: int, rows: int, width: int) -> Cost:
    read, sent = 4 * width * (2 * rows + width), 2 * fetched + 8 * steps * rows
    written = 2 * fetched + 4 * rows * width
    return Cost(flops=2 * steps * rows * width**2, read=read, write=written, pcie_bytes=sent, items=steps, unit="steps")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    # 128 MiB take 2.4 ms, and 16 steps of 2.1 GFLOP some 1.6
    sizes={
        "bench": {"fetched": 1 << 26, "steps": 16, "rows": 256, "width": 2048},
        "test": {"fetched": 2_100_007, "steps": 5, "rows": 13, "width": 37},
    },
    tolerance=1e-5,
    frozen=("weights", "embedding", "mix"),
    as_drawn=("weights",),
    clock="end_to_end",
)


def decoded(inputs: Inputs, piece: int) -> Step:
    """A step that fetches the weights in copies of `piece` numbers on one stream, and decodes on another."""
    tokens, start, embedding, mix = (inputs[name] for name in ("tokens", "start", "embedding", "mix"))
    gpu, on_gpu = torch.get_device_module(start.device), start.is_cuda
    weights = inputs["weights"].pin_memory() if on_gpu else inputs["weights"]
    arrived, pieces = weights.new_empty(weights.shape, device=start.device), weights.split(piece)
    staged = torch.empty_like(tokens, pin_memory=on_gpu)
    ids = torch.empty_like(tokens, device=start.device)
    fetch, sent = gpu.Stream(), gpu.Event()

    def step() -> tuple[Tensor, Tensor]:
        fetch.wait_stream(gpu.current_stream())
        with gpu.stream(fetch):
            for source, target in zip(pieces, arrived.split(piece)):
                target.copy_(source, non_blocking=True)
        sent.synchronize()  # the last tokens have left the buffer
        state = start
        for drawn, here, there in zip(tokens, staged, ids):
            there.copy_(here.copy_(drawn), non_blocking=True)
            state = ((state + embedding[there]) @ mix).tanh_()
        sent.record()
        gpu.current_stream().wait_stream(fetch)
        return arrived, state

    return step


def prepare(**inputs: Tensor) -> Step:
    return decoded(inputs, piece=len(inputs["weights"]))
