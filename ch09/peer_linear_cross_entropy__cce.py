"""Apple's cut cross entropy: no logits in memory; tiles of them are made in the forward pass and again on the way back.

No gradient is left out (`filter_eps=None`): by default it skips tiles of small ones, of which these inputs have none.
Release 25.1.1 unlocks a tile of a gradient without a barrier first, so a sum of a warp can be lost: a proof may fail.
"""

from torch import Tensor, autograd

from ch09.baseline_linear_cross_entropy import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(modules=["cut_cross_entropy"], sm=80)


def prepare(hidden: Tensor, weight: Tensor, targets: Tensor) -> Step:
    from cut_cross_entropy import linear_cross_entropy

    leaves = [hidden.detach().requires_grad_(), weight.detach().requires_grad_()]

    def step() -> tuple[Tensor, ...]:
        loss = linear_cross_entropy(*leaves, targets, filter_eps=None)
        return loss.detach(), *autograd.grad(loss, leaves)

    return step
