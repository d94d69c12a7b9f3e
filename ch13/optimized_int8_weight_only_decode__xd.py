"""Every program gets the same number of pieces, also of a tile's middle; who ends a tile last adds up its parts."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch13.baseline_int8_weight_only_decode import metered
from ch13.baseline_int8_weight_only_decode import workload as workload
from common.python.workload import Metered

EACH = 5  # programs of a multiprocessor
TILE = {"OUTPUTS": 128, "FEATURES": 128, "num_warps": 2, "num_stages": 3}


@triton.jit
def int8_linear(
    x, codes, scales, parts, arrived, out, tokens, features, outputs,
    TOKENS: tl.constexpr, OUTPUTS: tl.constexpr, FEATURES: tl.constexpr,
):  # fmt: skip
    program, programs, token = tl.program_id(0), tl.num_programs(0), tl.arange(0, TOKENS)[None, :]
    pieces = tl.cdiv(features, FEATURES)  # of a tile
    pieces_of_all = tl.cdiv(outputs, OUTPUTS) * pieces
    start, end = program * pieces_of_all // programs, (program + 1) * pieces_of_all // programs
    while start < end:
        tile = start // pieces
        until = tl.minimum(end, tile * pieces + pieces)
        output = tile * OUTPUTS + tl.arange(0, OUTPUTS)[:, None]
        total = tl.zeros((OUTPUTS, TOKENS), tl.float32)
        for piece in range(start - tile * pieces, until - tile * pieces):
            feature = piece * FEATURES + tl.arange(0, FEATURES)
            weight = tl.load(
                codes + output.to(tl.int64) * features + feature[None, :],
                mask=(output < outputs) & (feature < features)[None, :],
                other=0,
            )
            there = (token < tokens) & (feature < features)[:, None]
            activation = tl.load(x + token * features + feature[:, None], mask=there, other=0.0)
            total = tl.dot(weight.to(activation.dtype), activation, total)
        first = ((tile * pieces + 1) * programs - 1) // pieces_of_all  # the programs that have a part of the tile
        last = ((tile * pieces + pieces) * programs - 1) // pieces_of_all
        ended = first == last
        inside = tl.arange(0, OUTPUTS)[:, None] * TOKENS + token
        if not ended:
            tl.store(parts + (program + tile) * OUTPUTS * TOKENS + inside, total)
            tl.debug_barrier()  # all threads have stored, before one says so
            if tl.atomic_add(arrived + tile, 1, sem="acq_rel") == last - first:
                tl.store(arrived + tile, 0)  # for the next step
                total = tl.zeros((OUTPUTS, TOKENS), tl.float32)
                for other in range(first, last + 1):
                    total += tl.load(parts + (other + tile) * OUTPUTS * TOKENS + inside)
                ended = True
        if ended:
            scale = tl.load(scales + output, mask=output < outputs)
            tl.store(out + token * outputs + output, total * scale, mask=(token < tokens) & (output < outputs))
        start = until


def prepare(x: Tensor, codes: Tensor, scales: Tensor) -> Metered:
    tokens, (outputs, features) = x.shape[0], codes.shape
    out, rows = x.new_empty(tokens, outputs), triton.next_power_of_2(max(tokens, 8))
    tiles = triton.cdiv(outputs, TILE["OUTPUTS"])
    most = tiles * triton.cdiv(features, TILE["FEATURES"])
    cores = torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 1
    programs = min(most, EACH * cores)
    parts = x.new_empty(programs + tiles, TILE["OUTPUTS"], rows, dtype=torch.float32)
    arrived = x.new_zeros(tiles, dtype=torch.int32)

    def step() -> Tensor:
        int8_linear[(programs,)](
            x, codes, scales, parts, arrived, out, tokens, features, outputs, TOKENS=rows, **TILE
        )  # fmt: skip
        return out

    return metered(step, x, outputs)
