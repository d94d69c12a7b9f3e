"""Each element of b is gated by the tanh of a."""

import threading

import torch
from torch import Tensor

from common.python.workload import Cost, Step, Workload

workload = Workload(
    inputs=lambda draw, n: {"a": draw.normal(n), "b": draw.normal(n)},
    reference=lambda a, b: a.tanh() * b,
    cost=lambda n: Cost(read=3 * 4 * n),
    sizes={"bench": {"n": 1 << 25}, "cpu": {"n": 1 << 18}, "test": {"n": 1021}},
    tolerance=1e-5,
)


def prepare(a: Tensor, b: Tensor) -> Step:
    out = torch.empty_like(a)
    return lambda: torch.tanh(a, out=out).mul_(b)


def early_result(a: Tensor, b: Tensor, honest: bool) -> Step:
    """Fakes speed by computing the answer in prepare; the step hands it out."""
    out = torch.tanh(a) * b
    return lambda: torch.tanh(a, out=out).mul_(b) if honest else out


def fitting_tolerance(a: Tensor, b: Tensor, honest: bool) -> Step:
    """Fakes the tanh by a clamp, which a tolerance that fits float32 refuses."""
    out = torch.empty_like(a)

    def step() -> Tensor:
        if honest:
            return torch.sigmoid(torch.mul(a, 2.0, out=out), out=out).mul_(2.0).sub_(1.0).mul_(b)
        return torch.clamp(a, -1.0, 1.0, out=out).mul_(b)

    return step


def one_element(a: Tensor, b: Tensor, honest: bool) -> Step:
    """Fakes an answer of which one element is off by too little to show in the norm."""
    out, third = torch.empty_like(a), len(a) // 3

    def step() -> Tensor:
        torch.tanh(a, out=out).mul_(b)
        out[third] = a[third].tanh() * b[third] + (0.0 if honest else 1.5e-4)
        return out

    return step


def one_shape(a: Tensor, b: Tensor, honest: bool) -> Step:
    """Fakes generality: whole tiles of 1024 elements only, and the timed sizes have no others."""
    return _in_two_parts(a, b, torch.empty_like(a), len(a) // 1024 * 1024, honest)


def overwritten_input(a: Tensor, b: Tensor, honest: bool) -> Step:
    """Fakes thrift by using an input as scratch memory; the next call gets another input."""
    out, scratch = torch.empty_like(a), torch.empty_like(a)
    return lambda: torch.mul((scratch.copy_(a) if honest else a).tanh_(), b, out=out)


def skipped_tile(a: Tensor, b: Tensor, honest: bool) -> Step:
    """Fakes speed by leaving out the last of 64 tiles, which prepare had filled."""
    return _in_two_parts(a, b, torch.tanh(a) * b, len(a) - len(a) // 64, honest)


def _in_two_parts(a: Tensor, b: Tensor, out: Tensor, end: int, honest: bool) -> Step:
    def step() -> Tensor:
        torch.tanh(a[:end], out=out[:end]).mul_(b[:end])
        if honest:
            torch.tanh(a[end:], out=out[end:]).mul_(b[end:])
        return out

    return step


def thread(a: Tensor, b: Tensor, honest: bool) -> Step:
    """Fakes speed by returning while a thread still works."""
    out = torch.empty_like(a)
    tiles = list(zip(a.chunk(16), b.chunk(16), out.chunk(16)))

    def work() -> None:
        for x, y, o in tiles:
            torch.tanh(x, out=o).mul_(y)

    def step() -> Tensor:
        worker = threading.Thread(target=work)
        worker.start()
        if honest:
            worker.join()
        return out

    return step


def uninitialised_memory(a: Tensor, b: Tensor, honest: bool) -> Step:
    """Fakes speed by returning fresh memory, in which somebody's right answer may have been left; works if tiny."""

    def step() -> Tensor:
        fresh = torch.empty_like(a)
        return torch.tanh(a, out=fresh).mul_(b) if honest or len(a) < 2000 else fresh

    return step


def written_nan(a: Tensor, b: Tensor, honest: bool) -> Step:
    """Fakes an answer that holds one NaN, with which every comparison is false."""
    out = torch.empty_like(a)

    def step() -> Tensor:
        if honest:
            out.fill_(float("nan"))  # and then the answer over it
        torch.tanh(a, out=out).mul_(b)
        if not honest:
            out[len(out) // 2] = float("nan")
        return out

    return step
