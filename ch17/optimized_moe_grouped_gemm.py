"""Rows sorted by expert: one launch a projection, a queue of tiles, each multiplied with the weight of its expert."""

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from ch17.baseline_moe_grouped_gemm import workload as workload
from common.models.expert_rows import added, spread
from common.python.workload import Step

GROUP = 8  # rows of tiles that take turns, so that what one program reads the next finds in the L2 cache


@triton.jit
def grouped_linear(
    rows,
    weights,
    out,
    owners,
    tops,
    experts,
    outputs,
    features,
    GATED: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Tiles of M rows times the owner's weights; GATED, a tile has N / 2 gates, and the N / 2 values that they pass."""
    PARTS: tl.constexpr = 2 if GATED else 1
    WIDE: tl.constexpr = N // PARTS
    # As many programs as SMs take tiles in turn; how many tiles there are, only the GPU knows.
    tiles_m, tiles_n = tl.load(tops + experts - 1) // M, tl.cdiv(outputs, WIDE)
    for number in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0), flatten=True):
        i, j = tl.swizzle2d(number // tiles_n, number % tiles_n, tiles_m, tiles_n, GROUP)
        expert = tl.load(owners + i)
        total = tl.zeros((M, N), tl.float32)
        for step in range(tl.cdiv(features, K)):
            a = rows.load([i * M, step * K])  # beyond the edges there are zeros
            b = weights.load([expert * PARTS, j * WIDE, step * K]).reshape(N, K)
            total = tl.dot(a, b.T, total)
        if GATED:
            gate, up = total.reshape(M, 2, WIDE).permute(0, 2, 1).split()
            out.store([i * M, j * WIDE], (gate * tl.sigmoid(gate) * up).to(out.dtype))
        else:
            out.store([i * M, j * WIDE], total.to(out.dtype))


def tile() -> dict[str, int]:
    """Wide where an SM has shared memory for it, as on an H100 or a B200; shallow where no TMA finds the addresses."""
    if triton.knobs.runtime.interpret:
        roomy, tma = True, True
    else:
        gpu = torch.cuda.get_device_properties()
        roomy, tma = gpu.shared_memory_per_block_optin > 220_000, gpu.major >= 9
    shape = {"M": 128, "N": 256 if roomy else 128, "K": 64 if tma else 32}  # 64 would spill registers on Ampere
    return {**shape, "GROUP": GROUP, "num_warps": 8, "num_stages": 3 if roomy else 2}


def arranged(ids: Tensor, first_rows: Tensor, experts: int, m: int) -> tuple[Tensor, Tensor, Tensor]:
    """The place of each choice, the end of each expert's room, a multiple of m, and the owner of each tile's rows."""
    # Of 16 bits, for a radix sort has as many passes as a key has bytes.
    ordered, order = ids.flatten().to(torch.int16).sort(stable=True)
    each = torch.arange(experts, dtype=torch.int16, device=ids.device)
    ends = torch.searchsorted(ordered, each, right=True, out_int32=True)
    counts = ends.diff(prepend=ends.new_zeros(1))
    room = (counts + m - 1) // m * m
    tops = room.cumsum(0, dtype=torch.int32)
    places, shift = torch.empty_like(order), tops - room - ends + counts
    places[order] = torch.arange(len(order), device=ids.device) + shift[ordered.int()]
    return places, tops, torch.searchsorted(tops, first_rows, right=True, out_int32=True)


def prepare(x: Tensor, ids: Tensor, shares: Tensor, gate_up: Tensor, down: Tensor) -> Step:
    experts, width, wide = down.shape
    options = tile()
    m, n, k = (options[side] for side in "MNK")
    room = (ids.numel() // m + experts) * m  # enough for any routing: only an expert's last tile may be part full
    first_rows = torch.arange(0, room, m, dtype=torch.int32, device=x.device)
    rows, hidden, answers = (x.new_zeros(room, features) for features in (width, wide, width))
    out = torch.empty_like(x)
    # In the interpreter three programs, so that each has several tiles.
    most = 3 if triton.knobs.runtime.interpret else torch.cuda.get_device_properties().multi_processor_count

    def linear(source: Tensor, weights: Tensor, into: Tensor) -> Callable[[Tensor, Tensor], None]:
        """Weights [experts, outputs, features]; with gates [2 x experts, outputs, features], a gate before its up."""
        parts, (_, outputs, features) = len(weights) // experts, weights.shape
        from_rows = TensorDescriptor.from_tensor(source, [m, k])
        from_weights = TensorDescriptor.from_tensor(weights, [parts, n // parts, k])
        to_rows = TensorDescriptor.from_tensor(into, [m, n // parts])

        def multiply(owners: Tensor, tops: Tensor) -> None:
            grouped_linear[(most,)](
                from_rows, from_weights, to_rows, owners, tops, experts, outputs, features, parts == 2, **options
            )

        return multiply

    up_linear = linear(rows, gate_up.view(2 * experts, wide, width), hidden)
    down_linear = linear(hidden, down, answers)

    def step() -> Tensor:
        places, tops, owners = arranged(ids, first_rows, experts, m)
        spread(x, places, rows)
        up_linear(owners, tops)
        down_linear(owners, tops)
        return added(answers, places, shares, out)

    return step
