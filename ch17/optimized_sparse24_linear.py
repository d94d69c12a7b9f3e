"""Weights are packed once without their zeros, and sparse tensor cores pick the activations that the rest meet."""

import torch
from torch import Tensor

from ch17.baseline_sparse24_linear import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)


def prepare(x: Tensor, weight: Tensor) -> Step:
    packed = torch._cslt_compress(weight)
    best = torch._cslt_sparse_mm_search(packed, x.T, transpose_result=True)  # cuSPARSELt times its algorithms
    return lambda: torch._cslt_sparse_mm(packed, x.T, transpose_result=True, alg_id=best)
