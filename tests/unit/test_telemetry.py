import math
import os
import re

import pytest
from fake_nvml import FakeNvml, refuse
from synthetic_run import ROOT

from common.python.base.results import Block, Telemetry
from common.python.stats.host_pace import pace_reach
from common.python.timing.telemetry import Monitor, harmful, worst


@pytest.mark.parametrize("uuid", ["GPU-aa11", "aa11"])
def test_a_gpu_is_read_by_uuid_with_or_without_prefix(nvml: FakeNvml, uuid: str) -> None:
    monitor = Monitor.open(uuid)
    assert monitor.read() == Telemetry(
        sm_mhz=1980, memory_mhz=3201, power_w=698.25, temperature_c=61, throttle=["sw_power_cap"], other_processes=1
    )


@pytest.mark.parametrize(("mode", "shared"), [(0, True), (3, False)], ids=["default", "exclusive process"])
def test_a_gpu_of_one_process_is_not_shared_and_one_that_does_not_tell_is(
    nvml: FakeNvml, mode: int, shared: bool
) -> None:
    nvml.nvmlDeviceGetComputeMode = lambda gpu: mode
    monitor = Monitor.open("aa11")
    assert monitor.shared() == shared
    nvml.nvmlDeviceGetComputeMode = refuse
    assert monitor.shared()


def test_there_is_no_monitor_without_nvml_or_without_the_gpu(nvml: FakeNvml) -> None:
    assert Monitor.open("ffff") is None
    nvml.nvmlInit = refuse
    assert Monitor.open("aa11") is None


def test_what_nvml_refuses_is_null_and_the_rest_is_read(nvml: FakeNvml) -> None:
    nvml.nvmlDeviceGetPowerUsage = nvml.nvmlDeviceGetComputeRunningProcesses = nvml.nvmlDeviceGetClockInfo = refuse
    monitor = Monitor.open("aa11")
    assert monitor.read() == Telemetry(temperature_c=61, throttle=["sw_power_cap"])
    nvml.nvmlDeviceGetTemperature = nvml.nvmlDeviceGetCurrentClocksThrottleReasons = refuse
    assert monitor.read() == Telemetry()


def test_processes_of_the_session_are_not_others(nvml: FakeNvml) -> None:
    monitor = Monitor.open("aa11")
    assert monitor.read(own={os.getpid(), 7}).other_processes == 0
    assert monitor.read(own=set()).other_processes == 2


@pytest.mark.parametrize(
    ("bits", "names", "discards"),
    [
        (0x1, [], False),
        (0x4, ["sw_power_cap"], False),
        (0x8, ["hw_slowdown"], True),
        (0x20, ["sw_thermal_slowdown"], True),
        (0x48, ["hw_slowdown", "hw_thermal_slowdown"], True),
        (0x80, ["hw_power_brake_slowdown"], True),
    ],
)
def test_only_thermal_and_hardware_slowdowns_discard_a_block(
    nvml: FakeNvml, bits: int, names: list[str], discards: bool
) -> None:
    nvml.nvmlDeviceGetCurrentClocksThrottleReasons = lambda gpu: bits
    monitor = Monitor.open("aa11")
    seen = monitor.read()
    assert seen.throttle == names
    assert (harmful(seen) is not None) == discards


def test_of_several_gpus_the_worst_of_each_reading_counts() -> None:
    first = Telemetry(sm_mhz=1980, power_w=690.0, temperature_c=50, throttle=["sw_power_cap"], other_processes=0)
    second = Telemetry(sm_mhz=1200, power_w=400.0, temperature_c=80, throttle=["hw_slowdown"], other_processes=1)
    both = worst([first, second])
    assert (both.sm_mhz, both.power_w, both.temperature_c, both.memory_mhz) == (1200, 690.0, 80, None)
    assert (both.throttle, both.other_processes) == (["sw_power_cap", "hw_slowdown"], 1)
    assert harmful(both) == "GPU slowed by hw_slowdown"


@pytest.mark.parametrize(
    ("paces", "reach"),
    [
        ([20.0, 22.0, 24.2], 0.0),
        ([20.0, 22.0, 24.2, 88.0], math.log(4.0) / 4),
        ([20.0, 80.0, 80.0], math.log(4.0) * 2 / 3),
        ([20.0, 22.0, 88.0], (math.log(88.0) - math.log(20.0 * 22.0) / 2) / 3),
        ([80.0, 80.0], math.log(4.0)),
        ([], 0.0),
    ],
)
def test_another_runs_host_may_be_faster_where_blocks_were_slow(paces: list[float], reach: float) -> None:
    blocks = [Block(round=0, steps=1, samples=[], paces=[20.0, pace]) for pace in paces]
    assert pace_reach(blocks, 20.0) == pytest.approx(reach)
    assert pace_reach(blocks, None) == 0.0


def test_the_harness_asks_nvml_for_no_change() -> None:
    files = [*ROOT.glob("*.py"), *(file for place in ("common", "tools") for file in (ROOT / place).rglob("*.py"))]
    assert [file for file in files if re.search(r"nvml\w*(Set|Reset|Clear)", file.read_text())] == []
