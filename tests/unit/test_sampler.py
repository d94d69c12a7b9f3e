"""Samples on the CPU's clock: probes are proven in place, warm-up ends, outputs are given back."""

import gc
import weakref

import torch
from small_workload import Prepares, workload
from torch import Tensor

from common.python.proof.preparation import Preparation
from common.python.timing.clock import CpuClock
from common.python.timing.sampler import Sampler
from common.python.workload import Step


def sampler(prep: Preparation) -> Sampler:
    made = Sampler(CpuClock(), "device")
    made.warm(prep, list(prep.variants), 0.0)
    return made


def test_outputs_are_not_kept_alive(prepared: Prepares) -> None:
    alive: list[weakref.ref[Tensor]] = []

    def fresh(x: Tensor, w: Tensor) -> Step:
        def step() -> Tensor:
            assert sum(one() is not None for one in alive) <= 1, "at most the output of the last proof"
            alive.append(weakref.ref(out := torch.matmul(x, w)))
            return out

        return step

    prep = prepared(workload(), a=fresh)
    taken = sampler(prep).block(prep, ["a", "a", "a"], 8, [0])
    assert taken.proofs["a"][0].reason is None
    gc.collect()
    assert sum(one() is not None for one in alive) <= 1
