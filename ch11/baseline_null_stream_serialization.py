"""Sixteen streams, and a memset on the null stream before each kernel: it waits for all, and all wait for it."""

import torch
from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Step, Workload

requires = needs(sm=80)

workload = Workload(
    inputs=lambda draw, pictures, n: {"codes": draw.integers(pictures, n, high=256, dtype=torch.uint8)},
    reference=lambda codes: torch.stack([picture.bincount(minlength=256) for picture in codes]),
    cost=lambda pictures, n: Cost(read=pictures * n, write=pictures * 256 * 4, items=pictures, unit="pictures"),
    sizes={"bench": {"pictures": 128, "n": 1 << 25}, "test": {"pictures": 19, "n": 4099}},
    tolerance=0.0,  # counts are exact
)


def histograms(file: str, codes: Tensor) -> Step:
    """A step by the function of the .cu file beside `file`."""
    count, bins = load_cuda(file, "histograms"), codes.new_empty(len(codes), 256, dtype=torch.int32)

    def step() -> Tensor:
        count(codes, bins, *codes.shape)
        return bins

    return step


def prepare(codes: Tensor) -> Step:
    return histograms(__file__, codes)
