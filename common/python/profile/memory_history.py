"""What the CUDA allocator did during one step, and where: torch's memory snapshot, kept as JSON.

torch's own `_dump_snapshot` writes a pickle, and to open one is to run it; a snapshot is lists and dicts of plain data.
"""

import json
from pathlib import Path
from typing import Any

import torch

from common.python.workload import Step

MOST_EVENTS = 50_000  # a step's allocations and frees; each has the Python frames that it came from


def write_snapshot(step: Step, path: Path) -> None:
    """Step once while the allocator's events are recorded, then write `segments` (what is held) and `device_traces`.

    To look at it on pytorch.org/memory_viz, which reads pickles: `pickle.dump(json.load(source), target)`.
    """
    torch.cuda.memory._record_memory_history(
        "all", context="all", stacks="python", max_entries=MOST_EVENTS, clear_history=True
    )
    try:
        step()
        torch.cuda.synchronize()
        found: dict[str, Any] = torch.cuda.memory._snapshot()
    finally:
        torch.cuda.memory._record_memory_history(None)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found))
