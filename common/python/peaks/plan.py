"""The peaks of this machine, each measured by its name, inside a worker; `peak_survey` asks for them in turn.

Each begins with the memory that the one before it used given back, and ends with a value or the reason why there is
none: what this machine has not got is an ordinary answer, and what fails is raised.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from common.python.peaks import host, links, matrix, memory, ranks
from common.python.peaks.sampling import Timer, Unavailable, Way, best_way, device_timer, host_timer
from common.python.peaks.store import NO_GPU, Peak, Unit
from common.python.proof.preparation import free
from common.python.timing.telemetry import Monitor
from common.python.workers.commands import Commands

MEMORY_S, CACHE_S, LINK_S, LAUNCH_S, HOST_S = 0.5, 0.4, 0.5, 0.4, 0.4


@dataclass(frozen=True)
class Instruments:
    """What a measurement is given: timers that note clocks and power, and a folder for files."""

    on_device: Timer
    until_idle: Timer  # by the host's clock, until the GPU is done
    scratch: Path


@dataclass(frozen=True)
class Kind:
    """A peak that can be asked for."""

    unit: Unit
    measure: Callable[[str, Instruments], Peak]
    on_gpu: bool = True


def _device(unit: Unit, seconds: float, ways: Callable[[], Iterator[Way]]) -> Kind:
    return Kind(unit, lambda name, given: best_way(name, unit, ways(), given.on_device, seconds))


def _idle(unit: Unit, seconds: float, ways: Callable[[], Iterator[Way]]) -> Kind:
    return Kind(unit, lambda name, given: best_way(name, unit, ways(), given.until_idle, seconds))


def _matrix(name: str) -> Kind:
    return Kind(matrix.matrix_unit(name), lambda name, given: matrix.matrix_peak(name, given.on_device))


def _host(name: str, given: Instruments) -> Peak:
    ways = host.host_ways(name, host.buffer_bytes())
    return best_way(name, "B/s", ways, host_timer(), HOST_S)


def _disk(name: str, given: Instruments) -> Peak:
    return host.disk_peak(name, given.scratch)


def _compiled(name: str, given: Instruments) -> Peak:
    return links.compile_peak(name, "cuda", given.until_idle)


def _alone(name: str, given: Instruments) -> Peak:
    """Where there is another GPU, ranks measure it."""
    raise Unavailable("needs two GPUs")


_pcie = links.pcie_ways
KINDS: dict[str, Kind] = {
    "hbm_read": _device("B/s", MEMORY_S, memory.read_ways),
    "hbm_write": _device("B/s", MEMORY_S, memory.write_ways),
    "hbm_copy": _device("B/s", MEMORY_S, memory.copy_ways),
    "hbm_triad": _device("B/s", MEMORY_S, memory.triad_ways),
    "l2_read": _device("B/s", CACHE_S, memory.l2_ways),
    "shared_read": _device("B/s", CACHE_S, memory.shared_ways),
    **{name: _matrix(name) for name in ("bf16", "fp16", "tf32", "fp32", "fp64", "fp8", "fp8_rowwise", "int8", "fp4")},
    **{f"{name}_sparse": _matrix(f"{name}_sparse") for name in ("bf16", "fp16", "tf32", "fp8", "int8", "fp4")},
    "fp32_fma": _device("FLOP/s", CACHE_S, matrix.fma_ways),
    "pcie_to_device": _device("B/s", LINK_S, partial(_pcie, to_device=True, pinned=True)),
    "pcie_to_host": _device("B/s", LINK_S, partial(_pcie, to_device=False, pinned=True)),
    "pcie_to_device_pageable": _idle("B/s", LINK_S, partial(_pcie, to_device=True, pinned=False)),
    "pcie_to_host_pageable": _idle("B/s", LINK_S, partial(_pcie, to_device=False, pinned=False)),
    "pcie_both": _device("B/s", LINK_S, links.pcie_both_ways),
    **{name: Kind("B/s", _alone) for name in ranks.LINKS},
    "launch_eager": _idle("s", LAUNCH_S, links.launch_ways),
    "graph_node": _device("s", LAUNCH_S, links.graph_ways),
    "compile_call": Kind("s", _compiled),
    **{name: Kind("B/s", _host, on_gpu=False) for name in ("host_read", "host_copy", "host_triad")},
    **{name: Kind("B/s", _disk, on_gpu=False) for name in ("disk_write", "disk_read")},
}


def plan(worker: Commands) -> dict[str, Any]:
    """What can be asked for, each with its unit, and the caches that traffic may stay in, in bytes.

    `ranks` are those that measure the links between GPUs, one for each GPU; 0 where there are no such links.
    """
    l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size if torch.cuda.is_available() else 0
    units = {name: kind.unit for name, kind in KINDS.items()}
    count = torch.cuda.device_count()
    linked = {"links": list(ranks.LINKS), "ranks": count} if count > 1 else {"links": [], "ranks": 0}
    return {"units": units, "l2_bytes": l2_bytes, "llc_bytes": host.cache_bytes(), **linked}


def peak(worker: Commands, name: str) -> dict[str, Any]:
    """Measure one of them, in a worker."""
    return measure(name, worker.scratch).model_dump()


def link(worker: Commands, name: str, sizes: list[int]) -> dict[str, Any]:
    """Measure what a kind of message between ranks takes, over these sizes in bytes: its peak and its curve."""
    found, curve = ranks.measure(name, sizes, worker.ranks)
    return {"peak": found.model_dump(), "curve": curve and curve.model_dump()}


def measure(name: str, scratch: Path) -> Peak:
    """One peak. Raises what a measurement raises that fails for another reason than what this machine lacks."""
    kind = KINDS[name]
    if kind.on_gpu and not torch.cuda.is_available():
        return Peak(name=name, unit=kind.unit, reason=NO_GPU)
    free()
    monitor = Monitor.open(str(torch.cuda.get_device_properties(0).uuid)) if kind.on_gpu else None
    settle = torch.cuda.synchronize if kind.on_gpu else lambda: None
    try:
        return kind.measure(name, Instruments(device_timer(monitor), host_timer(settle, monitor), scratch))
    except Unavailable as error:
        return Peak(name=name, unit=kind.unit, reason=str(error))
