"""A reason is followed by what helps, where that is known."""

import pytest

from common.python.stats.hints import HINTS, hint


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        ("no answer within 3 s during prepare", "--timeout-multiplier"),
        ("no answer within 3 s during prepare: rank 0 is at x.py:3, rank 1 has done its part", "same collectives"),
        ("AcceleratorError: CUDA error: an illegal memory access was encountered", "sanitize.sh"),
        ("AcceleratorError: CUDA error: misaligned address", "sanitize.sh"),
        ("AcceleratorError: CUDA error: device-side assert triggered", "sanitize.sh"),
        ("OutOfMemoryError at x.py:3: CUDA out of memory. Tried to allocate 2 GiB", "memory_gib"),
        ("the worker was killed by SIGKILL during prepare", "dmesg"),
        ("the worker was killed by SIGSEGV during prepare", "stack"),
        ("the worker exited with code 0 during prepare", "must not end"),
        ("ModuleNotFoundError at x.py:3: No module named 'y'", "needs(modules"),
        ("OSError at x.py:3: [Errno 24] Too many open files: 'y'", "close"),
        ("it takes 6.0 times as long on inputs that it has not seen: it remembers answers", "Workload.frozen"),
        ("NaN or infinity where the reference is finite", "is not written"),
    ],
)
def test_a_known_reason_has_its_hint(reason: str, says: str) -> None:
    assert says in (hint(reason) or "")


def test_what_is_not_known_has_none() -> None:
    assert hint("relative error 1.00e-03, the tolerance is 1.0e-06") is None
    assert hint(None) is None
    assert len({text for _, text in HINTS}) == len(HINTS)
