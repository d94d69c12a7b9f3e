"""A product of two small matrices, and preparations of it on a CPU, for tests of what workers do with variants."""

import random
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from common.python.proof.preparation import Preparation
from common.python.workload import Cost, Prepare, Step, Workload

Prepares = Callable[..., Preparation]


def workload(**changes: Any) -> Workload:
    """out = x @ w, where w may be digested ahead and x may not."""
    stated: dict[str, Any] = {
        "inputs": lambda draw, n: {"x": draw.normal(n, n), "w": draw.normal(n, n)},
        "reference": lambda x, w: x @ w,
        "cost": lambda n: Cost(),
        "sizes": {"bench": {"n": 9}, "test": {"n": 9}},
        "tolerance": 1e-5,
        "frozen": ["w"],
    }
    return Workload(**{**stated, **changes})


def honest(x: Tensor, w: Tensor) -> Step:
    return lambda: x @ w


def each_call(work: Callable[[int, Tensor, Tensor], Tensor]) -> Prepare:
    """A variant whose step is `work`, which also gets the number of the call: call 1 is made during preparation."""

    def prepare(x: Tensor, w: Tensor) -> Step:
        calls = count(1)
        return lambda: work(next(calls), x, w)

    return prepare


def preparer(scratch: Path) -> Prepares:
    """Prepares the variants named in its call, on one workload at one size; none of them may fail."""

    def prepare(problem: Workload, **prepares: Prepare) -> Preparation:
        prep = Preparation(problem, {"n": 9}, "test", torch.device("cpu"), scratch, random.Random(5))
        assert prep.prepare_all(prepares) == {}
        return prep

    return prepare
