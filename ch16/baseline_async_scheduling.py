"""The host waits for a step's tokens, does its bookkeeping, and then launches the next: the GPU idles meanwhile."""

from collections.abc import Callable

import torch
from torch import Tensor

from common.models.caches import continuing_pages, new_cache
from common.models.decoder import Shape, Weights, draw_weights, forward, greedy
from common.models.graphs import replayable
from common.models.lengths import SPREAD, length_mix
from common.models.references import planted
from common.python.workload import Cost, Draw, Inputs, Step, Workload

PAGE = 16  # tokens
BLOCKS = {"layers": 2, "vocabulary": 32000, "width": 4096, "heads": 32, "kv_heads": 8, "hidden": 14336}  # Llama-3.1-8B
SMALL = {"layers": 2, "vocabulary": 97, "width": 96, "heads": 6, "kv_heads": 2, "hidden": 131}


def inputs(draw: Draw, shape: dict[str, int], requests: int, mean: float, new: int, dtype: str) -> Inputs:
    """Each request starts from one token and ends at a stop token of its own: the chain's, where its length ends."""
    weights = draw_weights(draw, Shape(**shape), getattr(torch, dtype))
    mix, first = (
        torch.tensor(length_mix(requests, mean, new, SPREAD)),
        draw.integers(requests, high=shape["vocabulary"]),
    )
    wanted, stops = mix.to(draw.device)[draw.permutation(requests)], first
    for passed in range(new):
        stops = torch.where(passed < wanted, weights["successor"][stops], stops)
    return {"weights": weights, "shape": Shape(**shape), "first": first, "stops": stops.cpu(), "new": new}


def reference(weights: Weights, shape: Shape, first: Tensor, stops: Tensor, new: int) -> tuple[Tensor, Tensor]:
    """Tokens (requests, new), and the states (requests, new, width) that chose them; -1 and 0 after a stop token."""
    tokens, states = map(torch.stack, zip(*(planted(weights, shape, start, new) for start in first.split(1))))
    over = (tokens == stops[:, None].to(first.device)).cumsum(1).cumsum(1) > 1
    return tokens.masked_fill(over, -1), states.masked_fill(over[..., None], 0.0)


def cost(shape: dict[str, int], requests: int, mean: float, new: int, dtype: str) -> Cost:
    """A step for each token of the longest answer; each reads all weights."""
    numbers, counts = Shape(**shape).read_weights, length_mix(requests, mean, new, SPREAD)
    read, flops = getattr(torch, dtype).itemsize * numbers * max(counts), 2 * numbers * sum(counts)
    return Cost(read=read, flops=flops, dtype="bf16", passes=max(counts), items=sum(counts), unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"shape": BLOCKS, "requests": 256, "mean": 15.0, "new": 24, "dtype": "bfloat16"},
        "test": {"shape": SMALL, "requests": 7, "mean": 9.0, "new": 19, "dtype": "float32"},
    },
    tolerance=2e-2,  # of bf16 through all blocks
    clock="end_to_end",
)


class Scheduler:
    """A server's bookkeeping, in Python: what requests have answered, and the pages of those that go on."""

    def __init__(self, stops: list[int], span: int) -> None:
        self.stops, self.span, self.position, self.answers = stops, span, 0, [list[int]() for _ in stops]
        self.live = {request: list[int]() for request in range(len(stops))}
        self.free = list(range(span * len(stops), 0, -1))  # page 0 takes what idle rows write

    def advance(self) -> Tensor:
        """The pages of each request (requests, span) for the next token; one is added where that begins a page."""
        for pages in self.live.values() if self.position % PAGE == 0 else ():
            pages.append(self.free.pop())
        self.position += 1
        of_each = (self.live.get(request, []) for request in range(len(self.stops)))
        return torch.tensor([pages + [0] * (self.span - len(pages)) for pages in of_each])

    def take(self, tokens: list[int]) -> None:
        """What a step chose. A request that meets its stop token gives back its pages."""
        for request in list(self.live):
            self.answers[request].append(tokens[request])
            if tokens[request] == self.stops[request]:
                self.free += self.live.pop(request)


def served(weights: Weights, shape: Shape, first: Tensor, stops: Tensor, new: int, loop: Callable[..., None]) -> Step:
    """`loop(scheduler, decode, latest)` serves all: `decode(pages)` starts a pass, which puts tokens into `latest`."""
    requests, span, head = len(first), new // PAGE + 1, weights["head"]  # one token more than wanted: who runs ahead
    pool, table = new_cache(shape, 1 + requests * span, PAGE, head), first.new_zeros(requests, span)
    states, latest, made = head.new_empty(new + 1, requests, shape.width), first.clone(), first.new_zeros(1)

    def one_more() -> None:
        here = made.expand(requests, 1)
        hidden = forward(weights, shape, latest[:, None], here, continuing_pages(pool, table, here))[:, 0]
        latest.copy_(greedy(weights, hidden))
        states[made] = hidden
        made.add_(1)

    again = replayable(one_more, first.device)

    def decode(pages: Tensor) -> None:
        table.copy_(pages.pin_memory() if table.is_cuda else pages, non_blocking=True)
        again()

    @torch.inference_mode()
    def step() -> tuple[Tensor, Tensor]:
        scheduler = Scheduler(stops.tolist(), span)
        latest.copy_(first), made.zero_()
        loop(scheduler, decode, latest)
        tokens = torch.tensor([answer + [-1] * (new - len(answer)) for answer in scheduler.answers]).to(first.device)
        return tokens, states[:new].transpose(0, 1).masked_fill((tokens < 0)[..., None], 0.0)

    return step


def prepare(weights: Weights, shape: Shape, first: Tensor, stops: Tensor, new: int) -> Step:
    def wait(scheduler: Scheduler, decode: Callable[[Tensor], None], latest: Tensor) -> None:
        while scheduler.live:
            decode(scheduler.advance())
            scheduler.take(latest.tolist())

    return served(weights, shape, first, stops, new, wait)
