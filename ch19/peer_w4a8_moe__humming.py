"""vLLM's humming: a grouped product at fp8's rate, which adds a group's exponent to its e2m1 codes in registers."""

import torch
from humming.layer import HummingLayer
from torch import Tensor

from ch19.baseline_w4a8_moe import GROUP
from ch19.baseline_w4a8_moe import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=90, modules=["humming"])
TILE = 128  # outputs and features are filled up to a multiple of it
LARGEST = torch.finfo(torch.float8_e4m3fn).max


def cast(x: Tensor) -> tuple[Tensor, Tensor]:
    """Codes, and for each row the least power of two with which it fits: humming's own cast takes any fp32 number."""
    ratio = (x.abs().amax(-1, keepdim=True).float() / LARGEST).clamp(min=2.0**-100)
    scale = ((ratio.view(torch.int32) + 0x7FFFFF) & 0x7F800000).view(torch.float32)
    return (x.float() / scale).to(torch.float8_e4m3fn), scale


def prepare(x: Tensor, ends: Tensor, codes: Tensor, exponents: Tensor) -> Step:
    (experts, outputs, _), (rows, width) = codes.shape, x.shape
    layer = HummingLayer(
        shape_n=outputs,
        shape_k=width,
        weight_config={"dtype": "float4e2m1", "scale_dtype": "float8e8m0", "group_size": GROUP},
        input_config={"dtype": "float8e4m3"},
        pad_n_to_multiple=TILE,
        pad_k_to_multiple=TILE,
        num_experts=experts,
        torch_dtype=x.dtype,
    ).to(x.device)
    # Eight codes a word, the first feature in the low bits.
    weight_scale = exponents.view(torch.float8_e8m0fnu)
    layer.load_from_tensors({"weight": codes.view(torch.int32), "weight_scale": weight_scale})
    layer.transform()
    compiled = torch.compile(cast, fullgraph=True, dynamic=False)
    bounds, out = ends.new_zeros(experts + 1), x.new_empty(rows, outputs)
    grouped = {"compute_config": {"gemm_type": "grouped_contiguous"}, "expert_layout": bounds, "outputs": out}

    def step() -> Tensor:
        bounds[1:].copy_(ends)
        fp8, by_row = compiled(x)
        layer(fp8, input_scale=by_row, **grouped)
        return out

    return step
