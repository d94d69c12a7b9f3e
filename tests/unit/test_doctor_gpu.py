"""What NVML and /sys answer becomes findings; NVML is a stand-in that refuses all that a test does not set."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from fake_nvml import FakeNvml, refusing
from synthetic_run import written

from common.python.doctor.check_result import Finding
from common.python.doctor.gpu import CHECKS, examine_gpus

GIB = 2**30
PCI = "sys/bus/pci/devices/0000:19:00.0"
FILES = {
    f"{PCI}/numa_node": "0",
    f"{PCI}/local_cpulist": "0-15",
    **{f"sys/devices/system/node/node0/cpu{number}/online": "1" for number in range(16)},
    "proc/7/comm": "python3",
}
NO = refusing(pynvml.NVML_ERROR_NOT_SUPPORTED)
ANSWERS: dict[str, Any] = {  # of one H200 of two sockets and four switches, with nothing to find fault with
    "Count": 1,
    "HandleByIndex": lambda index: index,
    "Name": "NVIDIA H200",
    "UUID": lambda handle: f"GPU-{handle}",
    "CudaComputeCapability": (9, 0),
    "MemoryInfo": SimpleNamespace(total=140 * GIB),
    "PciInfo": SimpleNamespace(domain=0, bus=0x19, device=0),
    "ClockInfo": lambda gpu, kind: {1: 345, 2: 2619}[kind],
    "MaxClockInfo": lambda gpu, kind: {1: 1980, 2: 3201}[kind],
    "CurrentClocksThrottleReasons": 1,  # idle
    "PersistenceMode": 1,
    "PowerManagementLimit": 700_000,
    "PowerManagementDefaultLimit": 700_000,
    "EccMode": [1, 1],
    "MigMode": [0, 0],
    "CurrPcieLinkGeneration": 5,
    "MaxPcieLinkGeneration": 5,
    "CurrPcieLinkWidth": 16,
    "MaxPcieLinkWidth": 16,
    "NvLinkState": lambda gpu, link: 1 if link < 18 else refusing(pynvml.NVML_ERROR_INVALID_ARGUMENT)(),
    "ComputeRunningProcesses": [],
    "GraphicsRunningProcesses": [],
}


@pytest.fixture(autouse=True)
def process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16 if pid == 0 else 1)))


def findings(root: Path, answers: dict[str, Any], files: dict[str, str] | None = None) -> dict[str, Finding]:
    written(root, FILES | (files or {}))
    return {finding.name: finding for finding in examine_gpus(FakeNvml(**ANSWERS | answers), root)}


def test_a_gpu_without_fault_is_good_throughout(tmp_path: Path) -> None:
    found = findings(tmp_path, {})
    assert {name: finding for name, finding in found.items() if finding.state != "good"} == {}
    assert {name: finding.found for name, finding in found.items()} == {
        "device": "NVIDIA H200, sm_90, 140 GiB",
        "units": "has wgmma, TMA, clusters, DSMEM, cluster multicast, fp8; no tcgen05, fp4",
        "clocks": "SM 345 of 1980 MHz, memory 2619 of 3201 MHz",
        "persistence": "on",
        "power limit": "700 W, default 700 W",
        "ECC": "on",
        "MIG": "off",
        "PCIe link": "gen 5 x16, at most gen 5 x16",
        "NVLink": "18 of 18 links up",
        "NUMA node": "node 0, CPUs 0-15",
        "processes": "none",
    }
    assert {finding.area for finding in found.values()} == {"GPU 0"}


@pytest.mark.parametrize(
    ("answers", "name", "state", "says", "change"),
    [
        ({"MemoryInfo": NO}, "device", "good", "the host's memory", ""),
        ({"CudaComputeCapability": (12, 1)}, "units", "good", "no wgmma, cluster multicast, tcgen05", ""),
        ({"CudaComputeCapability": (8, 6)}, "units", "good", "has none of these", ""),
        ({"CudaComputeCapability": (20, 0)}, "units", "unknown", "sm_200 is not in the table", ""),
        ({"CurrentClocksThrottleReasons": 0x40}, "clocks", "poor", "held back by hw_thermal_slowdown", ""),
        ({"CurrentClocksThrottleReasons": 0x4}, "clocks", "note", "held back by sw_power_cap", ""),
        ({"PersistenceMode": 0}, "persistence", "poor", "off", "sudo nvidia-smi -i 0 -pm 1"),
        ({"PowerManagementLimit": 450_000}, "power limit", "poor", "450 W, default 700 W", "-pl 700"),
        ({"PowerManagementDefaultLimit": 600_000}, "power limit", "note", "700 W, default 600 W", "-pl 600"),
        ({"EccMode": [0, 0]}, "ECC", "note", "off", "-e 1"),
        ({"EccMode": [1, 0]}, "ECC", "note", "on, off after the next reset", "-e 1"),
        ({"MigMode": [1, 1]}, "MIG", "poor", "on", "-mig 0"),
        ({"MigMode": [0, 1]}, "MIG", "note", "on after the next reset", "-mig 0"),
        ({"MigMode": refusing(pynvml.NVML_ERROR_NO_PERMISSION)}, "MIG", "unknown", "Insufficient Permissions", ""),
        ({"CurrPcieLinkWidth": 8}, "PCIe link", "poor", "gen 5 x8, at most gen 5 x16", ""),
        ({"CurrPcieLinkGeneration": 1}, "PCIe link", "note", "gen 1 x16", ""),
        ({"NvLinkState": NO}, "NVLink", "unknown", "Not Supported", ""),
        ({"NvLinkState": 0}, "NVLink", "note", "0 of 36 links up", "nvidia-smi nvlink"),
        ({"NvLinkState": lambda gpu, link: int(link != 3)}, "NVLink", "poor", "35 of 36 links up", "nvidia-smi nvlink"),
        ({"ComputeRunningProcesses": [SimpleNamespace(pid=7)]}, "processes", "poor", "7 (python3), compute", ""),
        ({"GraphicsRunningProcesses": [SimpleNamespace(pid=9)]}, "processes", "note", "9, graphics", ""),
        ({"ComputeRunningProcesses": [SimpleNamespace(pid=os.getpid())]}, "processes", "good", "none", ""),
    ],
)
def test_what_differs_is_named_with_what_would_change_it(
    answers: dict[str, Any], name: str, state: str, says: str, change: str, tmp_path: Path
) -> None:
    finding = findings(tmp_path, answers)[name]
    assert (finding.state, says in finding.found) == (state, True), finding
    assert bool(finding.change) == bool(change), finding
    assert change in (finding.change or "")


def test_a_driver_that_refuses_everything_leaves_everything_unknown(tmp_path: Path) -> None:
    found = examine_gpus(FakeNvml(Count=1, HandleByIndex=0), tmp_path)
    assert [finding.name for finding in found] == [check.name for check in CHECKS]
    assert {(finding.state, finding.found) for finding in found} == {("unknown", "Unknown Error")}
    assert all(finding.matters for finding in found)


def test_a_gpu_that_cuda_may_not_show_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    finding = findings(tmp_path, {})["device"]
    assert (finding.state, finding.change) == ("note", "unset CUDA_VISIBLE_DEVICES")
    assert finding.found.endswith("; CUDA_VISIBLE_DEVICES=")


@pytest.mark.parametrize("answers", [{"Count": 0}, {}])
def test_a_driver_without_gpus_is_poor(answers: dict[str, Any], tmp_path: Path) -> None:
    [finding] = examine_gpus(FakeNvml(**answers), tmp_path)
    assert (finding.area, finding.state) == ("GPU", "poor")
    assert finding.found == "the driver shows none"


def test_cpus_of_another_node_are_far(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(18)))
    finding = findings(tmp_path, {})["NUMA node"]
    assert (finding.state, "2 CPUs elsewhere" in finding.found) == ("note", True)
