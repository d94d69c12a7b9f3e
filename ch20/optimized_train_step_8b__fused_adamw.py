"""One kernel updates weights and moments: it reads and writes each of them once, where foreach does so many times."""

from torch import Tensor

from ch20.baseline_train_step_8b import twice
from ch20.baseline_train_step_8b import workload as workload
from common.models.decoder import Shape, Weights
from common.models.training import training
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(memory_gib=52)


def prepare(weights: Weights, means: Weights, squares: Weights, tokens: Tensor, count: Tensor, shape: Shape) -> Step:
    return training(weights, means, squares, tokens, count, shape, run=twice, fused=True)
