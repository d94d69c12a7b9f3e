"""out^T = weight x^T: weights are wgmma's left operand, which it takes from registers, and tokens its 16 columns."""

import torch
from torch import Tensor

from ch10.baseline_swap_ab_small_m import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(targets=["sm_90a"])
OUTPUTS, DEPTH = 128, 128  # of the kernel's tiles
# Parts of a row's number in a tile, and of a column's: how many values each has, from the most significant on.
ROWS = {"half": 2, "warp": 4, "down": 2, "row": 8}
COLUMNS = {"pair": 4, "product": 2, "right": 2, "lane": 4, "next": 2}
ORDER = ("tile", "step", "half", "pair", "warp", "row", "lane", "product", "right", "down", "next")


def packed(weight: Tensor) -> Tensor:
    """Codes of weight [outputs, features] in the order in which lanes hold them, filled up to whole tiles."""
    outputs, features = weight.shape
    filled = torch.nn.functional.pad(weight.view(torch.uint8), (0, -features % DEPTH, 0, -outputs % OUTPUTS))
    split = filled.unflatten(1, (-1, *COLUMNS.values())).unflatten(0, (-1, *ROWS.values()))
    names = ["tile", *ROWS, "step", *COLUMNS]
    return split.permute([names.index(name) for name in ORDER]).flatten()


def prepare(x: Tensor, weight: Tensor, scales: Tensor) -> Step:
    multiply, codes, out = load_cuda(__file__, "multiply"), packed(weight), x.new_empty(len(x), len(weight))

    def step() -> Tensor:
        multiply(x, codes, scales, out, *out.shape, x.shape[1])
        return out

    return step
