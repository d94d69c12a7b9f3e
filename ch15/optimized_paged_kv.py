"""The cache is a pool of 16-token pages, and a table says which are whose: a request holds what its length needs."""

from typing import Any

from ch15.baseline_paged_kv import serving
from ch15.baseline_paged_kv import workload as workload
from common.python.workload import Metered

PAGE = 16  # tokens, as in vLLM: half a page a request is lost


def prepare(**given: Any) -> Metered:
    return serving(PAGE, **given)
