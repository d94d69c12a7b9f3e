"""flash-linear-attention's chunked gated delta rule: six Triton kernels, which write the state of each chunk."""

from fla.ops.gated_delta_rule import chunk_gated_delta_rule
from torch import Tensor

from ch18.baseline_chunked_linear_attention import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(modules=["fla"], sm=80)


def prepare(q: Tensor, k: Tensor, v: Tensor, g: Tensor, b: Tensor) -> Step:
    def step() -> Tensor:
        outputs: Tensor = chunk_gated_delta_rule(q, k, v, g=g, beta=b, scale=1.0)[0]
        return outputs

    return step
