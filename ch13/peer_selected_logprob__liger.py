"""Liger's fused linear cross-entropy without gradients: chunks of 256 tokens, and a kernel that reads bf16 logits."""

from torch import Tensor

from ch13.baseline_selected_logprob import workload as workload
from common.python.requirements import imported, needs
from common.python.workload import Step

requires = needs(modules=["liger_kernel"], gpus=1)
ops = imported("liger_kernel.ops", without="peft")
BUDGET = 8  # its own default, 1, makes chunks of 32 tokens


def prepare(hidden: Tensor, head: Tensor, chosen: Tensor) -> Step:
    def step() -> Tensor:
        words = hidden, head, chosen, None, None, -100, 0.0, 0.0, "none"
        rest = None, False, None, False, False, False, None, None, BUDGET
        loss = ops.LigerFusedLinearCrossEntropyFunction.apply(*words, *rest)
        return -(loss[0] if isinstance(loss, tuple) else loss)

    return step
