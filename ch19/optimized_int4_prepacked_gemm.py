"""Codes are repacked in the order of wgmma's fragments, which it takes from registers, and x from shared memory."""

import torch
from torch import Tensor

from ch19.baseline_int4_prepacked_gemm import metered, nibbles
from ch19.baseline_int4_prepacked_gemm import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Metered

requires = needs(targets=["sm_90a"])
TILE, MOST_ROWS = 256, 64  # of the kernel: outputs of a tile, and rows of x
BLOCKS = 3  # on a multiprocessor


def packed(codes: Tensor) -> Tensor:
    """Codes [outputs, features / 2] as the kernel reads them, outputs filled up to whole tiles of 256.

    A lane's word holds its eight codes of a fragment of 16 outputs x 16 features: output lane / 4 or 8 more, features
    lane % 4 * 2 or 8 more, and the next. Four words, of four fragments along the features, are its 16 bytes. The two
    neighbours of a register stand 16 bits apart in the word, so that one shift and one mask get both.
    """
    filled = torch.nn.functional.pad(nibbles(codes), (0, 0, 0, -len(codes) % TILE))
    of = {"tile": -1, "m": 16, "down": 2, "row": 8}, {"half": -1, "k": 4, "right": 2, "pair": 4, "next": 2}
    split = filled.unflatten(1, tuple(of[1].values())).unflatten(0, tuple(of[0].values()))
    names = [*of[0], *of[1]]
    order = ("tile", "half", "m", "row", "pair", "k", "next", "right", "down")
    low, high = split.permute([names.index(name) for name in order]).unbind(-1)
    return (low | high << 4).flatten()


def prepare(x: Tensor, codes: Tensor, scales: Tensor) -> Metered:
    multiply, fragments = load_cuda(__file__, "int4_linear"), packed(codes)
    (rows, features), outputs = x.shape, len(codes)
    blocks = BLOCKS * torch.cuda.get_device_properties(x.device).multi_processor_count
    out = x.new_empty(rows, outputs)
    partial = x.new_empty(blocks, 2, MOST_ROWS, TILE, dtype=torch.float32)
    arrived = torch.zeros(-(-outputs // TILE), dtype=torch.int32, device=x.device)

    def step() -> Tensor:
        multiply(fragments, scales, x, out, partial, arrived, rows, outputs, features, blocks)
        return out

    return metered(step, x, len(codes))
