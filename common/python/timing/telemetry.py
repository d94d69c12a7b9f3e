"""Telemetry of GPUs by NVML: clocks, power, temperature, throttling."""

import os
from collections.abc import Callable, Sequence, Set
from typing import Any

from common.python.base.machine import ask
from common.python.base.results import Telemetry

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


class Monitor:
    """One GPU, found by UUID, so that CUDA_VISIBLE_DEVICES and its orders do not matter."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle

    @classmethod
    def open(cls, uuid: str) -> "Monitor | None":
        """The monitor of a GPU by its UUID, with or without the prefix "GPU-"; None without NVML or such a GPU."""
        import pynvml

        try:
            pynvml.nvmlInit()
            return cls(pynvml, pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid.removeprefix('GPU-')}"))
        except pynvml.NVMLError:
            return None

    def shared(self) -> bool:
        """Whether several processes may have a context; a cluster may set its GPUs to one process each."""
        return ask(self._nvml, "nvmlDeviceGetComputeMode", self._handle) in (None, self._nvml.NVML_COMPUTEMODE_DEFAULT)

    def read(self, own: Set[int] | None = None) -> Telemetry:
        """Telemetry now; `own` are the processes of this session (default: this one)."""
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
    """One reading of several GPUs: the slowest clocks, the greatest power and temperature, every throttle reason."""
    choose: dict[str, Callable[..., Any]]
    choose = {"sm_mhz": min, "memory_mhz": min, "power_w": max, "temperature_c": max, "other_processes": max}
    told = {name: [value for gpu in gpus if (value := getattr(gpu, name)) is not None] for name in choose}
    throttle = list(dict.fromkeys(reason for gpu in gpus for reason in gpu.throttle))
    return Telemetry(throttle=throttle, **{name: choose[name](values) for name, values in told.items() if values})


def reasons(bits: int) -> list[str]:
    """The names of the throttle reasons in NVML's bit mask."""
    return [name for bit, name in REASONS.items() if bits & bit]


def harmful(telemetry: Telemetry) -> str | None:
    """Why a block with this telemetry must be discarded: thermal or hardware slowdown. None for a power cap."""
    found = [reason for reason in telemetry.throttle if reason in HARMFUL]
    return f"GPU slowed by {', '.join(found)}" if found else None
