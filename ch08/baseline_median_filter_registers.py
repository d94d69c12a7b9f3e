"""Each thread sorts its 25 values by insertion: indices known at run time keep the array in local memory."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Step, Workload

requires = needs(sm=80)
SIDE = 5


def reference(image: Tensor) -> Tensor:
    """By sorting, in bands of rows: all windows together have 25 times the image's size."""
    rows, reach = len(image), SIDE // 2
    padded = pad(image[None, None], (reach,) * 4, mode="replicate")[0, 0]
    bands = []
    for top in range(0, rows, 128):
        band = padded[top : min(top + 128, rows) + 2 * reach]
        windows = band.unfold(0, SIDE, 1).unfold(1, SIDE, 1).flatten(2)
        bands.append(windows.sort(dim=-1).values[..., SIDE * SIDE // 2])
    return torch.cat(bands)


workload = Workload(
    inputs=lambda draw, rows, columns: {"image": draw.normal(rows, columns)},
    reference=reference,
    cost=lambda rows, columns: Cost(read=4 * rows * columns, write=4 * rows * columns, items=rows * columns, unit="px"),
    sizes={"bench": {"rows": 4096, "columns": 8192}, "test": {"rows": 37, "columns": 135}},
    tolerance=0.0,  # the median is one of the values
    as_drawn=("image",),
)


def prepare(image: Tensor) -> Step:
    median_filter, out = load_cuda(__file__, "median_filter"), torch.empty_like(image)

    def step() -> Tensor:
        median_filter(image, out, *image.shape)
        return out

    return step
