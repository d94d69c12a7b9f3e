"""A preempted request loses its pages, and when it comes back its whole history passes through the model again."""

import torch
from torch import Tensor

from common.models.caches import Cache, new_cache, prefilling_pages
from common.models.decoder import Shape, Weights, draw_weights, forward, greedy
from common.models.references import planted
from common.python.workload import Cost, Draw, Inputs, Step, Workload

PAGE = 16  # tokens
# Two blocks of Llama-3.1-8B, and a small vocabulary.
EIGHT_B = {"layers": 2, "vocabulary": 32000, "width": 4096, "heads": 32, "kv_heads": 8, "hidden": 14336}
SMALL = {"layers": 2, "vocabulary": 97, "width": 96, "heads": 6, "kv_heads": 2, "hidden": 131}


@torch.inference_mode()
def filled(weights: Weights, shape: Shape, history: Tensor, table: Tensor, pages: int) -> Cache:
    """A pool of pages that holds the keys and values of all but each request's last token."""
    pool = new_cache(shape, pages, PAGE, weights["head"])
    positions = torch.arange(history.shape[1] - 1, device=history.device).expand(len(history), -1)
    forward(weights, shape, history[:, :-1], positions, prefilling_pages(pool, table, positions))
    return pool


def inputs(draw: Draw, shape: dict[str, int], requests: int, history: int, dtype: str) -> Inputs:
    """The requests' pages lie scattered in a pool of twice as many; `table` (requests, pages) names them."""
    weights, span = draw_weights(draw, Shape(**shape), getattr(torch, dtype)), -(-history // PAGE)
    tokens = draw.integers(requests, history, high=shape["vocabulary"])
    table = draw.permutation(2 * requests * span)[: requests * span].view(requests, span)
    pool = filled(weights, Shape(**shape), tokens, table, 2 * requests * span)
    return {
        "weights": weights,
        "shape": Shape(**shape),
        "history": tokens,
        "table": table,
        "keys": [tensor.clone() for tensor in pool.keys],
        "values": [tensor.clone() for tensor in pool.values],
    }


def reference(
    weights: Weights, shape: Shape, history: Tensor, table: Tensor, keys: list[Tensor], values: list[Tensor]
) -> tuple[Tensor, Tensor]:
    """Each request's next token (requests), and the hidden state that chose it (requests, width)."""
    tokens, states = zip(*(planted(weights, shape, row, 1) for row in history))
    return torch.cat(tokens), torch.cat(states)


def cost(shape: dict[str, int], requests: int, history: int, dtype: str) -> Cost:
    """What the next token of each needs: the weights, read once, and its products.

    The state that was lost has to come back, but how is not the problem's concern: over PCIe, or by arithmetic.
    """
    network = Shape(**shape)
    return Cost(
        read=getattr(torch, dtype).itemsize * network.read_weights,
        flops=2 * network.read_weights * requests,
        dtype="bf16",
        items=requests,
        unit="requests",
    )


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"shape": EIGHT_B, "requests": 4, "history": 2048, "dtype": "bfloat16"},
        "test": {"shape": SMALL, "requests": 3, "history": 37, "dtype": "float32"},
    },
    tolerance=2e-2,  # of bf16 through all blocks
    mutates=("keys", "values"),
    clock="end_to_end",
    rungs="page_by_page gathered overlapped",
)


def given_away(stores: list[Tensor], pages: Tensor) -> None:
    """Meanwhile other requests use these pages: nothing is left of what they held."""
    for store in stores:
        store.index_fill_(0, pages, 0.0)


def prepare(
    weights: Weights, shape: Shape, history: Tensor, table: Tensor, keys: list[Tensor], values: list[Tensor]
) -> Step:
    pool, positions = Cache(keys, values), torch.arange(history.shape[1], device=history.device).expand_as(history)

    @torch.inference_mode()
    def step() -> tuple[Tensor, Tensor]:
        given_away([*keys, *values], table.flatten())
        states = forward(weights, shape, history, positions, prefilling_pages(pool, table, positions))[:, -1]
        return greedy(weights, states), states

    return step
