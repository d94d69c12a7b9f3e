"""The cache is a pool of 16-token pages, and a table says which are whose: a request holds what its length needs."""

from torch import Tensor

from ch15.baseline_paged_kv import caching
from ch15.baseline_paged_kv import workload as workload
from common.python.workload import Metered

PAGE = 16  # tokens, as in vLLM: half a page a request is lost


def prepare(lengths: Tensor, longest: int, queries: Tensor, keys: Tensor, values: Tensor) -> Metered:
    return caching(PAGE, lengths, queries, keys, values)
