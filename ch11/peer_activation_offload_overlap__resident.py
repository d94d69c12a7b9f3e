"""The bound: inputs of blocks stay on the GPU, as they do where there is room, and nothing crosses PCIe."""

from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from ch11.baseline_activation_offload_overlap import trained
from ch11.baseline_activation_offload_overlap import workload as workload
from common.python.workload import Step


def prepare(x: Tensor, slope: Tensor, up: list[Tensor], down: list[Tensor]) -> Step:
    return trained(x, slope, up, down, lambda: saved_tensors_hooks(lambda saved: saved, lambda saved: saved))
