"""Every rank gathers all keys and values for its part of a causal text: the last part has most to look back at."""

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention

from common.models.context_parallel import attention
from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, tokens: int, heads: int, width: int) -> Inputs:
    """Queries, keys and values of a rank's tokens, which come after those of the ranks before it."""
    qkv = draw.normal(tokens, 3, heads, width, dtype=torch.bfloat16)
    qkv[:, 0] *= 2  # scores of standard deviation 2: flat ones make late outputs small beside early ones' roundings
    return {"qkv": qkv}


def cost(tokens: int, heads: int, width: int, ranks: int = 2) -> Cost:
    """A rank's share of products; what has to cross the link takes a tenth of their time, and could go beside them."""
    numbers, pairs = tokens * heads * width, tokens * (ranks * tokens + 1) // 2
    return Cost(flops=4 * heads * width * pairs, dtype="bf16", read=6 * numbers, write=2 * numbers, items=tokens)


workload = Workload(
    inputs=inputs,
    reference=lambda rank, qkv: attention(qkv[rank][:, 0], torch.cat(qkv)[:, 1:], rank * len(qkv[rank])),
    cost=cost,
    sizes={
        "bench": {"tokens": 32768, "heads": 8, "width": 128},
        "test": {"tokens": 37, "heads": 4, "width": 64},
    },
    tolerance=0.04,  # bfloat16 rounds shares and outputs, also those 30 times the rms, of rows that few keys rule
    gpus=2,
    clock="end_to_end",
)


def prepare(qkv: Tensor) -> Step:
    (tokens, _, heads, width), seen = qkv.shape, (dist.get_rank() + 1) * len(qkv)
    gathered = qkv.new_empty(dist.get_world_size() * tokens, 2, heads, width)
    mask = causal_lower_right(tokens, seen)  # the last query sees all keys up to it: no mask in memory on a GPU

    def step() -> Tensor:
        dist.all_gather_into_tensor(gathered, qkv[:, 1:].contiguous())
        q, k, v = (x.transpose(0, 1)[None] for x in (qkv[:, 0], *gathered[:seen].unbind(1)))
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return scaled_dot_product_attention(q, k, v, attn_mask=mask)[0].transpose(0, 1)

    return step
