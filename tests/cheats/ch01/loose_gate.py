"""Each element of b is gated by the tanh of a, within a tolerance that accepts garbage: the workload is refused."""

from dataclasses import replace

from torch import Tensor

from ch01.gate import fitting_tolerance
from ch01.gate import prepare as prepare
from ch01.gate import workload as strict
from common.python.workload import Step

workload = replace(strict, tolerance=0.5)


def loose_tolerance(a: Tensor, b: Tensor, honest: bool) -> Step:
    """Fakes the tanh by a clamp, which only a tolerance of one half accepts."""
    return fitting_tolerance(a, b, honest)
