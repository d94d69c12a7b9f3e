"""cuDNN's attention through torch, with no other backend allowed."""

from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from ch10.baseline_attention_pingpong import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)


def prepare(q: Tensor, k: Tensor, v: Tensor) -> Step:
    batch = [x.unsqueeze(0) for x in (q, k, v)]

    def step() -> Tensor:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return scaled_dot_product_attention(*batch).squeeze(0)

    return step
