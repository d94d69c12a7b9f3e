"""The machine as this process may use it: visible GPUs, allowed cores and memory.

`needs(...)` is held against it. Plain dataclasses, because `list` must answer at once and pydantic takes longer to load
than all else that it needs.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GIB = 2**30


@dataclass(frozen=True)
class Gpu:
    """A GPU as NVML names it. sm is the compute capability without its dot: 90."""

    name: str
    uuid: str
    sm: int
    memory_gib: float
    power_limit_w: float | None = None
    max_sm_mhz: float | None = None
    max_memory_mhz: float | None = None


@dataclass(frozen=True)
class Machine:
    """A host with its GPUs; cores and memory are those that this process may use."""

    hostname: str
    system: str
    cpu: str
    cores: int
    memory_gib: float
    gpus: list[Gpu]
    driver: str | None = None
    cuda_driver: str | None = None
    numa_nodes: int | None = None  # of an older file, and unused


def crowding() -> float:
    """How many threads want each core of this machine, at least 1: so many times as long work takes beside others'."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def machine(root: Path = Path("/")) -> Machine:
    """This machine within the limits of this process: visible GPUs, allowed cores, memory of its control group.

    GPUs come from NVML, so that no CUDA context is made; there are none without a driver. MIG slices are not counted.
    `root` is where /proc and /sys are.
    """
    memory = host_memory(root)
    gpus, driver, cuda_driver = _gpus(memory)
    return Machine(
        hostname=os.uname().nodename,
        system=f"{os.uname().sysname} {os.uname().release}",
        cpu=_cpu(root),
        cores=usable_cores(root),
        memory_gib=memory / GIB,
        gpus=gpus,
        driver=driver,
        cuda_driver=cuda_driver,
    )


# The host.


def usable_cores(root: Path = Path("/")) -> int:
    """Cores that this process may keep busy: its affinity, within the quota of its control group; at least 1."""
    cores = len(os.sched_getaffinity(0))
    for folder in _groups(root, "cpu"):
        quota, period = (_text(folder / "cpu.max") or "max 0").split()  # "max 100000" or "150000 100000"
        if quota == "max":
            quota, period = _text(folder / "cpu.cfs_quota_us") or "-1", _text(folder / "cpu.cfs_period_us") or "1"
        if int(quota) > 0:
            cores = min(cores, int(quota) // int(period))
    return max(cores, 1)


def host_memory(root: Path = Path("/")) -> int:
    """Bytes of host memory that this process may use: what is there, within the limit of its control group."""
    lines = (_text(root / "proc/meminfo") or "").splitlines()
    total = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemTotal:"))
    names = ("memory.max", "memory.limit_in_bytes")
    limits = [_text(folder / name) for folder in _groups(root, "memory") for name in names]
    return min([total, *(int(text) for text in limits if text is not None and text != "max")])


def _groups(root: Path, controller: str) -> list[Path]:
    """Folders of this process's control group and all above it: version 2, and version 1 of the one controller."""
    found = []
    for line in (_text(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers in ("", controller) or controller in controllers.split(","):
            mount = root / "sys/fs/cgroup" / (controller if controllers else "")
            inner = mount / path.lstrip("/")
            found += [folder for folder in (inner, *inner.parents) if folder.is_relative_to(mount)]
    return found


def _cpu(root: Path) -> str:
    lines = (_text(root / "proc/cpuinfo") or "").splitlines()
    models = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(models, os.uname().machine)


def _text(path: Path) -> str | None:
    return path.read_text().strip() if path.is_file() else None


# The GPUs.


def ask(nvml: Any, function: str, *arguments: Any) -> Any:
    """What an NVML function answers; None when NVML refuses (not supported, no permission, too old a driver)."""
    try:
        return getattr(nvml, function)(*arguments)
    except nvml.NVMLError:
        return None


def _gpus(host_bytes: int) -> tuple[list[Gpu], str | None, str | None]:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return [], None, None
    handles = [ask(pynvml, "nvmlDeviceGetHandleByIndex", index) for index in range(pynvml.nvmlDeviceGetCount())]
    by_uuid = {pynvml.nvmlDeviceGetUUID(handle): handle for handle in handles if handle is not None}
    shown = visible(list(by_uuid), os.environ.get("CUDA_VISIBLE_DEVICES"))
    gpus = [_gpu(pynvml, by_uuid[uuid], uuid, host_bytes) for uuid in shown]
    cuda = ask(pynvml, "nvmlSystemGetCudaDriverVersion")
    driver = ask(pynvml, "nvmlSystemGetDriverVersion")
    pynvml.nvmlShutdown()
    return gpus, driver, None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}"


def visible(uuids: Sequence[str], setting: str | None) -> list[str]:
    """The UUIDs that CUDA shows under this CUDA_VISIBLE_DEVICES, in its order; all of them when it is not set.

    As in CUDA, an entry may be an index or the start of one UUID, the first entry that names no GPU ends the list, and
    naming a GPU twice shows none. Indices count in the order of NVML, which is CUDA's own where all GPUs are alike.
    """
    if setting is None:
        return list(uuids)
    shown: list[str] = []
    for entry in (part.strip() for part in setting.split(",")):
        if entry.isdecimal():
            named = list(uuids[int(entry) : int(entry) + 1])
        else:
            named = [uuid for uuid in uuids if entry.startswith("GPU-") and uuid.startswith(entry)]
        if len(named) != 1:
            break
        shown += named
    return shown if len(set(shown)) == len(shown) else []


def _gpu(nvml: Any, handle: Any, uuid: str, host_bytes: int) -> Gpu:
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    memory = ask(nvml, "nvmlDeviceGetMemoryInfo", handle)
    milliwatts = ask(nvml, "nvmlDeviceGetPowerManagementLimit", handle)
    return Gpu(
        name=nvml.nvmlDeviceGetName(handle),
        uuid=uuid,
        sm=10 * major + minor,
        memory_gib=(memory.total if memory else host_bytes) / GIB,  # GB10 has no memory but the host's, and refuses
        power_limit_w=None if milliwatts is None else milliwatts / 1000,
        max_sm_mhz=ask(nvml, "nvmlDeviceGetMaxClockInfo", handle, nvml.NVML_CLOCK_SM),
        max_memory_mhz=ask(nvml, "nvmlDeviceGetMaxClockInfo", handle, nvml.NVML_CLOCK_MEM),
    )
