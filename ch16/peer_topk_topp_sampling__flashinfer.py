"""FlashInfer's masks, which need no sort, and torch's choice by the given noise: its fused sampler draws its own."""

from torch import Tensor, inf

from ch16.baseline_topk_topp_sampling import K, P
from ch16.baseline_topk_topp_sampling import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1, modules=["flashinfer"])


def prepare(logits: Tensor, noise: Tensor) -> Step:
    from flashinfer.sampling import top_k_mask_logits, top_p_renorm_probs

    def step() -> Tensor:
        likeliest = top_k_mask_logits(logits, K)  # the others are -inf
        shares = top_p_renorm_probs(likeliest.softmax(-1), P)  # of those that are dropped: 0
        return (likeliest.masked_fill_(shares == 0, -inf) + noise).argmax(-1)

    return step
