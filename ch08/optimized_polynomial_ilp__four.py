"""Four ranges of coefficients are four chains, as many as a multiply-add has cycles of latency."""

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
