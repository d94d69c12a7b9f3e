"""No mask but is_causal=True, and fast kernels alone allowed, cuDNN's first: where none of them fits, it says so."""

from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from ch13.baseline_sdpa_causal_dispatch import workload as workload
from common.python.workload import Step

FAST = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]


def prepare(q: Tensor, k: Tensor, v: Tensor) -> Step:
    def step() -> Tensor:
        with sdpa_kernel(FAST, set_priority=True):
            return scaled_dot_product_attention(q, k, v, is_causal=True)

    return step
