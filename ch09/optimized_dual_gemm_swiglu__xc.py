"""One kernel keeps two accumulators a tile, reads the tokens once for both, and stores only the gated product."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from ch09.baseline_dual_gemm_swiglu import workload as workload
from common.python.workload import Step


@triton.jit
def dual_product(x, gate, up, out, tokens, hidden, width, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, j = tl.program_id(1), tl.program_id(0)
    gated, upward = tl.zeros((M, N), tl.float32), tl.zeros((M, N), tl.float32)
    steps = tl.cdiv(width, K)
    turn = j * steps // tl.num_programs(0)  # each program begins elsewhere: they read other parts of memory and of x
    for step in range(steps):
        k = (step + turn) % steps * K
        left = x.load([i * M, k])  # beyond the edges there are zeros
        gated = tl.dot(left, gate.load([j * N, k]).T, gated)
        upward = tl.dot(left, up.load([j * N, k]).T, upward)
    result = gated * tl.sigmoid(gated) * upward
    token, column = i * M + tl.arange(0, M), j * N + tl.arange(0, N)
    place = out + token.to(tl.int64)[:, None] * hidden + column[None, :]
    tl.store(place, result.to(out.dtype.element_ty), mask=(token < tokens)[:, None] & (column < hidden)[None, :])


def tile() -> dict[str, int]:
    """All tokens and 128 columns of each weight: of the bench size, one tile for each SM, 192 KB on their way."""
    roomy = triton.knobs.runtime.interpret or torch.cuda.get_device_properties().shared_memory_per_block_optin > 220_000
    shape = {"M": 128, "N": 64, "K": 64, "num_stages": 3} if roomy else {"M": 128, "N": 64, "K": 32, "num_stages": 3}
    return {**shape, "num_warps": 4}


def prepare(x: Tensor, gate: Tensor, up: Tensor) -> Step:
    (tokens, width), hidden, options = x.shape, len(gate), tile()
    out = x.new_empty(tokens, hidden)
    from_x = TensorDescriptor.from_tensor(x, [options["M"], options["K"]])
    from_gate, from_up = (TensorDescriptor.from_tensor(weight, [options["N"], options["K"]]) for weight in (gate, up))
    grid = triton.cdiv(hidden, options["N"]), triton.cdiv(tokens, options["M"])

    def step() -> Tensor:
        dual_product[grid](from_x, from_gate, from_up, out, tokens, hidden, width, **options)
        return out

    return step
