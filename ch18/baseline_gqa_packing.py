"""Keys and values are repeated for each query head that shares them, and attention then reads the copies."""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from common.models.grouped_query import attended, decode_cost, decode_inputs
from common.python.workload import Step, Workload

workload = Workload(
    inputs=decode_inputs,
    reference=lambda q, k, v: torch.stack([attended(*one) for one in zip(q, k, v)]),
    cost=decode_cost,
    sizes={
        # One layer of an 8B model: 1.07 GB of keys and values. 256 key heads are enough for all multiprocessors.
        "bench": {"requests": 32, "heads": 8, "group": 4, "keys": 8192, "width": 128, "dtype": "bfloat16"},
        # float16 because Triton's interpreter has no bf16 dot
        "test": {"requests": 2, "heads": 3, "group": 5, "keys": 301, "width": 64, "dtype": "float16"},
    },
    tolerance=1e-2,  # weights and outputs are rounded to bf16, by 0.17% on average
)


def prepare(q: Tensor, k: Tensor, v: Tensor) -> Step:
    group = q.shape[2]

    def step() -> Tensor:
        repeated = [x.repeat_interleave(group, dim=1) for x in (k, v)]
        return scaled_dot_product_attention(q.flatten(1, 2)[:, :, None], *repeated).view(q.shape)

    return step
