"""Liger's Triton norms, rotation and gate in an eager block: fusion by hand-written modules, without a compiler."""

from torch import Tensor
from torch.nn import functional as F

from ch14.baseline_compile_block import EPSILON, HEAD, train
from ch14.baseline_compile_block import workload as workload
from common.python.requirements import imported, needs
from common.python.workload import Step

requires = needs(modules=["liger_kernel"], gpus=1)
ops = imported("liger_kernel.ops", without="peft")


def block(x: Tensor, cosines: Tensor, sines: Tensor, weights: list[Tensor]) -> Tensor:
    norm1, norm2, qkv, out, gate_up, down = weights
    heads = (
        F.linear(ops.LigerRMSNormFunction.apply(x, norm1, EPSILON), qkv)
        .unflatten(-1, (3, -1, HEAD))
        .permute(2, 0, 3, 1, 4)
    )
    q, k = ops.LigerRopeFunction.apply(heads[0], heads[1], cosines, sines)
    attended = F.scaled_dot_product_attention(q, k, heads[2], is_causal=True)
    x = x + F.linear(attended.transpose(1, 2).flatten(2), out)
    normed = ops.LigerRMSNormFunction.apply(x, norm2, EPSILON)
    gate, up = (F.linear(normed, half) for half in gate_up.chunk(2))  # two products: its gate wants whole rows
    return x + F.linear(ops.LigerSiLUMulFunction.apply(gate, up), down)


def prepare(x: Tensor, slope: Tensor, weights: list[list[Tensor]]) -> Step:
    def blocks(hidden: Tensor, cosines: Tensor, sines: Tensor, leaves: list[list[Tensor]]) -> Tensor:
        for of_block in leaves:
            hidden = block(hidden, cosines[None], sines[None], of_block)
        return hidden

    return train(blocks, x, slope, weights)
