"""A Python thread counts tokens while another launches: each launch gives the GIL up, and waits 5 ms to get it back."""

import math
import mmap
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload

LETTERS = 16
# Each letter is a token, and so is each pair of two in alphabetical order.
TOKENS = [bytes([a]) for a in range(LETTERS)] + [bytes([a, b]) for b in range(LETTERS) for a in range(b)]
IDS = {token: index for index, token in enumerate(TOKENS)}


def shared(*shape: int, dtype: torch.dtype) -> Tensor:
    """A tensor in memory that forked processes have in common; torch's own way needs /dev/shm, small in containers."""
    return torch.frombuffer(mmap.mmap(-1, dtype.itemsize * math.prod(shape)), dtype=dtype).view(shape)


def count_tokens(texts: Tensor, counts: Tensor) -> None:
    """How often each token occurs in texts (count, length) of letters, cut greedily from the left, in plain Python."""
    found = [0] * len(TOKENS)
    for text in map(bytes, texts.numpy()):
        at = 0
        while at < len(text):
            size = 2 if text[at : at + 2] in IDS else 1  # one letter at the end is a token by itself
            found[IDS[text[at : at + size]]] += 1
            at += size
    counts.numpy()[:] = found


def inputs(draw: Draw, launches: int, n: int, texts: int, length: int) -> Inputs:
    letters = shared(texts, length, dtype=torch.uint8)
    drawn = draw.host.integers(texts, length, high=LETTERS, dtype=torch.uint8)
    return {"deltas": draw.normal(launches, n), "texts": letters.copy_(drawn)}


def reference(deltas: Tensor, texts: Tensor) -> tuple[Tensor, Tensor]:
    counts = torch.empty(len(TOKENS), dtype=torch.int64)
    count_tokens(texts.cpu(), counts)
    return deltas.sum(0), counts


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=lambda launches, n, texts, length: Cost(
        read=4 * launches * n, write=4 * n, host_bytes=texts * length, items=texts, unit="texts"
    ),
    # Some 10 ms of launches, and as many of Python
    sizes={
        "bench": {"launches": 2500, "n": 1024, "texts": 24, "length": 1024},
        "test": {"launches": 23, "n": 37, "texts": 5, "length": 101},
    },
    tolerance=1e-5,  # thousands of additions in fp32
    clock="end_to_end",
)


def prepare(deltas: Tensor, texts: Tensor) -> Step:
    counts, pool = torch.empty(len(TOKENS), dtype=torch.int64), ThreadPoolExecutor(1)
    out, rows = deltas.new_empty(deltas.shape[1]), deltas.unbind()

    def step() -> tuple[Tensor, Tensor]:
        counted = pool.submit(count_tokens, texts, counts)
        out.zero_()
        for row in rows:
            out.add_(row)
        counted.result()
        return out, counts

    return step
