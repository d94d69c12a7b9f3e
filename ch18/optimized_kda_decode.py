"""One kernel holds columns of a state in registers: it reads them once, and writes them where they lay."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch18.baseline_kda_decode import workload as workload
from common.python.workload import Step

COLUMNS, WARPS = 64, 2  # of a program: half of each thread's registers hold its part of the state


@triton.jit
def decode(
    q, k, v, f, b, a_log, dt_bias, slots, states, out, heads, WIDTH: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    line = tl.program_id(1)
    request, head = line // heads, line % heads
    row, column = tl.arange(0, WIDTH), tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    slot = tl.load(slots + request)
    at = states + ((slot * heads + head) * WIDTH + row)[:, None] * WIDTH + column[None, :]
    state = tl.load(at)
    query, key = tl.load(q + line * WIDTH + row).to(tl.float32), tl.load(k + line * WIDTH + row).to(tl.float32)
    query *= tl.rsqrt(tl.sum(query * query) * WIDTH)  # of length 1, and a dot product's scale
    key *= tl.rsqrt(tl.sum(key * key))
    log = tl.load(f + line * WIDTH + row).to(tl.float32) + tl.load(dt_bias + head * WIDTH + row)
    log = tl.where(log > 20, log, tl.log(1 + tl.exp(log)))  # softplus
    state *= tl.exp(-tl.exp(tl.load(a_log + head)) * log)[:, None]
    alike = tl.sum(query * key)
    read = tl.sum(state * query[:, None], axis=0)  # before the correction, which adds alike * fix
    wrong = tl.load(v + line * WIDTH + column).to(tl.float32) - tl.sum(state * key[:, None], axis=0)
    fix = tl.sigmoid(tl.load(b + line).to(tl.float32)) * wrong
    tl.store(at, state + key[:, None] * fix[None, :])
    tl.store(out + line * WIDTH + column, read + alike * fix)


def prepare(states: Tensor, **of: Tensor) -> Step:
    (requests, heads, width), out = of["v"].shape, torch.empty_like(of["v"], dtype=states.dtype)
    columns = min(COLUMNS, width)
    grid = (width // columns, requests * heads)

    def step() -> tuple[Tensor, Tensor]:
        decode[grid](**of, states=states, out=out, heads=heads, WIDTH=width, COLUMNS=columns, num_warps=WARPS)
        return out, states

    return step
