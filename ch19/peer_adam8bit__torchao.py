"""torchao's AdamW8bit: a moment is one of 256 values times its block's largest; torch.compile fuses the update."""

from torch import Tensor
from torchao.optim import AdamW8bit

from ch19.baseline_adam8bit import BETA1, BETA2, DECAY, EPSILON, RATE
from ch19.baseline_adam8bit import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(tools=["g++"], modules=["torchao.optim"])


def prepare(parameters: Tensor, gradients: Tensor) -> Step:
    optimizer = AdamW8bit([parameters], lr=RATE, betas=(BETA1, BETA2), eps=EPSILON, weight_decay=DECAY)

    def step() -> Tensor:
        optimizer.state.clear()
        for gradient in gradients:
            parameters.grad = gradient
            optimizer.step()
        parameters.grad = None
        return parameters

    return step
