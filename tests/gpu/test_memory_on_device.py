"""Peak memory of a step as the allocator counts it: what it gave out, or, in a process of its own, what it reserved."""

from pathlib import Path

import torch
from torch import Tensor

from common.python.profile.profiled_why import why
from common.python.proof.preparation import Prepared

NO_PEAKS = "nothing is held against peaks here, so none are measured"
MIB = 2**20


def test_a_step_whose_tensors_grow_reserves_more_than_it_uses(tmp_path: Path) -> None:
    def step() -> Tensor:
        for size in (30, 40, 50):  # each is freed before the next, which does not fit where it was
            torch.empty(size * MIB, dtype=torch.uint8, device="cuda")
        return torch.empty((), device="cuda")

    torch.cuda.empty_cache()
    peaks = []
    for isolated in (False, True):
        told = why(
            [Prepared("growing", step, {}, 0.0, 0.0)],
            torch.device("cuda"),
            tmp_path / "trace.json",
            print,
            isolated=isolated,
        )
        peaks.append((told["growing"].peak_bytes or 0.0) / MIB)
    assert 50 <= peaks[0] < 52
    assert 120 <= peaks[1] < 124
