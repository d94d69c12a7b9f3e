"""A warp widens the codes of 16 keys in the registers that they were loaded to: no barrier until the end."""

import math

import torch
from torch import Tensor

from ch18.baseline_quantized_kv_decode import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)


def prepare(q: Tensor, k: Tensor, v: Tensor, k_scale: Tensor, v_scale: Tensor) -> Step:
    attend = load_cuda(__file__, f"attend_{q.dtype}".replace("torch.", ""))
    (requests, heads, keys, width), out = k.shape, torch.empty_like(q)
    group, scale = q.shape[1] // heads, width**-0.5 * math.log2(math.e)  # weights are powers of 2

    def step() -> Tensor:
        attend(q, k, v, k_scale, v_scale, out, requests * heads, group, keys, width, scale)
        return out

    return step
