"""Ctrl-C: the first asks a suite to end after the pairs that have begun, the second, or SIGTERM, at once."""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

FIRST = "Ctrl-C: pairs that have begun are finished and the report written; Ctrl-C again stops now"


class SuiteTimeUp(Exception):
    """The time of the whole suite is over before a pair could begin."""


@contextmanager
def interrupts(say: Callable[[str], None]) -> Iterator[Callable[[], int]]:
    """Tells how many were heard inside. The first SIGINT does no more; SIGTERM, or a second, raises KeyboardInterrupt.

    Later ones are ignored so that the workers are ended and what was done is written, which takes a second.
    """
    heard = 0

    def hear(number: int, frame: FrameType | None) -> None:
        nonlocal heard
        heard += 1
        if number == signal.SIGINT and heard == 1:
            say(FIRST)
        elif heard <= 2:
            raise KeyboardInterrupt("SIGTERM" if number == signal.SIGTERM else "")

    before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def alarm(deadline: float, late: Exception) -> Iterator[None]:
    """Raise `late` inside at this monotonic time, whatever is being waited for; in the main thread only."""
    if math.isinf(deadline) or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise late

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(deadline - time.monotonic(), 1e-6))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def sheltered() -> Iterator[None]:
    """Processes that are started inside do not hear the terminal's Ctrl-C; this one hears it afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
