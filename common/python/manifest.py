"""What a result depends on: the machine as this process may use it, the versions, the sources and the environment."""

import hashlib
import importlib.metadata
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from common.python.results import Gpu, Machine, Manifest

ROOT = Path(__file__).resolve().parents[2]
GIB = 2**30
PACKAGES = (
    *("torch", "triton", "numpy", "pydantic", "nvidia-ml-py"),
    *("nvidia-cublas", "nvidia-cudnn-cu13", "nvidia-nccl-cu13"),
)
RELEVANT = ("CUDA_", "NCCL_", "TORCH", "PYTORCH", "TRITON", "OMP_", "MKL_", "CUBLAS", "MALLOC_")
RELEVANT_NAMES = ("GLIBC_TUNABLES", "LD_PRELOAD")


def machine(root: Path = Path("/")) -> Machine:
    """This machine within the limits of this process: visible GPUs, allowed cores, memory of its control group.

    GPUs come from NVML, so that no CUDA context is made; there are none without a driver. MIG slices are not counted.
    `root` is where /proc and /sys are.
    """
    memory = host_memory(root)
    gpus, driver, cuda_driver = _gpus(memory)
    return Machine(
        hostname=socket.gethostname(),
        system=platform.platform(),
        cpu=_cpu(root),
        cores=usable_cores(root),
        memory_gib=memory / GIB,
        numa_nodes=_numa_nodes(root),
        gpus=gpus,
        driver=driver,
        cuda_driver=cuda_driver,
    )


def collect(
    targets: Sequence[str],
    options: Mapping[str, str | int | float | bool | None],
    sources: Iterable[Path],
    seed: int | None,
    *,
    host: Machine | None = None,
    nvcc: str | None = None,
) -> Manifest:
    """The manifest of a run that starts now; `host` and the version of `nvcc` are given by callers that know them."""
    commit, dirty = git_state(ROOT)
    return Manifest(
        started=utc_now(),
        command=list(sys.argv),
        options=dict(options),
        targets=list(targets),
        machine=host or machine(),
        versions={"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}, "nvcc": nvcc},
        git_commit=commit,
        git_dirty=dirty,
        sources={_relative(path): digest(path) or "" for path in sources},
        environment=relevant_environment(os.environ),
        seed=seed,
    )


def digest(path: Path) -> str | None:
    """The sha256 of a file; None if there is none."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def utc_now() -> str:
    """The time in ISO 8601, UTC, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def relevant_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that change how CUDA, torch, Triton, NCCL or the allocators behave."""
    return {
        name: value
        for name, value in sorted(environment.items())
        if name.startswith(RELEVANT) or name in RELEVANT_NAMES
    }


def git_state(root: Path) -> tuple[str | None, bool | None]:
    """The commit checked out at `root` and whether files differ from it; (None, None) if `root` heads no repository."""
    top = _git(root, "rev-parse", "--show-toplevel")
    if top is None or Path(top).resolve() != root.resolve():
        return None, None  # an installed copy may lie inside a repository that says nothing about it
    status = _git(root, "status", "--porcelain")
    return _git(root, "rev-parse", "--verify", "HEAD"), None if status is None else bool(status)


def _git(root: Path, *arguments: str) -> str | None:
    if shutil.which("git") is None:
        return None
    done = subprocess.run(
        ["git", "--no-optional-locks", "-C", str(root), *arguments], capture_output=True, text=True, check=False
    )
    return None if done.returncode else done.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _relative(path: Path) -> str:
    path = path.resolve()
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


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
    limits = [
        _text(folder / name) for folder in _groups(root, "memory") for name in ("memory.max", "memory.limit_in_bytes")
    ]
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


def _numa_nodes(root: Path) -> int:
    """Nodes with cores; on Grace systems the memory of each GPU is a node too, without any."""
    nodes = (root / "sys/devices/system/node").glob("node[0-9]*")
    return max(sum(bool(_text(node / "cpulist")) for node in nodes), 1)


def _cpu(root: Path) -> str:
    lines = (_text(root / "proc/cpuinfo") or "").splitlines()
    models = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or platform.machine())


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
    gpus = [
        _gpu(pynvml, by_uuid[uuid], uuid, host_bytes)
        for uuid in visible(list(by_uuid), os.environ.get("CUDA_VISIBLE_DEVICES"))
    ]
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
