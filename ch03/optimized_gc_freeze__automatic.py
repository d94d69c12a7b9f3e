"""gc.freeze() once all is loaded: collections pass over what lives as long as the process, and walk new objects."""

import gc

from torch import Tensor

from ch03.baseline_gc_freeze import loaded, serve
from ch03.baseline_gc_freeze import workload as workload
from common.python.workload import Metered


def prepare(tokens: Tensor, state: Tensor, held: int) -> Metered:
    heap = loaded(held)
    gc.collect()  # or garbage would be frozen as well, and never freed
    gc.freeze()
    return serve(tokens, state, heap)
