"""As much of pynvml as the harness asks, on a machine that claims three GPUs; a test changes what it is about."""

import os
from types import SimpleNamespace

UUIDS = ["GPU-aa11", "GPU-aa22", "GPU-bb33"]


class Refused(Exception):
    """Stands for pynvml.NVMLError."""


def refuse(*arguments: object) -> None:
    raise Refused


def handle_of(uuid: str) -> int:
    return UUIDS.index(uuid) if uuid in UUIDS else refuse()  # type: ignore[return-value]


def link_state(gpu: int, link: int) -> int:
    return int(link != 17) if link < 18 else refuse()  # type: ignore[return-value]


def fake_nvml() -> SimpleNamespace:
    """The first two GPUs are joined by 17 links of 18; handles are indices."""
    return SimpleNamespace(
        NVMLError=Refused,
        NVML_CLOCK_SM=1,
        NVML_CLOCK_MEM=2,
        NVML_TEMPERATURE_GPU=0,
        NVML_COMPUTEMODE_DEFAULT=0,
        NVML_FEATURE_ENABLED=1,
        NVML_P2P_CAPS_INDEX_NVLINK=2,
        NVML_P2P_STATUS_OK=0,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlSystemGetCudaDriverVersion=lambda: 13010,
        nvmlSystemGetDriverVersion=lambda: "580.95.05",
        nvmlDeviceGetCount=lambda: len(UUIDS),
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetHandleByUUID=handle_of,
        nvmlDeviceGetUUID=lambda gpu: UUIDS[gpu],
        nvmlDeviceGetName=lambda gpu: f"NVIDIA H{gpu}00",
        nvmlDeviceGetCudaComputeCapability=lambda gpu: (12, 1),
        nvmlDeviceGetMemoryInfo=lambda gpu: SimpleNamespace(total=141 * 2**30),
        nvmlDeviceGetPowerManagementLimit=lambda gpu: 700_000,
        nvmlDeviceGetMaxClockInfo=lambda gpu, clock: {1: 1980, 2: 3201}[clock],
        nvmlDeviceGetClockInfo=lambda gpu, clock: {1: 1980, 2: 3201}[clock],
        nvmlDeviceGetPowerUsage=lambda gpu: 698_250,
        nvmlDeviceGetTemperature=lambda gpu, sensor: 61,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda gpu: 0x1 | 0x4,
        nvmlDeviceGetComputeRunningProcesses=lambda gpu: [SimpleNamespace(pid=os.getpid()), SimpleNamespace(pid=7)],
        nvmlDeviceGetPciInfo=lambda gpu: SimpleNamespace(domain=0, bus=10 * (gpu + 1), device=0),
        nvmlDeviceGetNvLinkState=link_state,
        nvmlDeviceGetMaxPcieLinkGeneration=lambda gpu: 5,
        nvmlDeviceGetMaxPcieLinkWidth=lambda gpu: 16,
        nvmlDeviceGetP2PStatus=lambda one, other, index: 0 if {one, other} == {0, 1} else 6,
        nvmlDeviceGetTopologyCommonAncestor=lambda one, other: 50,
    )
