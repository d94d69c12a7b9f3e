"""Leaves processes behind that hide in sessions of their own."""

import os
import signal
import subprocess

from torch import Tensor

from ch01.baseline_daemon_left import workload as workload
from common.python.workload import Step


def daemon() -> None:
    """Fork twice, the second time in a new session: init would inherit it."""
    if child := os.fork():
        os.waitpid(child, 0)
        return
    os.setsid()
    if not os.fork():
        signal.pause()
    os._exit(0)


def prepare(a: Tensor) -> Step:
    daemon()
    subprocess.Popen(["sleep", "600"], start_new_session=True)

    def step() -> Tensor:
        return a * 2

    return step
