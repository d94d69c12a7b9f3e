"""The host waits for a step's tokens, does its bookkeeping, and then launches the next: the GPU idles meanwhile."""

from collections.abc import Callable

import torch
from torch import Tensor

from common.models.caches import continuing_pages, new_cache, prefilling_pages
from common.models.decoder import Shape, Weights, draw_weights, forward, greedy
from common.models.graphs import replayable
from common.models.lengths import SPREAD, length_mix
from common.models.references import planted
from common.python.workload import Cost, Draw, Inputs, Step, Workload

PAGE = 16  # tokens
# Two blocks of Llama-3.1-8B, and a small vocabulary.
EIGHT_B = {"layers": 2, "vocabulary": 32000, "width": 4096, "heads": 32, "kv_heads": 8, "hidden": 14336}
SMALL = {"layers": 2, "vocabulary": 97, "width": 96, "heads": 6, "kv_heads": 2, "hidden": 131}


def inputs(draw: Draw, shape: dict[str, int], requests: int, prompt: int, mean: float, new: int, dtype: str) -> Inputs:
    """Each request ends at a stop token of its own, on the host: that of the planted chain where its length ends."""
    weights = draw_weights(draw, Shape(**shape), getattr(torch, dtype))
    prompts = draw.integers(requests, prompt, high=shape["vocabulary"])
    chain = [prompts[:, -1]]
    for _ in range(new):
        chain.append(weights["successor"][chain[-1]])
    wanted = torch.tensor(length_mix(requests, mean, new, SPREAD), device=draw.device)[draw.permutation(requests)]
    stops = torch.stack(chain, 1).gather(1, wanted[:, None])[:, 0].cpu()
    return {"weights": weights, "shape": Shape(**shape), "prompt": prompts, "stops": stops, "new": new}


def reference(weights: Weights, shape: Shape, prompt: Tensor, stops: Tensor, new: int) -> tuple[Tensor, Tensor]:
    """Tokens (requests, new), -1 after a request's stop token, and the hidden state that chose each stop token."""
    tokens, states = prompt.new_full((len(prompt), new), -1), []
    for row, start, stop in zip(tokens, prompt, stops):
        chosen, hidden = planted(weights, shape, start, new)
        count = int((chosen == stop).nonzero()[0]) + 1
        row[:count] = chosen[:count]
        states.append(hidden[count - 1])
    return tokens, torch.stack(states)


def cost(shape: dict[str, int], requests: int, prompt: int, mean: float, new: int, dtype: str) -> Cost:
    """The prompts' pass and a step for each further token of the longest answer; each reads all weights."""
    network, counts = Shape(**shape), length_mix(requests, mean, new, SPREAD)
    blocks, head = network.layers * network.layer_weights, network.width * network.vocabulary
    return Cost(
        read=getattr(torch, dtype).itemsize * network.read_weights * max(counts),
        flops=2 * (blocks * (sum(counts) + (prompt - 1) * requests) + head * sum(counts)),
        dtype="bf16",
        items=sum(counts),
        unit="tokens",
    )


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"shape": EIGHT_B, "requests": 256, "prompt": 16, "mean": 24.0, "new": 40, "dtype": "bfloat16"},
        "test": {"shape": SMALL, "requests": 7, "prompt": 14, "mean": 5.0, "new": 9, "dtype": "float32"},
    },
    tolerance=2e-2,  # of bf16 through all blocks
    clock="end_to_end",
)


class Scheduler:
    """A server's bookkeeping, in Python: what each request has answered, whether it goes on, and its cache's pages."""

    def __init__(self, prompt: int, stops: list[int], new: int) -> None:
        self.stops, self.new, self.position = stops, new, prompt
        self.span = -(-(prompt + new + 1) // PAGE)  # pages of the longest request
        self.free = list(range(self.span * len(stops), 0, -1))  # page 0 takes what idle rows write
        self.pages = [[self.free.pop() for _ in range(-(-prompt // PAGE))] for _ in stops]
        self.answers: list[list[int]] = [[] for _ in stops]
        self.live = set(range(len(stops)))

    def table(self) -> Tensor:
        """The pages of each request, int64 (requests, span), on the host."""
        return torch.tensor([(own + [0] * self.span)[: self.span] for own in self.pages])

    def advance(self) -> Tensor:
        """The table for the next token of all requests that still run; a page is added where it begins one."""
        for request in self.live:
            if self.position % PAGE == 0:
                self.pages[request].append(self.free.pop())
        self.position += 1
        return self.table()

    def take(self, tokens: list[int]) -> None:
        """What a step chose. A request that meets its stop token, or its limit, gives back its pages."""
        for request in sorted(self.live):
            answer, token = self.answers[request], tokens[request]
            answer.append(token)
            if token == self.stops[request] or len(answer) == self.new:
                self.live.remove(request)
                self.free += self.pages[request]
                self.pages[request] = []


def served(weights: Weights, shape: Shape, prompt: Tensor, stops: Tensor, new: int, loop: Callable[..., None]) -> Step:
    """The step in which `loop(scheduler, decode, latest)` serves all requests, whose first tokens are in `latest`.

    `decode(table)` starts a step for one more token of each request, which will be in `latest`, and does not wait.
    """
    (requests, start), head = prompt.shape, weights["head"]
    span = Scheduler(start, stops.tolist(), new).span
    pool, table = new_cache(shape, 1 + requests * span, PAGE, head), prompt.new_zeros(requests, span)
    states = head.new_empty(new + 1, requests, shape.width)  # one step more than wanted, for who runs ahead
    latest, made = prompt.new_zeros(requests), prompt.new_zeros(1)
    positions = torch.arange(start, device=prompt.device).expand(requests, -1)

    def choose(hidden: Tensor) -> None:
        latest.copy_(greedy(weights, hidden))
        states[made] = hidden
        made.add_(1)

    def one_more() -> None:
        here = (made + (start - 1)).expand(requests, 1)
        choose(forward(weights, shape, latest[:, None], here, continuing_pages(pool, table, here))[:, 0])

    made.fill_(1)
    again = replayable(one_more, prompt.device)

    def decode(pages: Tensor) -> None:
        table.copy_(pages, non_blocking=True)  # a few numbers: the driver has copied them aside when the call returns
        again()

    @torch.inference_mode()
    def step() -> tuple[Tensor, Tensor]:
        scheduler = Scheduler(start, stops.tolist(), new)
        table.copy_(scheduler.table(), non_blocking=True)
        made.zero_()
        choose(forward(weights, shape, prompt, positions, prefilling_pages(pool, table, positions))[:, -1])
        loop(scheduler, decode, latest)
        last = torch.tensor([len(answer) - 1 for answer in scheduler.answers])
        tokens = torch.tensor([answer + [-1] * (new - len(answer)) for answer in scheduler.answers])
        return tokens.to(prompt.device), states[last.to(prompt.device), torch.arange(requests, device=prompt.device)]

    return step


def one_after_the_other(scheduler: Scheduler, decode: Callable[[Tensor], None], latest: Tensor) -> None:
    scheduler.take(latest.tolist())
    while scheduler.live:
        decode(scheduler.advance())
        scheduler.take(latest.tolist())


def prepare(weights: Weights, shape: Shape, prompt: Tensor, stops: Tensor, new: int) -> Step:
    return served(weights, shape, prompt, stops, new, one_after_the_other)
