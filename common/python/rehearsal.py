"""A small proof of the harness's own, which makes the device's context and loads what the proof of any pair launches.

A process that launches a kernel for the first time loads it: on an H200 10 to 60 ms for each of torch's, 0.4 s for all
that draw, prove and show teeth. A worker in reserve does so before its pair is there to wait for it.
"""

import random
from pathlib import Path

import torch
from torch import Tensor

from common.python.clock import GpuClock
from common.python.preparation import Preparation, free
from common.python.proof import prove, toothless
from common.python.results import AFTER
from common.python.sampling import Sampler
from common.python.workload import Cost, Step, Workload

NAME = "rehearsal"
WORKLOAD = Workload(  # what most pairs draw and return: floats, a narrow type and integers
    inputs=lambda draw, n: {
        "a": draw.normal(n, n),
        "b": draw.normal(n, n, dtype=torch.bfloat16),
        "i": draw.integers(n, n, high=n),
    },
    reference=lambda a, b, i: (a, b, i),
    cost=lambda n: Cost(),
    sizes={"bench": {"n": 64}, "test": {"n": 64}},
    tolerance=0.01,
)


def prepare(a: Tensor, b: Tensor, i: Tensor) -> Step:
    """Copies."""
    inputs = (a, b, i)
    outputs = (torch.empty_like(a), torch.empty_like(b), torch.empty_like(i))

    def step() -> tuple[Tensor, ...]:
        for output, given in zip(outputs, inputs):
            output.copy_(given)
        return outputs

    return step


def rehearse(device: torch.device, scratch: Path) -> None:
    """Draw, prepare, prove, corrupt and, on a GPU, read its clock. Raises RuntimeError where that does not work out."""
    prep = Preparation(WORKLOAD, dict(WORKLOAD.sizes["test"]), "test", device, scratch, random.Random(0))
    failures = prep.prepare_all({NAME: prepare}, lambda who, what: None)
    if failures:
        raise RuntimeError(str(failures[NAME]))
    [proof] = prove(prep, [NAME], AFTER)[NAME]
    if proof.reason or (accepted := toothless(prep)):
        raise RuntimeError(proof.reason or f"the proof would accept: {', '.join(accepted)}")
    if device.type == "cuda":
        Sampler(GpuClock(), WORKLOAD.clock).floor_us()
    del prep
    free()
