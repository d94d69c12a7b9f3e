"""Tiles of 16 rows, the fewest of a tensor-core product, and deeper in k: the SMs load weights and little else."""

from torch import Tensor

from ch17.baseline_moe_decode_gemv import in_tiles
from ch17.baseline_moe_decode_gemv import workload as workload
from common.python.workload import Step

TILE = {"M": 16, "N": 32, "K": 128, "num_warps": 4, "num_stages": 4}


def prepare(x: Tensor, ids: Tensor, shares: Tensor, gate_up: Tensor, down: Tensor) -> Step:
    return in_tiles(TILE, x, ids, shares, gate_up, down)
