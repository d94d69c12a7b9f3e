"""Ctrl-C: the first asks a suite to end after the pairs that have begun, the second, or SIGTERM, at once."""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

FIRST = "Ctrl-C: pairs that have begun are finished and the report written; Ctrl-C again stops now"


class SuiteTimeUp(Exception):
    """The time of the whole suite is over before a pair could begin."""


class Interrupts:
    """A context in which the first SIGINT only sets `asked`, SIGTERM or a second one raises KeyboardInterrupt.

    Later ones are ignored so that the workers are ended and what was done is written, which takes a second.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self.count = say, 0
        self._before: dict[int, Any] = {}

    @property
    def asked(self) -> bool:
        return self.count > 0

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._heard) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if number == signal.SIGINT and self.count == 1:
            self._say(FIRST)
        elif self.count <= 2:
            raise KeyboardInterrupt("SIGTERM" if number == signal.SIGTERM else "")


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
