"""Histories are padded to the longest, and the scores of all pairs are written: 95% of them are padding's or later."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import silu as pointwise
from torch.nn.utils.rnn import pad_sequence

from common.models.grouped_query import live_pairs
from common.models.lengths import SPREAD, length_mix
from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, users: int, mean: float, longest: int, heads: int, width: int, dtype: str) -> Inputs:
    """Packed users' histories, how long each is (the host made the batch) and where each begins."""
    mix = length_mix(users, mean, longest, SPREAD)
    lengths = torch.tensor(mix)[draw.host.permutation(users)]
    starts = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]).int().to(draw.device)
    sides = {name: draw.normal(sum(mix), heads, width, dtype=getattr(torch, dtype)) for name in "qkv"}
    return sides | {"lengths": lengths, "starts": starts}


def reference(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, starts: Tensor) -> Tensor:
    out, longest = torch.empty_like(q), int(lengths.max())
    parts = zip(*(x.split(lengths.tolist()) for x in (q, k, v, out)))
    for queries, keys, values, to in parts:  # one user and head at a time: no softmax, scores through SiLU are weights
        for head in range(q.shape[1]):
            scores = queries[:, head] @ keys[:, head].mT * q.shape[2] ** -0.5
            to[:, head] = pointwise(scores).tril_() @ values[:, head] / longest
    return out


def cost(users: int, mean: float, longest: int, heads: int, width: int, dtype: str) -> Cost:
    """The two products of live pairs."""
    mix, row = length_mix(users, mean, longest, SPREAD), heads * width
    moved = {"read": 2 * 3 * sum(mix) * row, "write": 2 * sum(mix) * row}
    return Cost(flops=4 * row * live_pairs(mix), dtype="bf16", **moved, items=sum(mix), unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        # A layer of HSTU (Zhai et al., arXiv 2402.17152) with heads as in MLPerf's DLRMv3: 61,449 tokens, and 262,144
        # places in the padded batch. The longest history is 4,096, the mean is this project's choice.
        "bench": {"users": 64, "mean": 1024.0, "longest": 4096, "heads": 4, "width": 128, "dtype": "bfloat16"},
        # float16 because Triton's interpreter has no bf16 dot
        "test": {"users": 5, "mean": 90.0, "longest": 300, "heads": 2, "width": 64, "dtype": "float16"},
    },
    tolerance=1e-2,  # scores, weights and outputs are rounded to bf16, by 0.17% on average each
    rungs="fused jagged",
)


def padded(x: Tensor, lengths: Tensor) -> Tensor:
    """(users, longest, heads, width), zeros after each user's last token."""
    return pad_sequence(x.split(lengths.tolist()), batch_first=True)


def packed(x: Tensor, lengths: Tensor) -> Tensor:
    return torch.cat([user[:length] for user, length in zip(x, lengths.tolist())])


@triton.jit
def silu(half, FAST: tl.constexpr):
    """y sigmoid(y) of y = 2 `half`: if FAST by one special instruction, where 1 / (1 + exp) takes two."""
    if FAST:
        tanh = tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [half], tl.float32, is_pure=True, pack=1)
    else:  # Triton's interpreter runs no assembly
        tanh = 2.0 * tl.sigmoid(2.0 * half) - 1.0
    return half + half * tanh


def tiles_of(lengths: Tensor, tile: int) -> tuple[int, int, int]:
    """The longest history, how many tiles of queries it has, and how many all have; lengths are in host memory."""
    counts = (lengths + tile - 1) // tile
    return int(lengths.max()), int(counts.max()), int(counts.sum())


@triton.jit
def place_tiles(starts, tiles, users, most, TILE: tl.constexpr, USERS: tl.constexpr, PLACES: tl.constexpr):
    user, each, tile = tl.program_id(0), tl.arange(0, USERS), tl.arange(0, PLACES)
    begin = tl.load(starts + each, mask=each < users, other=0)
    counts = (tl.load(starts + each + 1, mask=each < users, other=0) - begin + TILE - 1) // TILE
    longer = tl.maximum(counts[:, None] - tile[None, :] - 1, 0)  # of each user, tiles that see more keys
    equal = (counts[:, None] > tile[None, :]) & (each < user)[:, None]
    own = tl.sum(tl.where(each == user, counts, 0))
    tl.store(tiles + tl.sum(longer + equal, axis=0), user * most + tile, mask=tile < own)


def plan(starts: Tensor, tiles: Tensor, most: int, tile: int) -> None:
    """Writes all users' tiles to `tiles`, those that see the most keys first, each as user * most + tile."""
    users = len(starts) - 1
    powers = triton.next_power_of_2(users), triton.next_power_of_2(most)
    place_tiles[(users,)](starts, tiles, users, most, tile, *powers)


def prepare(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, starts: Tensor) -> Step:
    scale = q.shape[2] ** -0.5

    def step() -> Tensor:
        queries, keys, values = (padded(x, lengths).transpose(1, 2) for x in (q, k, v))
        weights = pointwise((queries @ keys.mT).mul_(scale), inplace=True).tril_().div_(keys.shape[2])
        return packed((weights @ values).transpose(1, 2), lengths)

    return step
