"""vLLM's humming: e4m3 codes repacked for tensor cores and widened in registers, by a kernel made for this shape."""

import torch
from humming.layer import HummingLayer
from torch import Tensor
from torch.nn.functional import pad

from ch10.baseline_swap_ab_small_m import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80, modules=["humming"])
TILE = 256  # outputs and features are filled up to a multiple of it


def prepare(x: Tensor, weight: Tensor, scales: Tensor) -> Step:
    outputs, features = weight.shape
    more, deeper = -outputs % TILE, -features % TILE  # none at bench size
    codes = pad(weight.view(torch.uint8), (0, deeper, 0, more))
    layer = HummingLayer(
        shape_n=outputs + more,
        shape_k=features + deeper,
        weight_config={"dtype": "float8e4m3"},  # a weight is code * scale of its output, which is rounded to fp16
        torch_dtype=x.dtype,
    ).to(x.device)
    # Four codes a word, the first feature in the low bits.
    layer.load_from_tensors({"weight": codes.view(torch.int32), "weight_scale": pad(scales, (0, more))[:, None]})
    layer.transform()
    out = x.new_empty(len(x), outputs + more)

    def step() -> Tensor:
        return layer(pad(x, (0, deeper)) if deeper else x, outputs=out)[:, :outputs]

    return step
