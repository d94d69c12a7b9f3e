"""What torch.compile did while a variant was prepared and first called: graphs, breaks in them, cache hits, seconds.

From dynamo's own records, which it keeps of the last 64 compilations. Without dynamo, nothing was compiled.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

UTILS = "torch._dynamo.utils"  # importing it takes seconds, which a process that compiles nothing should not spend
RESUMED = "torch_dynamo_resume_in"  # how dynamo names what it makes of a function's rest, behind a break


@contextmanager
def watched(told: dict[str, float]) -> Iterator[None]:
    """Put into `told`, at the end, what was compiled inside; nothing, if nothing was."""
    if UTILS in sys.modules:
        sys.modules[UTILS].clear_compilation_metrics()
    yield
    events = sys.modules[UTILS].get_compilation_metrics() if UTILS in sys.modules else []
    if seen := [event for event in events if not event.is_runtime]:
        told["graphs"] = sum(event.fail_type is None for event in seen)
        told["graph breaks"] = sum((event.co_name or "").startswith(RESUMED) for event in seen)
        told["graphs from the cache"] = sum(bool(event.inductor_fx_local_cache_hit_count) for event in seen)
        told["compilation s"] = sum(event.duration_us or 0 for event in seen) / 1e6
