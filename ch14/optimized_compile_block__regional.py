"""One block is compiled and called once a layer: the same kernels as from the whole stack, for less compiling."""

import torch
from torch import Tensor

from ch14.baseline_compile_block import block, train
from ch14.baseline_compile_block import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def prepare(x: Tensor, slope: Tensor, weights: list[list[Tensor]]) -> Step:
    compiled = torch.compile(block, fullgraph=True, dynamic=False)

    def blocks(hidden: Tensor, cosines: Tensor, sines: Tensor, leaves: list[list[Tensor]]) -> Tensor:
        for of_block in leaves:
            hidden = compiled(hidden, cosines, sines, of_block)
        return hidden

    return train(blocks, x, slope, weights)
