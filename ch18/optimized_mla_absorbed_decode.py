"""In CUDA, each of four warps copies a quarter of the columns and makes its part of scores and sums from them alone."""

import math

import torch
from torch import Tensor

from ch18.baseline_mla_absorbed_decode import ROTARY
from ch18.baseline_mla_absorbed_decode import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)
PARTS, KEYS = 8, 32  # of a request's cache, a block each; of a tile


def prepare(q: Tensor, q_rotary: Tensor, cache: Tensor, rotary: Tensor, to_keys: Tensor, to_values: Tensor) -> Step:
    attend = load_cuda(__file__, f"attend_{q.dtype}".replace("torch.", ""))
    (requests, heads, width), (_, keys, latent) = q.shape, cache.shape
    share = -(-keys // (PARTS * KEYS)) * KEYS
    parts = -(-keys // share)
    sums = q.new_empty(requests, heads, parts, latent, dtype=torch.float32)
    logs = q.new_empty(requests, heads, parts, dtype=torch.float32)
    attended = q.new_empty(requests, heads, latent)
    scale = (width + ROTARY) ** -0.5 * math.log2(math.e)  # weights are powers of 2
    sizes = (requests, heads, keys, latent, parts, share, scale)

    def step() -> Tensor:
        absorbed = (q.transpose(0, 1) @ to_keys).transpose(0, 1).contiguous()
        attend(absorbed, q_rotary, cache, rotary, sums, logs, attended, *sizes)
        return (attended.transpose(0, 1) @ to_values).transpose(0, 1)

    return step
