"""The files that `benchmark_cli new` writes, whole: twice an array plus another, in two passes over memory and in one.

$baseline is the module of the pair's baseline, which is in PyTorch, whatever the optimized side is written in.
"""

BASELINE = '''\
"""Two calls in a row: the first writes the doubled array to memory, the second reads it back to add the other."""

import torch
from torch import Tensor

from common.python.workload import Cost, Step, Workload

workload = Workload(
    inputs=lambda draw, n: {"a": draw.normal(n), "b": draw.normal(n)},
    reference=lambda a, b: 2 * a + b,
    cost=lambda n: Cost(read=2 * 4 * n, write=4 * n, flops=2 * n, dtype="fp32"),
    sizes={"bench": {"n": 1 << 26}, "cpu": {"n": 1 << 22}, "test": {"n": 1027}},
    tolerance=1e-6,  # the sum is rounded to fp32
)


def prepare(a: Tensor, b: Tensor) -> Step:
    out = torch.empty_like(a)

    def step() -> Tensor:
        torch.mul(a, 2, out=out)
        return out.add_(b)

    return step
'''

OPTIMIZED_TORCH = '''\
"""One call doubles and adds while the elements are in registers: nothing is written to memory in between."""

import torch
from torch import Tensor

from $baseline import workload as workload
from common.python.workload import Step


def prepare(a: Tensor, b: Tensor) -> Step:
    out = torch.empty_like(a)

    def step() -> Tensor:
        return torch.add(b, a, alpha=2, out=out)

    return step
'''

OPTIMIZED_TRITON = '''\
"""One kernel doubles and adds while the elements are in registers: nothing is written to memory in between."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from $baseline import workload as workload
from common.python.workload import Step


@triton.jit
def double_and_add(a, b, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = 2 * tl.load(a + at, mask=at < n) + tl.load(b + at, mask=at < n)
    tl.store(out + at, total, mask=at < n)


def prepare(a: Tensor, b: Tensor) -> Step:
    out, n = torch.empty_like(a), a.numel()

    def step() -> Tensor:
        double_and_add[(triton.cdiv(n, 1024),)](a, b, out, n, BLOCK=1024)
        return out

    return step
'''

OPTIMIZED_CUDA = '''\
"""One kernel doubles and adds while the elements are in registers: nothing is written to memory in between."""

import torch
from torch import Tensor

from $baseline import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)


def prepare(a: Tensor, b: Tensor) -> Step:
    double_and_add, out = load_cuda(__file__, "double_and_add"), torch.empty_like(a)

    def step() -> Tensor:
        double_and_add(a, b, out, a.numel())
        return out

    return step
'''

OPTIMIZED_CU = """\
// One kernel doubles and adds while the elements are in registers: nothing is written to memory in between.
#include "kernel.cuh"

constexpr int THREADS = 256;

__global__ void add(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out, int64_t n) {
  const int64_t i = blockIdx.x * int64_t(THREADS) + threadIdx.x;
  if (i < n) out[i] = 2 * a[i] + b[i];
}

extern "C" int double_and_add(const float* a, const float* b, float* out, int64_t n, cudaStream_t stream) {
  add<<<ceil_div(n, THREADS), THREADS, 0, stream>>>(a, b, out, n);
  return cudaGetLastError();
}
"""

# By kind: the beginning of a file's name, its end, and its text.
FILES: dict[str, list[tuple[str, str, str]]] = {
    "torch": [("baseline", ".py", BASELINE), ("optimized", ".py", OPTIMIZED_TORCH)],
    "triton": [("baseline", ".py", BASELINE), ("optimized", ".py", OPTIMIZED_TRITON)],
    "cuda": [("baseline", ".py", BASELINE), ("optimized", ".py", OPTIMIZED_CUDA), ("optimized", ".cu", OPTIMIZED_CU)],
}
