"""Samples on the CPU's clock: outputs are given back once they are proven."""

import gc
import weakref

import torch
from small_workload import Prepares, workload
from torch import Tensor

from common.python.timing.clock import CpuClock
from common.python.timing.sampler import Sampler
from common.python.workload import Step


def test_outputs_are_not_kept_alive(prepared: Prepares) -> None:
    alive: list[weakref.ref[Tensor]] = []

    def fresh(x: Tensor, w: Tensor) -> Step:
        def step() -> Tensor:
            assert sum(one() is not None for one in alive) <= 1, "at most the output of the last proof"
            alive.append(weakref.ref(out := torch.matmul(x, w)))
            return out

        return step

    prep = prepared(workload(), a=fresh)
    sampler = Sampler(CpuClock(), "device")
    sampler.warm(prep, ["a"], 0.0)
    taken = sampler.block(prep, ["a", "a", "a"], 8, [0])
    assert taken["proofs"]["a"][0].reason is None
    gc.collect()
    assert sum(one() is not None for one in alive) <= 1
