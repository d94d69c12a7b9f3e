"""The same packed weights by the first algorithm that cuSPARSELt has for them, as a model converted by torch runs."""

from torch import Tensor
from torch.nn import functional as F
from torch.sparse import to_sparse_semi_structured

from ch17.baseline_sparse24_linear import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)


def prepare(x: Tensor, weight: Tensor) -> Step:
    packed = to_sparse_semi_structured(weight)
    return lambda: F.linear(x, packed)
