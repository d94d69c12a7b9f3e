"""Huge pages alone: page-locking still faults all of them in by itself, 2 MiB at a time, and pins 128 pages."""

import mmap

from torch import Tensor

from ch03.baseline_pin_huge_pages import offloaded
from ch03.baseline_pin_huge_pages import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(huge_pages=True)


def prepare(state: Tensor) -> Step:
    return offloaded(state, mmap.MADV_HUGEPAGE, lambda buffer: None)
