"""DeepGEMM's kernel for Hopper, compiled for the shape at first use; the activations are cast by torch.compile."""

import torch
from deep_gemm import fp8_gemm_nt
from torch import Tensor

from ch14.baseline_blockwise_fp8_gemm import BLOCK
from ch14.baseline_blockwise_fp8_gemm import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(targets=["sm_90a"], modules=["deep_gemm"])
LARGEST = torch.finfo(torch.float8_e4m3fn).max


def cast(x: Tensor) -> tuple[Tensor, Tensor]:
    """Codes, and scales [blocks, tokens]."""
    tiles = x.float().view(len(x), -1, BLOCK)
    ratio = (tiles.abs().amax(-1) / LARGEST).clamp(min=2.0**-100)
    scale = ((ratio.view(torch.int32) + 0x7FFFFF) & 0x7F800000).view(torch.float32)  # up, to a power of two
    return (tiles / scale[..., None]).to(torch.float8_e4m3fn).view(x.shape), scale.T.contiguous()


def prepare(x: Tensor, codes: Tensor, by_block: Tensor) -> Step:
    compiled, out = torch.compile(cast, fullgraph=True, dynamic=False), x.new_empty(len(x), len(codes))

    def step() -> Tensor:
        x_codes, x_scales = compiled(x)
        fp8_gemm_nt((x_codes, x_scales.T), (codes, by_block), out, disable_ue8m0_cast=True)
        return out

    return step
