"""The product of two square matrices in float32 on a GPU."""

import torch
from torch import Tensor

from ch01.product import prepare as prepare
from ch01.product import workload as workload
from common.python.requirements import needs
from common.python.workload import Prepare, Step

requires = needs(gpus=1)


class Slow(torch.cuda.Event):
    """An event whose time passes at a tenth of the rate."""

    def elapsed_time(self, end_event: torch.cuda.Event) -> float:
        return super().elapsed_time(end_event) / 10


def patched_event(honest: bool) -> Prepare:
    """Fakes speed by replacing torch.cuda.Event with one that divides by ten."""
    if not honest:
        torch.cuda.Event = Slow
        return prepare

    def recording(a: Tensor, b: Tensor) -> Step:
        out, done = torch.empty_like(a), torch.cuda.Event()

        def step() -> Tensor:
            torch.matmul(a, b, out=out)
            done.record()
            return out

        return step

    return recording


def side_stream(a: Tensor, b: Tensor, honest: bool) -> Step:
    """Fakes speed by working on a stream that the caller's stream does not wait for."""
    out, side = torch.empty_like(a), torch.cuda.Stream()

    def step() -> Tensor:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.matmul(a, b, out=out)
        if honest:
            torch.cuda.current_stream().wait_stream(side)
        return out

    return step
