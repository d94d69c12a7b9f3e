"""Each MLP keeps its input alone, and its backward computes the rest again: less memory, a third more products."""

from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ch19.baseline_fp8_activations import mlp, train_step
from ch19.baseline_fp8_activations import workload as workload
from common.python.workload import Step


def again(x: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    out: Tensor = checkpoint(mlp, x, gate_up, down, use_reentrant=False, preserve_rng_state=False)
    return out


def prepare(x: Tensor, weights: list[Tensor], upstream: Tensor) -> Step:
    return train_step(x, weights, upstream, again)
