"""The gated delta rule as it is defined: each token decays, corrects and reads a state that stays in registers."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload

COLUMNS = 8  # of the state, for a program of one warp


def inputs(draw: Draw, sequences: int, tokens: int, heads: int, width: int, dtype: str) -> Inputs:
    """Queries and keys of about unit length; g is the log of what the state keeps, b how much of it a token mends."""
    rows, element = (sequences, tokens, heads), getattr(torch, dtype)
    drawn = {"q": draw.normal(*rows, width, std=width**-0.5, dtype=element)}
    keys = draw.normal(*rows, width)
    drawn["k"] = keys.div_(keys.norm(dim=-1, keepdim=True)).to(element)
    drawn["v"] = draw.normal(*rows, width, dtype=element)
    return drawn | {"g": draw.uniform(*rows, low=-0.1, high=0.0), "b": draw.uniform(*rows)}


def reference(q: Tensor, k: Tensor, v: Tensor, g: Tensor, b: Tensor) -> Tensor:
    state, outputs = torch.zeros_like(k[:, 0, :, :, None] * v[:, 0, :, None, :]), []
    for query, key, value, log, rate in zip(*(x.unbind(1) for x in (q, k, v, g, b))):
        state *= log.exp()[..., None, None]
        wrong = value - (key[..., None, :] @ state)[..., 0, :]  # what the state says for this key is not its value
        state += key[..., :, None] @ (rate[..., None] * wrong)[..., None, :]
        outputs.append((query[..., None, :] @ state)[..., 0, :])
    return torch.stack(outputs, 1)


def cost(sequences: int, tokens: int, heads: int, width: int, dtype: str) -> Cost:
    """Each token multiplies a state by its key, adds a product to it, and multiplies it by its query."""
    rows = sequences * tokens * heads
    moved = {"read": rows * (6 * width + 8), "write": 2 * rows * width}
    return Cost(flops=6 * rows * width**2, dtype="bf16", **moved, items=sequences * tokens, unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        # One layer as in Qwen3-Next, with 537 MB of queries, keys, values and outputs.
        "bench": {"sequences": 4, "tokens": 4096, "heads": 32, "width": 128, "dtype": "bfloat16"},
        # float16 because Triton's interpreter has no bf16 dot
        "test": {"sequences": 2, "tokens": 70, "heads": 2, "width": 16, "dtype": "float16"},
    },
    tolerance=2e-2,  # a chunk's state, corrections and weights are rounded to bf16, by 0.17% on average each
)


@triton.jit
def recur(q, k, v, g, b, out, tokens, heads, WIDTH: tl.constexpr, COLUMNS: tl.constexpr):
    sequence, head = (tl.program_id(0) // heads).to(tl.int64), tl.program_id(0) % heads
    row, column = tl.arange(0, WIDTH), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    state = tl.zeros((WIDTH, COLUMNS), tl.float32)
    for token in range(tokens):
        at = (sequence * tokens + token) * heads + head
        query, key = tl.load(q + at * WIDTH + row).to(tl.float32), tl.load(k + at * WIDTH + row).to(tl.float32)
        state *= tl.exp(tl.load(g + at))
        wrong = tl.load(v + at * WIDTH + column).to(tl.float32) - tl.sum(key[:, None] * state, axis=0)
        state += key[:, None] * (tl.load(b + at) * wrong)[None, :]
        tl.store(out + at * WIDTH + column, tl.sum(query[:, None] * state, axis=0))


def prepare(q: Tensor, k: Tensor, v: Tensor, g: Tensor, b: Tensor) -> Step:
    sequences, tokens, heads, width = q.shape
    out = torch.empty_like(v)

    def step() -> Tensor:
        grid = (sequences * heads, width // COLUMNS)
        recur[grid](q, k, v, g, b, out, tokens, heads, width, COLUMNS, num_warps=1)
        return out

    return step
