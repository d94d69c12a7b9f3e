"""What doctor asks of the host: cores, NUMA, governor, memory, limits of this process and of its container.

Each check reads text under `root`, where /proc and /sys are, or a number that the system answers; none writes.
"""

import os
import re
import resource
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path

from common.python.base.machine import GIB, filesystem, host_memory, usable_cores
from common.python.doctor.check_result import Answer, Check, Finding, State, examine, text

UNLIMITED = resource.RLIM_INFINITY
MANY = 4096  # files or processes: a session has some tens, of which each opens some tens of libraries and pipes
SHARED_BYTES = 1 << 30
FREE_BYTES = 10 << 30
SYS_ADMIN = 1 << 21  # in CapEff, from linux/capability.h


def examine_host(root: Path = Path("/")) -> list[Finding]:
    """Everything about the host that needs no GPU."""
    return [
        *examine("host", HOST, root),
        *examine("limits", LIMITS, root),
        *examine("profiling", [COUNTERS], root),
    ]


# The host.


def cores(root: Path) -> Answer:
    """Cores that may be kept busy, against those of the affinity and those of the machine."""
    usable, allowed, present = usable_cores(root), len(os.sched_getaffinity(0)), os.cpu_count() or 1
    if usable < allowed:
        found = f"a quota of {usable} of {allowed} cores"
        return Answer("note", found, "docker run --cpuset-cpus=0-15 ... instead of --cpus, or a larger CPU limit")
    if allowed < present:
        return Answer("note", f"{allowed} of {present} cores, by affinity", f"taskset -pc 0-{present - 1} $$")
    return Answer("good", f"all {present}")


def memory(root: Path) -> Answer:
    """Memory that may be used, against what there is."""
    total = re.search(r"^MemTotal:\s+(\d+) kB", text(root / "proc/meminfo"), flags=re.MULTILINE)
    if total is None:
        raise ValueError("no MemTotal in /proc/meminfo")
    usable, present = host_memory(root), int(total[1]) * 1024
    if usable < present:
        found = f"{usable / GIB:.1f} of {present / GIB:.1f} GiB, by the control group"
        return Answer("note", found, "docker run --memory=... with a larger limit")
    return Answer("good", f"{present / GIB:.1f} GiB")


def numa_nodes(root: Path) -> Answer:
    """Nodes that have cores, with them."""
    nodes = sorted((root / "sys/devices/system/node").glob("node[0-9]*"), key=lambda node: int(node.name[4:]))
    cpus = {node.name[4:]: text(node / "cpulist") for node in nodes}
    with_cores = [f"node {node}: CPUs {listed}" for node, listed in cpus.items() if listed]
    if not with_cores:
        raise ValueError("no nodes under /sys/devices/system/node")
    if len(with_cores) == 1:
        return Answer("good", with_cores[0])
    bind = "numactl --cpunodebind=N --membind=N benchmark_cli run ... (N: the GPU's node)"
    return Answer("note", "; ".join(with_cores), bind)


def governor(root: Path) -> Answer:
    """How the clocks of the cores are chosen."""
    files = root.glob("sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor")
    governors = Counter(text(file) for file in files)
    if not governors:
        raise ValueError("no cpufreq in /sys: firmware or hypervisor chooses the clocks")
    found = ", ".join(f"{name} on {n}" for name, n in governors.most_common()) + " CPUs"
    if set(governors) == {"performance"}:
        return Answer("good", found)
    return Answer("poor", found, "sudo cpupower frequency-set -g performance")


def huge_pages(root: Path) -> Answer:
    """Whether large host buffers get 2 MiB pages."""
    chosen = re.search(r"\[(\w+)\]", text(root / "sys/kernel/mm/transparent_hugepage/enabled"))
    if chosen is None:
        raise ValueError("/sys/kernel/mm/transparent_hugepage/enabled marks none as chosen")
    if chosen[1] == "never":
        return Answer("note", "never", "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled")
    return Answer("good", chosen[1])


