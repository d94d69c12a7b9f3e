"""The allocator keeps what it has: each batch takes the pieces that the one before it left, and asks for none."""

from torch import Tensor

from ch13.baseline_empty_cache_loop import metered
from ch13.baseline_empty_cache_loop import workload as workload
from common.python.workload import Metered


def prepare(texts: Tensor, weights: list[Tensor]) -> Metered:
    return metered(texts, weights, after=lambda: None)
