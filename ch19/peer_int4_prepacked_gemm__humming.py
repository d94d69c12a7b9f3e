"""vLLM's humming: codes repacked for tensor cores and widened in registers, by a kernel compiled for this shape."""

import torch
from humming.layer import HummingLayer
from torch import Tensor

from ch19.baseline_int4_prepacked_gemm import GROUP, metered
from ch19.baseline_int4_prepacked_gemm import workload as workload
from common.python.requirements import needs
from common.python.workload import Metered

requires = needs(sm=80, modules=["humming"])
TILE = 256  # outputs are filled up to a multiple of it


def prepare(x: Tensor, codes: Tensor, scales: Tensor) -> Metered:
    outputs, features = len(codes), x.shape[1]
    layer = HummingLayer(
        shape_n=outputs,
        shape_k=features,
        weight_config={"dtype": "uint4", "group_size": GROUP},  # a weight is (code - 8) * scale, as here
        pad_n_to_multiple=TILE,
        torch_dtype=x.dtype,
    ).to(x.device)
    # Eight codes a word, the first feature in the low bits.
    layer.load_from_tensors({"weight": codes.view(torch.int32), "weight_scale": scales.T.contiguous()})
    layer.transform()
    out = x.new_empty(len(x), outputs)

    def step() -> Tensor:
        return layer(x, outputs=out)

    return metered(step, x, outputs)
