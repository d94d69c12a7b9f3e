"""Two kernels a block start early and load weights ahead; norm and activation are parts of the products' kernels."""

from torch import Tensor

from ch12.baseline_pdl_decode_chain import EPSILON
from ch12.baseline_pdl_decode_chain import workload as workload
from common.models.graphs import replayable
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(targets=["sm_90a", "sm_100a", "sm_103a", "sm_121a"])


def prepare(x: Tensor, gains: Tensor, up: Tensor, down: Tensor) -> Step:
    decode, (layers, width, inner) = load_cuda(__file__, "decode"), down.shape
    out, squares = x.new_empty(width), x.new_empty(layers)
    scaled, active = gains.new_empty(width), gains.new_empty(inner)
    tensors = x, gains, up, down, out, scaled, squares, active
    replay = replayable(lambda: decode(*tensors, layers, width, inner, EPSILON), x.device)

    def step() -> Tensor:
        replay()
        return out

    return step
