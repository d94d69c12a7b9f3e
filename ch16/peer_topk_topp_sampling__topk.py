"""torch.topk finds the K likeliest, in order; softmax, cumulative sum and choice are then of K tokens, not of all."""

from torch import Tensor, inf

from ch16.baseline_topk_topp_sampling import K, P
from ch16.baseline_topk_topp_sampling import workload as workload
from common.python.workload import Step


def prepare(logits: Tensor, noise: Tensor) -> Step:
    def step() -> Tensor:
        likeliest, tokens = logits.topk(K)
        shares = likeliest.softmax(-1)
        kept = likeliest.masked_fill(shares.cumsum(-1) - shares >= P, -inf)
        return tokens.gather(1, (kept + noise.gather(1, tokens)).argmax(-1, keepdim=True))[:, 0]

    return step
