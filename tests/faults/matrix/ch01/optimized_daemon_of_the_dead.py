"""Hides a process in a session of its own, and dies."""

import os
import subprocess

from torch import Tensor

from ch01.baseline_daemon_of_the_dead import workload as workload
from common.python.workload import Step


def prepare(a: Tensor) -> Step:
    def step() -> Tensor:
        subprocess.Popen(["sleep", "600"], start_new_session=True)
        os.abort()
        return a * 2

    return step
