"""torch's FlashAttention 2, the group as if it were so many queries of one head: it splits a long cache too."""

from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from ch18.baseline_split_kv_decode import workload as workload
from common.python.workload import Step


def prepare(q: Tensor, k: Tensor, v: Tensor) -> Step:
    def step() -> Tensor:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):  # newer releases would take cuDNN's on an H100
            return scaled_dot_product_attention(q, k, v)

    return step
