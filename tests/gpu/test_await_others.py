"""A process that was stopped has left work on the GPU, and whoever waits for others goes on when that is done."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
import torch

from common.python.timing.clock import OTHERS_US, await_others

ENQUEUES = """
import sys, torch

x = torch.randn(8192, 8192, device="cuda")
here, there = (torch.empty(1 << 30, dtype=torch.uint8, **where) for where in ({"pin_memory": True}, {"device": "cuda"}))
x @ x
there.copy_(here)
torch.cuda._sleep(1000)
torch.cuda.synchronize()
print("ready", flush=True)
sys.stdin.readline()
if sys.argv[1] == "products":
    [x @ x for _ in range(60)]
elif sys.argv[1] == "a long kernel":
    torch.cuda._sleep(2_000_000_000)
elif sys.argv[1] == "short kernels":
    [torch.cuda._sleep(2_000_000) for _ in range(900)]
else:
    [there.copy_(here, non_blocking=True) for _ in range(40)]
print("enqueued", flush=True)
torch.cuda.synchronize()
"""
Child = subprocess.Popen[str]


@pytest.fixture(autouse=True)
def peaks_at_hand() -> None:
    """Nothing is held against peaks here, so none are measured."""


@pytest.fixture
def child(request: pytest.FixtureRequest) -> Iterator[Child]:
    """It has enqueued about a second of work, and was stopped."""
    command = [sys.executable, "-c", ENQUEUES, request.param]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    torch.zeros(64, device="cuda").add_(1)
    assert await_others(30.0), "this test needs the GPU to itself"
    assert process.stdout.readline() == "ready\n"
    process.stdin.write("go\n")
    process.stdin.flush()
    assert process.stdout.readline() == "enqueued\n"
    os.kill(process.pid, signal.SIGSTOP)
    yield process
    process.kill()
    process.communicate()


def slow(seconds: float) -> float:
    """The share of small kernels, each behind a pause, that took longer than where nobody else has work."""
    x, took = torch.zeros(64, device="cuda"), list[float]()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.0005)
        asked = time.perf_counter()
        x.add_(1)
        torch.cuda.synchronize()
        took.append(time.perf_counter() - asked)
    return sum(one > OTHERS_US / 1e6 for one in took) / len(took)


@pytest.mark.parametrize("child", ["products"], indirect=True)
def test_beside_its_work_a_small_kernel_is_slow(child: Child) -> None:
    assert slow(0.3) > 0.9


@pytest.mark.parametrize("child", ["products", "a long kernel", "short kernels", "copies"], indirect=True)
def test_behind_it_none_is(child: Child) -> None:
    assert await_others(20.0)
    assert slow(0.3) < 0.02


@pytest.mark.parametrize("child", ["products"], indirect=True)
def test_it_is_told_where_that_takes_too_long(child: Child) -> None:
    assert not await_others(0.05)
