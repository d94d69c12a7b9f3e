"""The product of two square matrices in float32."""

import itertools
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from common.python.timing import clock
from common.python.workload import Cost, Prepare, Step, Workload

workload = Workload(
    inputs=lambda draw, n: {"a": draw.normal(n, n), "b": draw.normal(n, n)},
    reference=lambda a, b: a @ b,
    cost=lambda n: Cost(read=3 * 4 * n * n, flops=2 * n**3),
    sizes={"bench": {"n": 2048}, "cpu": {"n": 256}, "test": {"n": 33}},
    tolerance=1e-5,
)


def prepare(a: Tensor, b: Tensor) -> Step:
    return partial(torch.matmul, a, b, out=torch.empty_like(a))


def first_calls(a: Tensor, b: Tensor, honest: bool) -> Step:
    """Fakes speed by working in the first six calls only, when it expects to be checked."""
    out, calls = torch.empty_like(a), itertools.count()

    def step() -> Tensor:
        if next(calls) < 6 or honest:
            torch.matmul(a, b, out=out)
        return out

    return step


class Lazy(Tensor):
    """Runs `work` on its first use, whatever that is."""

    work: Callable[[], Tensor] | None = None

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            for lazy in args:
                if isinstance(lazy, Lazy) and lazy.work:
                    work, lazy.work = lazy.work, None
                    work()
        return super().__torch_function__(func, types, args, kwargs)


def lazy_tensor(a: Tensor, b: Tensor, honest: bool) -> Step:
    """Fakes speed by returning a tensor that computes itself when it is first looked at."""
    out = torch.empty_like(a)
    lazy, work = out.as_subclass(Lazy), partial(torch.matmul, a, b, out=out)

    def step() -> Tensor:
        if honest:
            return work()
        lazy.work = work
        return lazy

    return step


def low_precision(a: Tensor, b: Tensor, honest: bool) -> Step:
    """Fakes a float32 product by multiplying in bfloat16 and widening the result."""
    dtype = torch.float64 if honest else torch.bfloat16
    return lambda: (a.to(dtype) @ b.to(dtype)).float()


def patched_clock(honest: bool) -> Prepare:
    """Fakes speed by replacing the functions of time with ones for which nine tenths of each step never happened."""
    now_ns, stolen = time.perf_counter_ns, [0]
    if not honest:
        time.perf_counter_ns = lambda: now_ns() - stolen[0]
        time.perf_counter = lambda: (now_ns() - stolen[0]) / 1e9
    return partial(_between_looks, now_ns, stolen)


def patched_harness(honest: bool) -> Prepare:
    """Fakes speed by replacing the harness's own name for the clock, which no patched module of Python's gives away."""
    now_ns, stolen = clock.now_ns, [0]
    if not honest:
        clock.now_ns = lambda: now_ns() - stolen[0]
    return partial(_between_looks, now_ns, stolen)


def _between_looks(now_ns: Callable[[], int], stolen: list[int], a: Tensor, b: Tensor) -> Step:
    """Look at a clock before the work and after it, and add nine tenths of the time between to what is stolen."""
    out = torch.empty_like(a)

    def step() -> Tensor:
        start = now_ns()
        torch.matmul(a, b, out=out)
        stolen[0] += (now_ns() - start) * 9 // 10
        return out

    return step


def stale_checksum(a: Tensor, b: Tensor, honest: bool) -> Step:
    """Fakes speed by working only when the first elements of its inputs have changed since the last call."""
    out, seen = torch.empty_like(a), [float("nan")]

    def step() -> Tensor:
        checksum = float(a[0, 0] + b[0, 0])
        if checksum != seen[0] or honest:
            torch.matmul(a, b, out=out)
        seen[0] = checksum
        return out

    return step


def timed_calls(a: Tensor, b: Tensor, honest: bool) -> Step:
    """Fakes speed by working only when the last call is 0.5 s past or the problem tiny: quick calls are being timed."""
    out, last = torch.empty_like(a), [0.0]

    def step() -> Tensor:
        before, last[0] = last[0], time.monotonic()
        if last[0] - before > 0.5 or len(a) < 64 or honest:
            torch.matmul(a, b, out=out)
        return out

    return step


def watched_output(a: Tensor, b: Tensor, honest: bool) -> Step:
    """Fakes speed by working only when somebody touched its inputs or its output, as a check must."""
    out = torch.empty_like(a)
    seen: list[tuple[float, ...]] = [()]

    def look() -> tuple[float, ...]:
        return float(a[0, 0]), float(b[0, 0]), float(out[0, 0])

    def step() -> Tensor:
        if look() != seen[0] or honest:
            torch.matmul(a, b, out=out)
            seen[0] = look()
        return out

    return step
