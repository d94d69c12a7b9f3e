"""Liger's two kernels: a program a token for Sinkhorn, then one that mixes tiles of 32 tokens and 128 columns."""

import torch
from torch import Tensor

from ch09.baseline_mhc_mix import ITERATIONS
from ch09.baseline_mhc_mix import workload as workload
from common.python.requirements import imported, needs
from common.python.workload import Step

requires = needs(modules=["liger_kernel"], gpus=1)
mhc = imported("liger_kernel.ops.mhc", without="peft")
NO_EPSILON = {"pre_eps": 0.0, "sinkhorn_eps": 0.0}


def prepare(streams: Tensor, update: Tensor, logits: Tensor) -> Step:
    out, zero, one = torch.empty_like(streams), logits.new_zeros(logits.shape[1]), logits.new_ones(1)
    scales = (zero, one, one, one)  # the logits are scaled and shifted

    def step() -> Tensor:
        _, gates, mix = mhc.mhc_split_sinkhorn_fwd(logits, *scales, tmax=ITERATIONS, post_mult=2.0, **NO_EPSILON)
        mixed: Tensor = mhc.mhc_post_res_fwd(streams, update, gates, mix, out=out)
        return mixed

    return step
