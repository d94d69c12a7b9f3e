"""Five kernels a block, captured as one graph: at each boundary the GPU drains, and memory waits for the next one."""

import torch
from torch import Tensor
from torch.nn import functional as F

from common.models.graphs import replayable
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload

requires = needs(sm=80)
DIM, EPSILON = 64, 1e-5  # numbers of a head
MATRICES = ("qkv", "attended", "gate_up", "down")
ORDER = ("cosines", "sines", "gains", *MATRICES, "keys", "values")  # of the kernels' arguments


def inputs(draw: Draw, layers: int, heads: int, kv_heads: int, inner: int, tokens: int) -> Inputs:
    """A token's hidden state, the angles of its position, the blocks' weights, and the keys and values before it."""
    width, angles = heads * DIM, draw.uniform(DIM // 2, high=6.28)
    shapes = (width + 2 * kv_heads * DIM, width), (width, width), (2 * inner, width), (width, inner)
    matrices = [draw.normal(layers, *s, std=s[1] ** -0.5, dtype=torch.bfloat16) for s in shapes]
    cache = {name: draw.normal(layers, kv_heads, tokens, DIM, dtype=torch.bfloat16) for name in ("keys", "values")}
    gains = draw.uniform(layers, 2, width, low=0.5, high=1.5, dtype=torch.bfloat16)
    turn = {"cosines": angles.cos(), "sines": angles.sin()}
    return {"x": draw.normal(width), **turn, "gains": gains, **dict(zip(MATRICES, matrices)), **cache}


def reference(
    x: Tensor, cosines: Tensor, sines: Tensor, gains: Tensor, qkv: Tensor, attended: Tensor, gate_up: Tensor,
    down: Tensor, keys: Tensor, values: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The hidden state behind the blocks, and the token's own keys and values, which a server puts into its cache."""
    fresh, (heads, kv_heads) = [], (len(x) // DIM, keys.shape[1])
    for gain, into, out, up, back, k, v in zip(gains, qkv, attended, gate_up, down, keys, values):
        rows = (into.to(x.dtype) @ F.rms_norm(x, x.shape, gain[0], EPSILON)).view(-1, DIM)
        left, right = rows[: heads + kv_heads].chunk(2, dim=1)
        turned = torch.cat([left * cosines - right * sines, right * cosines + left * sines], dim=1)
        key, value = turned[heads:, None], rows[heads + kv_heads :, None]
        every = [torch.cat([old.to(x.dtype), own], dim=1) for old, own in ((k, key), (v, value))]
        weights = (turned[:heads].view(kv_heads, -1, DIM) @ every[0].mT * DIM**-0.5).softmax(2)
        x = x + out.to(x.dtype) @ (weights @ every[1]).flatten()
        gate, passed = (up.to(x.dtype) @ F.rms_norm(x, x.shape, gain[1], EPSILON)).chunk(2)
        x = x + back.to(x.dtype) @ (F.silu(gate) * passed)
        fresh.append(torch.stack([key[:, 0], value[:, 0]]))
    return x, torch.stack(fresh)


def cost(layers: int, heads: int, kv_heads: int, inner: int, tokens: int) -> Cost:
    width, kept = heads * DIM, 2 * kv_heads * DIM
    numbers = layers * (width * (2 * width + kept + 3 * inner) + kept * tokens)
    return Cost(read=2 * numbers, write=4 * width + 2 * layers * kept, items=1, unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        # Four of the sixteen blocks of Llama 3.2 1B: 486 MB of weights.
        "bench": {"layers": 4, "heads": 32, "kv_heads": 8, "inner": 8192, "tokens": 512},
        "test": {"layers": 2, "heads": 4, "kv_heads": 2, "inner": 136, "tokens": 83},
    },
    tolerance=0.01,  # activations are rounded to bf16 (0.2%) four times a block
    frozen=("gains", *MATRICES),
    as_drawn=(*MATRICES, "keys", "values"),
)


def prepare(x: Tensor, **given: Tensor) -> Step:
    decode, (layers, kv_heads, tokens, _) = load_cuda(__file__, "decode"), given["keys"].shape
    inner, heads = given["down"].shape[2], len(x) // DIM
    out, fresh = torch.empty_like(x), given["keys"].new_empty(layers, 2, kv_heads, DIM)
    scratch = x.new_empty(len(x) + 2 * kv_heads * DIM), *(fresh.new_empty(n) for n in (len(x), inner))
    tensors, sizes = (
        (x, *(given[name] for name in ORDER), out, fresh, *scratch),
        (layers, heads, kv_heads, inner, tokens),
    )
    replay = replayable(lambda: decode(*tensors, *sizes, EPSILON), x.device)

    def step() -> tuple[Tensor, Tensor]:
        replay()
        return out, fresh

    return step
