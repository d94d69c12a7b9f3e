"""The peaks of this machine, each measured by its name in a worker; `survey` asks for them in turn.

What this machine lacks is an ordinary answer, with the reason; any other failure is raised.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch

from common.python.peaks import host, matrix, memory, ranks
from common.python.peaks.sampling import Unavailable, Way, best_way, device_timer, host_timer
from common.python.peaks.store import NO_GPU, Peak, Unit
from common.python.proof.preparation import free
from common.python.timing.telemetry import Monitor
from common.python.workers.commands import Commands


@dataclass(frozen=True)
class Kind:
    """A peak that can be asked for: ways to do the work, seconds to measure the best one, and the clock.

    `device` is the time between events, `end_to_end` the host's until the GPU is idle, `host` needs no GPU.
    """

    unit: Unit
    ways: Callable[[], Iterator[Way]] | None  # None for links, which ranks measure, and the difference `compile_call`
    clock: Literal["device", "end_to_end", "host"] = "device"
    bursts: bool = False  # where power matters
    seconds: float = 0.5  # the power cap shows after a tenth of a second


KINDS: dict[str, Kind] = {
    "hbm_read": Kind("B/s", memory.read_ways),
    "hbm_write": Kind("B/s", memory.write_ways),
    "hbm_copy": Kind("B/s", memory.copy_ways),
    "hbm_triad": Kind("B/s", memory.triad_ways),
    "l2_read": Kind("B/s", memory.l2_ways),
    "shared_read": Kind("B/s", memory.shared_ways),
    **{
        name: Kind("OP/s" if name.startswith("int8") else "FLOP/s", partial(matrix.ways, name), bursts=True)
        for name in (*matrix.DENSE, *matrix.SPARSE)
    },
    "bf16_mma_sync": Kind("FLOP/s", matrix.mma_ways, bursts=True),
    "fp32_fma": Kind("FLOP/s", matrix.fma_ways),
    "exp2": Kind("OP/s", matrix.exp2_ways),
    "pcie_to_device": Kind("B/s", partial(host.pcie_ways, to_gpu=True, pinned=True)),
    "pcie_to_host": Kind("B/s", partial(host.pcie_ways, to_gpu=False, pinned=True)),
    "pcie_to_device_pageable": Kind("B/s", partial(host.pcie_ways, to_gpu=True, pinned=False), "end_to_end"),
    "pcie_to_host_pageable": Kind("B/s", partial(host.pcie_ways, to_gpu=False, pinned=False), "end_to_end"),
    "pcie_both": Kind("B/s", host.pcie_both_ways),
    **{name: Kind("B/s", None) for name in ranks.LINKS},
    "launch_eager": Kind("s", host.launch_ways, "end_to_end"),
    "graph_node": Kind("s", host.graph_ways),
    "compile_call": Kind("s", None, "end_to_end"),
    **{name: Kind("B/s", partial(host.memory_ways, name), "host") for name in host.BUFFERS},
    "disk_write": Kind("B/s", partial(host.disk_ways, write=True), "host", seconds=1.0),
    "disk_read": Kind("B/s", partial(host.disk_ways, write=False), "host", seconds=1.0),
}


def plan(worker: Commands) -> dict[str, Any]:
    """What can be asked for, each with its unit; bytes of the L2 cache; and how many ranks measure links, if any."""
    count = torch.cuda.device_count()
    l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size if torch.cuda.is_available() else 0
    units = {name: kind.unit for name, kind in KINDS.items()}
    return {"units": units, "l2_bytes": l2_bytes, "ranks": count if count > 1 else 0}  # one GPU has no link


def measure(worker: Commands, name: str, sizes: list[int]) -> dict[str, Any]:
    """Measure one peak in a worker, with the memory of the one before it given back.

    Ranks measure messages of these sizes, in bytes, and have a curve over them as well.
    """
    kind, curve = KINDS[name], None
    free()
    try:
        if worker.ranks.size > 1:
            peak, curve = ranks.measure(name, sizes, worker.ranks)
        else:
            peak = _alone(name, kind)
    except Unavailable as error:
        peak = Peak(name=name, unit=kind.unit, reason=str(error))
    return {"peak": peak, "curve": curve}


def _alone(name: str, kind: Kind) -> Peak:
    on_gpu = kind.clock != "host"
    if on_gpu and not torch.cuda.is_available():
        raise Unavailable(NO_GPU)
    if name in ranks.LINKS:
        raise Unavailable("needs two GPUs")
    monitor = Monitor.open(str(torch.cuda.get_device_properties(0).uuid)) if on_gpu else None
    settle = torch.cuda.synchronize if on_gpu else lambda: None
    timer = device_timer(monitor) if kind.clock == "device" else host_timer(settle, monitor)
    if kind.ways is None:
        return host.compile_peak(name, timer)
    return best_way(name, kind.unit, kind.ways(), timer, kind.seconds, kind.bursts)
