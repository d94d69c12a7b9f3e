"""The graph's five kernels a block start early: each asks for its first weights, then waits for the one before."""

import torch
from torch import Tensor

from ch16.baseline_decode_megakernel import DIM, EPSILON, ORDER
from ch16.baseline_decode_megakernel import workload as workload
from common.models.graphs import replayable
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=90)


def prepare(x: Tensor, **given: Tensor) -> Step:
    decode, (layers, kv_heads, tokens, _) = load_cuda(__file__, "decode"), given["keys"].shape
    inner, heads = given["down"].shape[2], len(x) // DIM
    out, fresh = torch.empty_like(x), given["keys"].new_empty(layers, 2, kv_heads, DIM)
    scratch = x.new_empty(len(x) + 2 * kv_heads * DIM), *(fresh.new_empty(n) for n in (len(x), inner))
    tensors, sizes = (
        (x, *(given[name] for name in ORDER), out, fresh, *scratch),
        (layers, heads, kv_heads, inner, tokens),
    )
    replay = replayable(lambda: decode(*tensors, *sizes, EPSILON), x.device)

    def step() -> tuple[Tensor, Tensor]:
        replay()
        return out, fresh

    return step
