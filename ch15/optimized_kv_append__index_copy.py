"""The cache has room for what comes, and two copies a layer write the new token in its place: the old ones stay."""

from torch import Tensor

from ch15.baseline_kv_append import workload as workload
from common.python.workload import Step


def prepare(keys: list[Tensor], values: list[Tensor], fresh: Tensor, positions: Tensor) -> Step:
    def step() -> tuple[Tensor, ...]:
        for of_step, position in zip(fresh, positions.split(1)):
            for *stores, new in zip(keys, values, of_step):
                for store, token in zip(stores, new):
                    store.index_copy_(2, position, token)
        return *keys, *values

    return step
