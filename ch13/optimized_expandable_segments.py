"""The allocator maps pages of memory behind one range of addresses: a piece that is too short is made longer."""

import torch
from torch import Tensor

from ch13.baseline_expandable_segments import prepare as prepare_alike
from ch13.baseline_expandable_segments import workload as workload
from common.python.requirements import needs
from common.python.workload import Metered

requires = needs(gpus=1)


def prepare(texts: list[Tensor], weights: list[Tensor]) -> Metered:
    # From here on; PYTORCH_ALLOC_CONF=expandable_segments:True in the environment does it from the start.
    torch._C._accelerator_setAllocatorSettings("expandable_segments:True")
    return prepare_alike(texts, weights)
