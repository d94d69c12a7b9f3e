"""`--lock-clocks`: the SM clock of a GPU held at one value while a suite runs, and given back when it ends.

Locking needs root. What the driver refuses does not end the run: it goes on with free clocks and says so in its
manifest. After `kill -9` of the run, `nvidia-smi -rgc` gives the clocks back.
"""

import contextlib
import re
from collections.abc import Iterator
from typing import Any

ASKED = re.compile(r"base|boost|[1-9][0-9]{1,4}")


def check(asked: str | None) -> None:
    """Raises ValueError for what is neither base, boost nor a number of MHz; None asks for nothing."""
    if asked is not None and not ASKED.fullmatch(asked):
        raise ValueError(f"--lock-clocks {asked[:40]!r} is no clock: base, boost, or MHz such as 1500")


@contextlib.contextmanager
def held(uuid: str | None, asked: str | None) -> Iterator[str | None]:
    """Hold the SM clock of the GPU with this UUID; gives a line for the manifest, or None where nothing was asked."""
    if asked is None or uuid is None:
        yield None if asked is None else "clocks not locked: there is no GPU"
        return
    import pynvml

    try:
        pynvml.nvmlInit()
        gpu = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid.removeprefix('GPU-')}")
        low, high, told = limits(pynvml, gpu, asked)
        pynvml.nvmlDeviceSetGpuLockedClocks(gpu, low, high)
    except pynvml.NVMLError as error:
        yield f"clocks not locked: the driver refuses ({error}); it takes root to lock them"
        return
    try:
        yield f"locked at {told}"
    finally:
        pynvml.nvmlDeviceResetGpuLockedClocks(gpu)


def limits(nvml: Any, gpu: Any, asked: str) -> tuple[int, int, str]:
    """The least and the most MHz to lock to, and what to call it. `base` is what the GPU keeps within its power."""
    if asked == "base":
        return nvml.NVML_CLOCK_LIMIT_ID_TDP, nvml.NVML_CLOCK_LIMIT_ID_TDP, "the base clock"
    if asked == "boost":
        most = nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM)
        return most, most, f"the boost clock, {most} MHz"
    return int(asked), int(asked), f"{asked} MHz"
