"""Two ranges of coefficients are two chains, which a thread takes in turn and joins at the end."""

from torch import Tensor

from ch08.baseline_polynomial_ilp import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)


def prepare(coefficients: Tensor, x: Tensor) -> Step:
    evaluate, out = load_cuda(__file__, "evaluate"), x.new_empty(len(x))

    def step() -> Tensor:
        evaluate(coefficients, x, out, len(coefficients), len(x))
        return out

    return step
