"""Writes a result of its own where the harness will."""

import os
from pathlib import Path

from torch import Tensor

from ch01.baseline_tampered_results import workload as workload
from common.python.workload import Step


def prepare(a: Tensor) -> Step:
    artifacts = Path(os.readlink("/proc/self/fd/1")).parents[1]
    forged = artifacts / "results" / "benchmark_test_results.json"
    forged.parent.mkdir(exist_ok=True)

    def step() -> Tensor:
        forged.write_text('{"verdict": "faster"}')
        return a * 2

    return step
