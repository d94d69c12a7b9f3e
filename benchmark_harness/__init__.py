"""What the author of a kernel imports: `from benchmark_harness import Cost, Step, Workload, load_cuda, needs`."""

from typing import TYPE_CHECKING, Any

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import AnyOrder, Cost, Draw, Metered, Step, Workload

if TYPE_CHECKING:
    from benchmark_harness.in_process import Compared, compare

__all__ = ["AnyOrder", "Compared", "Cost", "Draw", "Metered", "Step", "Workload", "compare", "load_cuda", "needs"]


def __getattr__(name: str) -> Any:
    """`compare` brings the whole harness along, which a worker that imports a pair's file has no time for."""
    if name not in ("Compared", "compare"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from benchmark_harness import in_process

    return getattr(in_process, name)
