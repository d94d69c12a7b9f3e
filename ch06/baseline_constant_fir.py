"""Each thread loads every tap by an instruction of its own: the load units are as busy as the multiply-adds are."""

import torch
from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Step, Workload

requires = needs(sm=80)

TAPS = 64


def filtered(signal: Tensor, taps: Tensor) -> Tensor:
    """Each result is the sum of 64 neighbours, weighted."""
    n = len(signal) - TAPS + 1
    out = torch.zeros_like(signal[:n])
    for k in range(TAPS):
        out += taps[k] * signal[k : k + n]
    return out


workload = Workload(
    inputs=lambda draw, n: {"signal": draw.normal(n + TAPS - 1), "taps": draw.normal(TAPS)},
    reference=filtered,
    # The multiply-adds of the direct form, which are worth as much time as the bytes are (on an H200 within 6%): a
    # filter by FFT or tensor cores could do with fewer, and would find the limit of memory in the same place.
    cost=lambda n: Cost(read=4 * (n + 2 * TAPS - 1), write=4 * n, flops=2 * TAPS * n),
    sizes={"bench": {"n": 1 << 26}, "test": {"n": 20011}},
    tolerance=1e-5,  # sums of 64 products in fp32 are off by 3e-7
)


def prepare(signal: Tensor, taps: Tensor) -> Step:
    apply, out = load_cuda(__file__, "filter_signal"), signal.new_empty(len(signal) - TAPS + 1)

    def step() -> Tensor:
        apply(signal, taps, out, len(out))
        return out

    return step
