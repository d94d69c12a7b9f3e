"""As much of pynvml as the harness asks, on a machine that claims three GPUs; a test changes what it is about."""

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NoReturn

import pynvml

UUIDS = ["GPU-aa11", "GPU-aa22", "GPU-bb33"]


def refusing(code: int) -> Callable[..., NoReturn]:
    """An answer that is this error."""

    def refuse(*arguments: object) -> NoReturn:
        raise pynvml.NVMLError(code)

    return refuse


refuse = refusing(pynvml.NVML_ERROR_UNKNOWN)


class FakeNvml:
    """pynvml with its own constants and errors, and these answers, by what is asked of a device, instead of a driver's.

    An answer is a value or a function; whatever has none is refused.
    """

    def __init__(self, **answers: Any) -> None:
        self._answers = answers

    def __getattr__(self, name: str) -> Any:
        real = getattr(pynvml, name)  # a name that the library does not have is a mistake
        if name.startswith("NVML"):
            return real
        answer = self._answers.get(name.removeprefix("nvmlDeviceGet"), refuse)
        return answer if callable(answer) else lambda *arguments: answer


def fake_nvml() -> FakeNvml:
    """Three GPUs; handles are indices."""
    return FakeNvml(
        nvmlInit=None,
        nvmlShutdown=None,
        nvmlSystemGetCudaDriverVersion=13010,
        nvmlSystemGetDriverVersion="580.95.05",
        Count=len(UUIDS),
        HandleByIndex=lambda index: index,
        HandleByUUID=lambda uuid: UUIDS.index(uuid) if uuid in UUIDS else refuse(),
        UUID=lambda gpu: UUIDS[gpu],
        Name=lambda gpu: f"NVIDIA H{gpu}00",
        CudaComputeCapability=(12, 1),
        MemoryInfo=SimpleNamespace(total=141 * 2**30),
        PowerManagementLimit=700_000,
        MaxClockInfo=lambda gpu, clock: {1: 1980, 2: 3201}[clock],
        ClockInfo=lambda gpu, clock: {1: 1980, 2: 3201}[clock],
        PowerUsage=698_250,
        Temperature=61,
        CurrentClocksThrottleReasons=0x1 | 0x4,
        ComputeRunningProcesses=[SimpleNamespace(pid=os.getpid()), SimpleNamespace(pid=7)],
    )
