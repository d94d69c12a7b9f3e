"""Gather, decay, correct, read and scatter are passes of their own: each moves all requests' states through memory."""

import torch
import torch.nn.functional as F
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, requests: int, pool: int, heads: int, width: int, dtype: str) -> Inputs:
    """A token of each request behind its projections, and a pool of states, (keys' width, values' width) a head."""
    rows, element = (requests, heads), getattr(torch, dtype)
    return {
        "q": draw.normal(*rows, width, dtype=element),
        "k": draw.normal(*rows, width, dtype=element),
        "v": draw.normal(*rows, width, dtype=element),
        "f": draw.normal(*rows, width, dtype=element),  # what each channel of the state forgets, before its gate
        "b": draw.normal(*rows, dtype=element),  # how much of its error a token corrects, before its gate
        "a_log": draw.uniform(heads, high=2.77),  # the model starts with A in [1, 16] and dt in [0.001, 0.1]
        "dt_bias": draw.uniform(heads, width, low=-6.9, high=-2.3),
        "slots": draw.permutation(pool)[:requests],  # where their states are
        "states": draw.normal(pool, heads, width, width, std=width**-0.5),
    }


def decode(
    q: Tensor, k: Tensor, v: Tensor, f: Tensor, b: Tensor, a_log: Tensor, dt_bias: Tensor, slots: Tensor, states: Tensor
) -> Tensor:
    """What each request's query reads, after its key and value are in its state; in fp32, for the gated norm behind."""
    full = states.dtype
    query = F.normalize(q.to(full), dim=-1) * q.shape[-1] ** -0.5
    key = F.normalize(k.to(full), dim=-1)
    keep = torch.exp(-a_log.exp()[:, None] * F.softplus(f.to(full) + dt_bias))
    state = states[slots] * keep[..., None]
    wrong = v.to(full) - torch.einsum("rhkv,rhk->rhv", state, key)  # the state's value for this key is not v
    fix = torch.sigmoid(b.to(full))[..., None] * wrong
    state = state + key[..., :, None] * fix[..., None, :]
    states[slots] = state
    return torch.einsum("rhkv,rhk->rhv", state, query)


def reference(**of: Tensor) -> tuple[Tensor, Tensor]:
    return decode(**of), of["states"]


def cost(requests: int, pool: int, heads: int, width: int, dtype: str) -> Cost:
    """All of the requests' fp32 states in and out, queries, keys, values and gates in, fp32 outputs out."""
    rows = requests * heads
    state = 4 * rows * width**2
    return Cost(read=state + 8 * rows * width, write=state + 4 * rows * width, items=requests, unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        # One KDA layer of Kimi-Linear-48B-A3B: 268 MB of states in and out.
        "bench": {"requests": 128, "pool": 160, "heads": 32, "width": 128, "dtype": "bfloat16"},
        "test": {"requests": 3, "pool": 5, "heads": 3, "width": 32, "dtype": "float16"},  # interpreted: no bf16
    },
    tolerance=1e-5,  # all arithmetic is fp32; a state that is rounded to bf16 is off by 1.7e-3
    mutates=("states",),
)


def prepare(**of: Tensor) -> Step:
    def step() -> tuple[Tensor, Tensor]:
        return decode(**of), of["states"]

    return step
