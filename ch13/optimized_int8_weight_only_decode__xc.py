"""The weight stays int8 in memory and is widened in registers; the channel's scale multiplies the finished dot."""

import triton
import triton.language as tl
from torch import Tensor

from ch13.baseline_int8_weight_only_decode import metered
from ch13.baseline_int8_weight_only_decode import workload as workload
from common.python.workload import Metered


@triton.jit
def int8_linear(
    x,
    codes,
    scales,
    out,
    tokens,
    features,
    outputs,
    TOKENS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    FEATURES: tl.constexpr,
):
    token = tl.arange(0, TOKENS)[None, :]
    output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)[:, None]
    total = tl.zeros((OUTPUTS, TOKENS), tl.float32)
    for first in range(0, features, FEATURES):
        feature = first + tl.arange(0, FEATURES)
        weight = tl.load(
            codes + output.to(tl.int64) * features + feature[None, :],
            mask=(output < outputs) & (feature < features)[None, :],
            other=0,
        )
        activation = tl.load(
            x + token * features + feature[:, None], mask=(token < tokens) & (feature < features)[:, None], other=0.0
        )
        total = tl.dot(weight.to(activation.dtype), activation, total)
    scale = tl.load(scales + output, mask=output < outputs)
    tl.store(out + token * outputs + output, total * scale, mask=(token < tokens) & (output < outputs))


def prepare(x: Tensor, codes: Tensor, scales: Tensor) -> Metered:
    tokens, (outputs, features) = x.shape[0], codes.shape
    out = x.new_empty(tokens, outputs)
    # A kilobyte of a row at a time: memory opens fewer pages for as many bytes.
    tile = {"TOKENS": triton.next_power_of_2(max(tokens, 8)), "OUTPUTS": 32, "FEATURES": 1024}

    def step() -> Tensor:
        grid = (triton.cdiv(outputs, tile["OUTPUTS"]),)
        int8_linear[grid](x, codes, scales, out, tokens, features, outputs, **tile, num_warps=2, num_stages=2)
        return out

    return metered(step, x, outputs)
