"""Forty products of 256 x 256 matrices, one cuBLAS call each: no single product has work for all multiprocessors."""

from torch import Tensor, empty_like

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Step, Workload

requires = needs(sm=80, headers=["cublas_v2.h"])

workload = Workload(
    inputs=lambda draw, count, n: {"a": draw.normal(count, n, n), "b": draw.normal(count, n, n)},
    reference=lambda a, b: a @ b,
    cost=lambda count, n: Cost(
        flops=2 * count * n**3, dtype="fp32", read=8 * count * n * n, write=4 * count * n * n, launches=1
    ),
    sizes={"bench": {"count": 40, "n": 256}, "test": {"count": 3, "n": 37}},
    tolerance=2e-6,  # fp32 throughout: TF32 would be off by 3e-4
    clock="end_to_end",
)


def prepare(a: Tensor, b: Tensor) -> Step:
    gemm, out = load_cuda(__file__, "gemm_loop"), empty_like(a)

    def step() -> Tensor:
        gemm(a, b, out, a.shape[0], a.shape[1])
        return out

    return step
