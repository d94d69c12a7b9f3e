"""CUB's DeviceSelect: blocks learn from those before them where to write, so the order is kept as well."""

import torch
from torch import Tensor

from ch08.baseline_filter_warp_aggregated import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import AnyOrder, Step

requires = needs(sm=80, headers=["cub/device/device_select.cuh"])

SCRATCH = 1 << 24  # bytes; CUB refuses if this is too little


def prepare(x: Tensor, room: int) -> Step:
    keep, out, count = load_cuda(__file__, "filter"), x.new_empty(room), x.new_empty(1, dtype=torch.int32)
    scratch = x.new_empty(SCRATCH, dtype=torch.uint8)

    def step() -> tuple[AnyOrder, Tensor]:
        keep(x, scratch, SCRATCH, out, count, len(x))
        return AnyOrder(out), count

    return step
