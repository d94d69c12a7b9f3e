"""The machine while blocks are taken: the GPU's clocks, power and heat as NVML sees them, and the pace of the host.

The host's pace is the time of a fixed loop. Where a neighbour works on the other half of the same core, it moves from
23 to 45 us and back within seconds (measured on a shared H200 host), and a step that waits for the host moves with it.
"""

import math
import os
from collections.abc import Callable, Iterable, Sequence, Set
from statistics import mean, median, stdev
from typing import Any

from common.python.machine import ask
from common.python.results import Block, PairResult, Telemetry
from common.python.statistics import NORMAL_95

# The bits are NVML's stable interface. Bit 0, "idle", is left out: between two samples a GPU is idle, not throttled.
REASONS = {
    1 << 1: "application_clocks",
    1 << 2: "sw_power_cap",
    1 << 3: "hw_slowdown",
    1 << 4: "sync_boost",
    1 << 5: "sw_thermal_slowdown",
    1 << 6: "hw_thermal_slowdown",
    1 << 7: "hw_power_brake_slowdown",
    1 << 8: "display_clocks",
}
# A power cap is how a GPU normally runs; these say that the machine around it failed for a while.
HARMFUL = ("hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")

SLOW_HOST = "the host ran slow"
MOST_PACE = 1.3  # times the best
FEWEST_BLOCKS = 3  # of which a deviation says anything


def host_load() -> float:
    """Processes that were at work or waited for a core, the mean of the last minute."""
    return os.getloadavg()[0]


class Monitor:
    """One GPU, found by UUID, so that CUDA_VISIBLE_DEVICES and its orders do not matter."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle

    @classmethod
    def open(cls, uuid: str) -> "Monitor | None":
        """A monitor of the GPU with this UUID, with or without "GPU-" before it; None without NVML or such a GPU."""
        import pynvml

        try:
            pynvml.nvmlInit()
            return cls(pynvml, pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid.removeprefix('GPU-')}"))
        except pynvml.NVMLError:
            return None

    def shared(self) -> bool:
        """Whether several processes may have a context; a cluster may set its GPUs to one process each."""
        return ask(self._nvml, "nvmlDeviceGetComputeMode", self._handle) in (None, self._nvml.NVML_COMPUTEMODE_DEFAULT)

    def free_bytes(self) -> int | None:
        """Memory that nobody has taken; None where NVML does not say."""
        memory = ask(self._nvml, "nvmlDeviceGetMemoryInfo", self._handle)
        return None if memory is None else int(memory.free)

    def read(self, own: Set[int] | None = None) -> Telemetry:
        """The state now; `own` are the processes that belong to the session (default: this one)."""
        nvml, gpu = self._nvml, self._handle
        milliwatts = ask(nvml, "nvmlDeviceGetPowerUsage", gpu)
        running = ask(nvml, "nvmlDeviceGetComputeRunningProcesses", gpu)
        pids = None if running is None else {process.pid for process in running}
        return Telemetry(
            sm_mhz=ask(nvml, "nvmlDeviceGetClockInfo", gpu, nvml.NVML_CLOCK_SM),
            memory_mhz=ask(nvml, "nvmlDeviceGetClockInfo", gpu, nvml.NVML_CLOCK_MEM),
            power_w=None if milliwatts is None else milliwatts / 1000,
            temperature_c=ask(nvml, "nvmlDeviceGetTemperature", gpu, nvml.NVML_TEMPERATURE_GPU),
            throttle=reasons(ask(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", gpu) or 0),
            other_processes=None if pids is None else len(pids - ({os.getpid()} if own is None else own)),
        )


def worst(gpus: Sequence[Telemetry]) -> Telemetry:
    """One reading of several: the slowest clocks, the greatest power and heat, and whatever slows any of them."""

    def most(name: str, choose: Callable[..., Any] = max) -> Any:
        return choose((value for gpu in gpus if (value := getattr(gpu, name)) is not None), default=None)

    return Telemetry(
        sm_mhz=most("sm_mhz", min),
        memory_mhz=most("memory_mhz", min),
        power_w=most("power_w"),
        temperature_c=most("temperature_c"),
        throttle=list(dict.fromkeys(reason for gpu in gpus for reason in gpu.throttle)),
        other_processes=most("other_processes"),
    )


def reasons(bits: int) -> list[str]:
    """The names of the throttle reasons in NVML's bit mask."""
    return [name for bit, name in REASONS.items() if bits & bit]


def harmful(telemetry: Telemetry) -> str | None:
    """Why a block with this telemetry must be discarded: thermal or hardware slowdown. None for a power cap."""
    found = [reason for reason in telemetry.throttle if reason in HARMFUL]
    return f"GPU slowed by {', '.join(found)}" if found else None


def pace_reach(blocks: Sequence[Block], best_pace_us: float | None, usual_pace_us: float | None = None) -> float:
    """How far from the pace of these blocks, those that count, another run's pace may be: a half-width of its log.

    Two runs differ by the root of two times what one deviates, for which the blocks that are not slow stand: on an
    H200's host by 0.05 in the median of eight sessions, where five runs on another had medians that deviate by 0.048
    (docs/results/h200/host.md). And slow blocks, which count where too few others are left, make the mean slower than
    usual, or than the best where all are slow: another run need not be. Where other pairs of this run were slower, as
    `usual_pace_us` tells, another run of this pair may be so too. 0 with fewer than three blocks.
    """
    logs = [math.log(max(block.paces)) for block in blocks if block.paces and block.discarded is None]
    if not best_pace_us or len(logs) < FEWEST_BLOCKS:
        return 0.0
    quick = [log for log in logs if log <= math.log(MOST_PACE * best_pace_us)]
    own = mean(quick) if quick else math.log(best_pace_us)
    deviation = stdev(quick) if len(quick) >= FEWEST_BLOCKS else 0.0
    slower = max(0.0, math.log(usual_pace_us) - mean(logs)) if usual_pace_us else 0.0
    return math.hypot(NORMAL_95 * math.sqrt(2) * deviation, mean(logs) - own, slower)


def usual_pace_us(results: Iterable[PairResult]) -> float | None:
    """The median over pairs that were timed of each one's median pace; None if there is none."""
    paces = [[max(block.paces) for block in result.blocks if block.paces] for result in results]
    return median(map(median, filter(None, paces))) if any(paces) else None


def pace_deviation(results: Iterable[PairResult]) -> float:
    """The standard deviation of the log of the host's pace over all blocks of these; 0 with fewer than three."""
    logs = [math.log(max(block.paces)) for result in results for block in result.blocks if block.paces]
    return stdev(logs) if len(logs) >= FEWEST_BLOCKS else 0.0


def discard_slow_host(blocks: Sequence[Block], best_pace_us: float, fewest_rounds: int) -> None:
    """Leave out the blocks during which the host was slower than 1.3 times its best, if `fewest_rounds` remain.

    Recomputed on five recorded runs of an eager step against a graph's replay, the speedups of the four runs that had
    fast blocks then differed by 4%; with all blocks, those of the five by 56% (docs/results/h200/host.md).
    """
    open_blocks = [block for block in blocks if block.discarded in (None, SLOW_HOST)]
    slow = [max(block.paces, default=0.0) > MOST_PACE * best_pace_us for block in open_blocks]
    remain = {block.round for block, is_slow in zip(open_blocks, slow) if not is_slow}
    for block, is_slow in zip(open_blocks, slow):
        block.discarded = SLOW_HOST if is_slow and len(remain) >= fewest_rounds else None
