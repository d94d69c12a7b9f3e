"""The product loads rows where the tokens are, by their numbers; programs that stay walk over tiles twice as wide."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from ch17.baseline_moe_gather_gemm import TILE, planned
from ch17.baseline_moe_gather_gemm import workload as workload
from common.models.expert_rows import added
from common.python.workload import Step

GROUP = 8  # rows of tiles that take turns, so that what one program reads the next finds in the L2 cache


@triton.jit
def of_tiles(
    rows, index, weights, out, owners, tiles, experts, outputs, features,
    MOST: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Tiles of M rows times their expert's weights: N of each, or N / 2 gated values of the rows that `index` names."""
    PARTS: tl.constexpr = 1 if index is None else 2
    WIDE: tl.constexpr = N // PARTS
    number = tl.arange(0, MOST)
    tiles_m = tl.sum((tl.load(owners + number, number < tiles, experts) < experts).to(tl.int32))  # those that have rows
    tiles_n = tl.cdiv(outputs, WIDE)
    # Flattened, both loops are one: quicker where TMA fetches both operands, slower where addresses are loaded.
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0), flatten=index is None):
        i, j = tl.swizzle2d(tile // tiles_n, tile % tiles_n, tiles_m, tiles_n, GROUP)
        expert = tl.load(owners + i).to(tl.int32)
        place = i * M + tl.arange(0, M)
        source = place if index is None else tl.load(index + place) * features
        total = tl.zeros((M, N), tl.float32)
        for step in range(tl.cdiv(features, K)):
            if index is None:
                a = rows.load([i * M, step * K])  # beyond the edges there are zeros
            else:
                at = step * K + tl.arange(0, K)
                a = tl.load(rows + source[:, None] + at[None, :], mask=(at < features)[None, :], other=0.0)
            b = weights.load([expert * PARTS, j * WIDE, step * K]).reshape(N, K)
            total = tl.dot(a, b.T, total)
        if index is None:
            out.store([i * M, j * WIDE], total.to(out.dtype))
        else:
            gate, up = total.reshape(M, 2, WIDE).permute(0, 2, 1).split()
            out.store([i * M, j * WIDE], (gate * tl.sigmoid(gate) * up).to(out.dtype))


def shape() -> dict[str, int]:
    """Wide where a multiprocessor has shared memory for it, as on an H100 or a B200."""
    roomy = triton.knobs.runtime.interpret or torch.cuda.get_device_properties().shared_memory_per_block_optin > 220_000
    return {"N": 256 if roomy else 128, "K": 64 if roomy else 32, "num_stages": 3 if roomy else 2, "num_warps": 8}


def prepare(x: Tensor, ids: Tensor, shares: Tensor, gate_up: Tensor, down: Tensor) -> Step:
    plan, (experts, width, wide), m, options = planned(ids, len(down)), down.shape, TILE["M"], shape()
    tiles, n, k = ids.numel() // m + experts, options["N"], options["K"]
    hidden, answers, out = x.new_empty(tiles * m, wide), x.new_empty(tiles * m, width), torch.empty_like(x)
    # In the interpreter three programs, so that each has several tiles.
    programs = 3 if triton.knobs.runtime.interpret else torch.cuda.get_device_properties().multi_processor_count
    from_gates = TensorDescriptor.from_tensor(gate_up.view(2 * experts, wide, width), [2, n // 2, k])
    from_hidden, from_down = TensorDescriptor.from_tensor(hidden, [m, k]), TensorDescriptor.from_tensor(down, [1, n, k])
    to_hidden, to_answers = (
        TensorDescriptor.from_tensor(hidden, [m, n // 2]),
        TensorDescriptor.from_tensor(answers, [m, n]),
    )
    common = {"MOST": triton.next_power_of_2(tiles), "M": m, "GROUP": GROUP, **options}

    def step() -> Tensor:
        index, places, owners = plan()
        of_tiles[(programs,)](x, index, from_gates, to_hidden, owners, tiles, experts, wide, width, **common)
        of_tiles[(programs,)](from_hidden, None, from_down, to_answers, owners, tiles, experts, width, wide, **common)
        return added(answers, places, shares, out)

    return step