def scratch(root: Path) -> Answer:
    """What files of the pairs are written to."""
    folder = Path(tempfile.gettempdir()).resolve()
    kind, space = filesystem(folder, text(root / "proc/mounts")), os.statvfs(folder)
    if kind is None:
        raise ValueError(f"no line of /proc/mounts covers {folder}")
    free = space.f_bavail * space.f_frsize
    found = f"{folder} on {kind}, {free / GIB:.0f} GiB free"
    if free >= FREE_BYTES and kind not in ("tmpfs", "overlay", "nfs", "nfs4"):
        return Answer("good", found)
    state: State = "note" if free >= FREE_BYTES else "poor"
    return Answer(state, found, "TMPDIR=/a/folder/on/a/local/disk benchmark_cli run ...")


# The limits.


def limit(number: int, least: int, change: str, root: Path) -> Answer:
    """A soft limit of this process, which should be `least` or more."""
    soft, hard = ("unlimited" if value == UNLIMITED else value for value in resource.getrlimit(number))
    enough = soft == "unlimited" or (least != UNLIMITED and int(soft) >= least)
    return Answer("good" if enough else "note", f"{soft} (hard {hard})", None if enough else change)


def core_dumps(root: Path) -> Answer:
    soft, _ = resource.getrlimit(resource.RLIMIT_CORE)
    return Answer("note", "on", "ulimit -c 0") if soft else Answer("good", "off")


def shared_memory(root: Path) -> Answer:
    space = os.statvfs(root / "dev/shm")
    size = space.f_blocks * space.f_frsize
    found = f"{size / 2**20:.0f} MiB"
    return Answer("good", found) if size >= SHARED_BYTES else Answer("poor", found, "docker run --shm-size=8g ...")


# What profilers may see.


def gpu_counters(root: Path) -> Answer:
    """Whether Nsight Compute may read counters: the driver's NVreg_RestrictProfilingToAdminUsers."""
    parameters = root / "proc/driver/nvidia/params"
    if not parameters.exists():
        raise ValueError("/proc/driver/nvidia/params is not there: no NVIDIA kernel module, or hidden by the container")
    restricted = re.search(r"^RmProfilingAdminOnly: (\d+)", text(parameters), flags=re.MULTILINE)
    if restricted is None:
        raise ValueError("no RmProfilingAdminOnly in /proc/driver/nvidia/params")
    if restricted[1] == "0":
        return Answer("good", "open to all users")
    capable = re.search(r"^CapEff:\s+([0-9a-f]+)", text(root / "proc/self/status"), flags=re.MULTILINE)
    if capable and int(capable[1], 16) & SYS_ADMIN:
        return Answer("good", "for administrators, of which this process is one")
    option = "options nvidia NVreg_RestrictProfilingToAdminUsers=0"
    return Answer("note", "for administrators only", f"echo '{option}' | sudo tee /etc/modprobe.d/ncu.conf; reboot")


HOST = (
    Check("CPU cores", "a quota stops all threads until its period ends, up to 100 ms: launches stall", cores),
    Check("memory", "pairs about host memory and files need room; past the limit a worker is killed", memory),
    Check("NUMA", "copies from a far node cross the link between sockets", numa_nodes),
    Check("CPU governor", "slow or wandering cores add to each launch, so short steps time the host", governor),
    Check("transparent huge pages", "4 KiB pages make large host buffers slow to fill and to pin", huge_pages),
    Check("scratch folder", "pairs about files measure what holds this folder: a disk, or memory", scratch),
)
MEMLOCK = "ulimit -l unlimited"
LOCKED = "RDMA registers memory under this limit, so NCCL between hosts fails"
OF_PROCESS = (  # name, why, which, the least, what changes it
    ("locked memory (bytes)", LOCKED, resource.RLIMIT_MEMLOCK, UNLIMITED, MEMLOCK),
    ("open files", "every worker and rank holds files and pipes", resource.RLIMIT_NOFILE, MANY, f"ulimit -n {MANY}"),
    ("processes", "compilers and ranks start hundreds of threads", resource.RLIMIT_NPROC, MANY, f"ulimit -u {MANY}"),
)
LIMITS = (
    *(Check(name, why, partial(limit, which, least, change)) for name, why, which, least, change in OF_PROCESS),
    Check("core dumps", "a worker that crashes writes all its memory first, and the suite waits", core_dumps),
    Check("/dev/shm", "NCCL and data loaders pass tensors through it; a container has 64 MiB", shared_memory),
)
COUNTERS = Check("GPU counters", "Nsight Compute reads none without permission (ERR_NVGPUCTRPERM)", gpu_counters)
