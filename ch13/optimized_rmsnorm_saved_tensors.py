"""One operator with its own backward: it keeps its bf16 input and one number a row, and computes the rest again."""

from torch import Tensor
from torch.nn.functional import rms_norm

from ch13.baseline_rmsnorm_saved_tensors import EPSILON, train_step
from ch13.baseline_rmsnorm_saved_tensors import workload as workload
from common.python.workload import Step


def prepare(x: Tensor, weights: list[Tensor], upstream: Tensor) -> Step:
    return train_step(lambda x, weight: rms_norm(x, weight.shape, weight, EPSILON), x, weights, upstream)
