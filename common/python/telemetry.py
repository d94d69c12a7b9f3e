"""The GPU as NVML sees it while blocks are taken: clocks, power, heat, why it slowed, and who else is on it."""

import os
from collections.abc import Set
from typing import Any

from common.python.machine import ask
from common.python.results import Telemetry

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
        """A monitor of the GPU with this UUID, with or without "GPU-" before it; None without NVML or such a GPU."""
        import pynvml

        try:
            pynvml.nvmlInit()
            return cls(pynvml, pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid.removeprefix('GPU-')}"))
        except pynvml.NVMLError:
            return None

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


def reasons(bits: int) -> list[str]:
    """The names of the throttle reasons in NVML's bit mask."""
    return [name for bit, name in REASONS.items() if bits & bit]


def harmful(telemetry: Telemetry) -> str | None:
    """Why a block with this telemetry must be discarded: thermal or hardware slowdown. None for a power cap."""
    found = [reason for reason in telemetry.throttle if reason in HARMFUL]
    return f"GPU slowed by {', '.join(found)}" if found else None
