"""Hides every GPU from those that come later."""

import os

from torch import Tensor

from ch01.baseline_visible_devices_changed import workload as workload
from common.python.workload import Step


def prepare(a: Tensor) -> Step:
    def step() -> Tensor:
        os.environ["CUDA_VISIBLE_DEVICES"] = "7"
        return a * 2

    return step
