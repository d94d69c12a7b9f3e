"""Samples on the CPU's clock: probes are proven in place, warm-up ends, outputs are given back."""

import gc
import weakref
from pathlib import Path

import pytest
import torch
from small_workload import Prepares, honest, preparer, workload
from torch import Tensor

from common.python.base.results import WHILE
from common.python.proof.preparation import Preparation
from common.python.timing.clock import CpuClock
from common.python.timing.sampler import Sampler
from common.python.workload import Step


@pytest.fixture
def prepared(tmp_path: Path) -> Prepares:
    return preparer(tmp_path)


def sampler(prep: Preparation) -> Sampler:
    made = Sampler(CpuClock(), "device")
    made.warm(prep, list(prep.variants), 0.0)
    return made


def cached(x: Tensor, w: Tensor) -> Step:
    out = x @ w
    return lambda: out.clone()


def test_a_probed_sample_is_proven_in_place_and_the_others_are_not(prepared: Prepares) -> None:
    prep = prepared(workload(), a=honest, b=cached)
    taken = sampler(prep).block(prep, ["a", "b", "b", "a"], 2, [0, 1])
    assert [(one.variant, one.fresh) for one in taken.samples] == [("a", True), ("b", True), ("b", False), ("a", False)]
    assert [taken.proofs[name][0].when for name in "ab"] == [WHILE, WHILE]
    assert taken.proofs["a"][0].reason is None
    assert "relative error" in (taken.proofs["b"][0].reason or ""), "its answer is that of earlier inputs"
    assert all((one.wall_us or 0.0) > 0.0 for one in taken.samples)
    assert taken.proof_s > 0.0


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
