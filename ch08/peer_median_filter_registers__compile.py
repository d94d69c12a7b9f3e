"""torch.compile of a sorting network over 25 shifted images, less what the median does not need."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from ch08.baseline_median_filter_registers import SIDE
from ch08.baseline_median_filter_registers import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def exchanges(count: int) -> list[tuple[int, int]]:
    """Batcher's odd-even merge sort: pairs of places, the smaller value to go to the first."""
    pairs, run = [], 1
    while run < count:
        apart = run
        while apart >= 1:
            for j in range(apart % run, count - apart, 2 * apart):
                for i in range(j, min(j + apart, count - apart)):
                    if i // (2 * run) == (i + apart) // (2 * run):
                        pairs.append((i, i + apart))
            apart //= 2
        run *= 2
    return pairs


def median(image: Tensor) -> Tensor:
    rows, columns = image.shape
    padded = pad(image[None, None], (SIDE // 2,) * 4, mode="replicate")[0, 0]
    values = [padded[i : i + rows, j : j + columns] for i in range(SIDE) for j in range(SIDE)]
    for low, high in exchanges(SIDE * SIDE):
        a, b = values[low], values[high]
        values[low], values[high] = torch.minimum(a, b), torch.maximum(a, b)
    return values[SIDE * SIDE // 2]


def prepare(image: Tensor) -> Step:
    compiled = torch.compile(median, dynamic=False, fullgraph=True)

    def step() -> Tensor:
        return compiled(image)

    return step
