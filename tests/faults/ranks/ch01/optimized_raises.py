"""Raises on rank 1, while rank 0 waits for it in the collective."""

from functools import partial

from ch01.all_reduce import prepare_with
from ch01.baseline_raises import workload as workload


def no_luck() -> None:
    raise ValueError("rank 1 has no luck")


prepare = partial(prepare_with, no_luck)
