"""The functions that measure and compare, as they were before any pair was imported.

A pair that replaces one of them would time or prove itself. `restore` puts the originals back and names them.
"""

import time
from typing import Any

import torch

# Bound here: replacing them in the module `time` does not reach these names.
now_ns, now_s = time.perf_counter_ns, time.perf_counter

_ORIGINAL: dict[str, tuple[Any, str, Any]] = {}  # by label: owner, attribute, value


def watch(owner: Any, *names: str) -> None:
    """Remember these attributes of a module or class. Call it at import, before any pair is imported."""
    for name in names:
        _ORIGINAL[f"{owner.__name__}.{name}"] = owner, name, getattr(owner, name)


def restore() -> list[str]:
    """Put back what a pair has replaced; the names of what that was."""
    changed = [label for label, (owner, name, value) in _ORIGINAL.items() if getattr(owner, name) is not value]
    for label in changed:
        setattr(*_ORIGINAL[label])
    return changed


watch(time, "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time", "time_ns")
watch(torch.cuda, "Event", "synchronize", "current_stream", "_sleep")
watch(torch.cuda.Event, "record", "elapsed_time", "synchronize", "query", "wait")
watch(torch.Tensor, "copy_", "fill_", "zero_", "double", "to")
