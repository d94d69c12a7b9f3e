"""vLLM's humming: codes repacked for tensor cores and widened in registers, by a kernel compiled for this shape."""

import torch
from humming.layer import HummingLayer
from torch import Tensor
from torch.nn.functional import pad

from ch13.baseline_int8_weight_only_decode import metered
from ch13.baseline_int8_weight_only_decode import workload as workload
from common.python.requirements import needs
from common.python.workload import Metered

requires = needs(sm=80, modules=["humming"])
TILE = 256  # outputs and features are filled up to a multiple of it


def prepare(x: Tensor, codes: Tensor, scales: Tensor) -> Metered:
    outputs, features = codes.shape
    more, deeper = -outputs % TILE, -features % TILE  # none at bench size
    offset = pad(codes.to(torch.int16).add_(128).to(torch.uint8), (0, deeper, 0, more), value=128)
    layer = HummingLayer(
        shape_n=outputs + more,
        shape_k=features + deeper,
        weight_config={"dtype": "uint8"},  # a weight is (code - 128) * scale of its output
        torch_dtype=x.dtype,
    ).to(x.device)
    # Four codes a word, the first feature in the low bits.
    layer.load_from_tensors({"weight": offset.view(torch.int32), "weight_scale": pad(scales, (0, more))[:, None]})
    layer.transform()
    out = x.new_empty(len(x), outputs + more)

    def step() -> Tensor:
        return layer(pad(x, (0, deeper)) if deeper else x, outputs=out)[:, :outputs]

    return metered(step, x, outputs)
