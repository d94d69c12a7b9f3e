"""What a worker says that it took is its own, and of processors only what it took while others were at work."""

import time

import pytest
import torch

from common.python.usage import CONTEXT_GIB, TIMED, Usage

BUSY_S = 0.05


def busy() -> None:
    until = time.process_time() + BUSY_S
    while time.process_time() < until:
        pass


@pytest.mark.parametrize("command", ["prepare", "prove", "why", *TIMED])
def test_the_processors_time_is_that_of_commands_beside_which_others_are_at_work(command: str) -> None:
    usage = Usage()
    before_s = usage.told()["cpu_s"]
    with usage.during(command):
        busy()
    took_s = usage.told()["cpu_s"] - before_s
    assert took_s < BUSY_S / 2 if command in TIMED else took_s >= BUSY_S


def test_the_memory_is_what_the_allocator_reserved_at_most_and_the_context(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda: 3 * 2**30)
    for begun, gib in ((False, 0.0), (True, 3.0 + CONTEXT_GIB)):
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda begun=begun: begun)
        assert Usage().told()["gib"] == gib
