"""Each token's record is a new object; the collector, which counts those, walks the whole heap while launches wait."""

import gc
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Metered, Workload


def inputs(draw: Draw, held: int, iterations: int, batch: int) -> Inputs:
    return {"tokens": draw.host.integers(iterations, batch, high=50_000), "state": draw.normal(batch), "held": held}


def reference(tokens: Tensor, state: Tensor, held: int) -> tuple[Tensor, Tensor]:
    """The state is scaled and shifted once for each iteration."""
    for _ in tokens:
        state = 0.5 * state + 1
    return state, tokens.sum(0).cpu()


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=lambda held, iterations, batch: Cost(
        read=4 * batch, write=4 * batch, host_bytes=8 * iterations * batch, items=iterations * batch, unit="tokens"
    ),
    # A full collection comes when the new objects that survived are a quarter of the old ones.
    sizes={
        "bench": {"held": 1_000_000, "iterations": 150, "batch": 1024},
        "cpu": {"held": 250_000, "iterations": 40, "batch": 1024},
        "test": {"held": 997, "iterations": 5, "batch": 37},
    },
    tolerance=1e-6,
    clock="end_to_end",
    isolated=True,  # the collector and its frozen objects are the whole process's
)


def loaded(held: int) -> list[dict[str, Any]]:
    """What a server holds for its lifetime: a vocabulary, a tree of cached prefixes, a model of many parts."""
    return [{"id": index, "children": []} for index in range(held // 2)]


def serve(
    tokens: Tensor, state: Tensor, heap: list[dict[str, Any]], afterwards: Callable[[], object] = lambda: None
) -> Metered:
    """A launch for each iteration, and a record for each token, kept until its request has ended; then `afterwards`."""

    def answer() -> tuple[Tensor, Tensor]:
        out, histories = state.clone(), [list[dict[str, Any]]() for _ in range(tokens.shape[1])]
        for iteration, row in enumerate(tokens.tolist()):
            out.mul_(0.5).add_(1)
            for history, token in zip(histories, row):
                history.append({"token": token, "iteration": iteration, "text": []})
        assert heap  # it lives as long as the step
        return out, torch.tensor([sum(record["token"] for record in history) for history in histories])

    def step() -> tuple[Tensor, Tensor]:
        answered = answer()
        afterwards()
        return answered

    def metrics() -> dict[str, float]:
        before = gc.get_stats()
        step()
        collections = [now["collections"] - then["collections"] for now, then in zip(gc.get_stats(), before)]
        return {
            "full collections": collections[-1],
            "all collections": sum(collections),
            "frozen": gc.get_freeze_count(),
        }

    return Metered(step, metrics)


def prepare(tokens: Tensor, state: Tensor, held: int) -> Metered:
    return serve(tokens, state, loaded(held))
