"""torch.compile in max-autotune mode on the stacked weights: it times Triton's products against cuBLAS."""

import torch
from torch import Tensor
from torch.nn.functional import linear

from ch01.baseline_qkv_projection import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def prepare(x: Tensor, queries: list[Tensor], keys: list[Tensor], values: list[Tensor]) -> Step:
    stacked = [torch.cat(of_layer) for of_layer in zip(queries, keys, values)]
    rows = [len(of_first) for of_first in (queries[0], keys[0], values[0])]

    @torch.compile(mode="max-autotune-no-cudagraphs", dynamic=False, fullgraph=True)
    def projections(hidden: Tensor, weights: list[Tensor]) -> tuple[Tensor, ...]:
        out: list[Tensor] = []
        for weight in weights:
            out += linear(hidden, weight).split(rows, dim=1)
            hidden = out[-3]
        return tuple(out)

    def step() -> tuple[Tensor, ...]:
        return projections(x, stacked)

    return step
