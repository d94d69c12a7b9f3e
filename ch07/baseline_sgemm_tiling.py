"""Each thread computes one element from global memory, and the lanes of a warp run down a column of the result."""

from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Step, Workload

requires = needs(sm=80)
workload = Workload(
    inputs=lambda draw, m, n, k: {"a": draw.normal(m, k), "b": draw.normal(k, n)},
    reference=lambda a, b: a @ b,
    # The fp32 lanes are the subject, and not the least: three products on tensor cores do as well (fp32_emulation).
    cost=lambda m, n, k: Cost(flops=2 * m * n * k, dtype="fp32", read=4 * (m * k + k * n), write=4 * m * n),
    sizes={"bench": {"m": 4096, "n": 4096, "k": 1024}, "test": {"m": 197, "n": 131, "k": 73}},
    tolerance=5e-6,  # sums of 1024 products in fp32; TF32 would be off by 3e-4
    rungs="coalesced smem register_1d register_2d vectorized warp_tile cp_async tall",
)


def prepare(a: Tensor, b: Tensor) -> Step:
    sgemm, out = load_cuda(__file__, "sgemm"), a.new_empty(a.shape[0], b.shape[1])

    def step() -> Tensor:
        sgemm(a, b, out, *out.shape, a.shape[1])
        return out

    return step
