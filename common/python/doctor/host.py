"""What doctor asks of the host: cores, governor, memory, limits of this process and of its container.

Each check reads text under `root`, where /proc and /sys are, or a number that the system answers; none writes.
"""

import os
import re
import resource
from collections import Counter
from functools import partial
from pathlib import Path

from common.python.base.machine import GIB, host_memory, usable_cores
from common.python.doctor.check_result import Answer, Check, Finding, examine, text, wanted

UNLIMITED = resource.RLIM_INFINITY
MANY = 4096  # files or processes: a session has some tens, of which each opens some tens of libraries and pipes
SHARED_BYTES = 1 << 30
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
        return "note", found, "docker run --cpuset-cpus=0-15 ... instead of --cpus, or a larger CPU limit"
    return wanted(allowed >= present, f"{allowed} of {present} may be used", f"taskset -pc 0-{present - 1} $$")


def memory(root: Path) -> Answer:
    """Memory that may be used, against what there is."""
    present = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / GIB
    usable = host_memory(root) / GIB
    found = f"{usable:.1f} of {present:.1f} GiB"
    return wanted(usable >= present, found, "docker run --memory=... with a larger limit")


def governor(root: Path) -> Answer:
    """How the clocks of the cores are chosen."""
    governors = Counter(text(file) for file in root.glob("sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor"))
    if not governors:
        raise ValueError("no cpufreq in /sys: firmware or hypervisor chooses the clocks")
    found = ", ".join(f"{name} on {n}" for name, n in governors.most_common()) + " CPUs"
    return wanted({*governors} == {"performance"}, found, "sudo cpupower frequency-set -g performance", "poor")


def huge_pages(root: Path) -> Answer:
    """Whether large host buffers get 2 MiB pages."""
    setting = text(root / "sys/kernel/mm/transparent_hugepage/enabled")  # the choice stands in brackets
    change = "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"
    return wanted("[never]" not in setting, setting, change)


# The limits.


def limit(number: int, least: int, change: str, root: Path) -> Answer:
    """A soft limit of this process, which should be `least` or more."""
    soft, hard = resource.getrlimit(number)
    enough = soft == UNLIMITED or (least != UNLIMITED and soft >= least)
    shown = ("unlimited" if value == UNLIMITED else value for value in (soft, hard))
    return wanted(enough, "{} (hard {})".format(*shown), change)


def shared_memory(root: Path) -> Answer:
    space = os.statvfs(root / "dev/shm")
    size = space.f_blocks * space.f_frsize
    return wanted(size >= SHARED_BYTES, f"{size / 2**20:.0f} MiB", "docker run --shm-size=8g ...", "poor")


# What profilers may see.


def gpu_counters(root: Path) -> Answer:
    """Whether Nsight Compute may read counters: the driver's NVreg_RestrictProfilingToAdminUsers."""
    restricted = re.search(r"^RmProfilingAdminOnly: (\d+)", text(root / "proc/driver/nvidia/params"), re.MULTILINE)
    if restricted is None:
        raise ValueError("no RmProfilingAdminOnly in /proc/driver/nvidia/params")
    if restricted[1] == "0":
        return "good", "open to all users", None
    capable = re.search(r"^CapEff:\s+([0-9a-f]+)", text(root / "proc/self/status"), re.MULTILINE)
    if capable and int(capable[1], 16) & SYS_ADMIN:
        return "good", "for administrators, of which this process is one", None
    option = "options nvidia NVreg_RestrictProfilingToAdminUsers=0"
    return "note", "for administrators only", f"echo '{option}' | sudo tee /etc/modprobe.d/ncu.conf; reboot"


HOST = (
    Check("CPU cores", "a quota stops all threads until its period ends, up to 100 ms: launches stall", cores),
    Check("memory", "pairs about host memory and files need room; past the limit a worker is killed", memory),
    Check("CPU governor", "slow or wandering cores add to each launch, so short steps time the host", governor),
    Check("transparent huge pages", "4 KiB pages make large host buffers slow to fill and to pin", huge_pages),
)
LOCKED = "RDMA registers memory under this limit, so NCCL between hosts fails"
FILES = "every worker and rank holds files and pipes"
PROCESSES = "compilers and ranks start hundreds of threads"
LIMITS = (
    Check("locked memory (bytes)", LOCKED, partial(limit, resource.RLIMIT_MEMLOCK, UNLIMITED, "ulimit -l unlimited")),
    Check("open files", FILES, partial(limit, resource.RLIMIT_NOFILE, MANY, f"ulimit -n {MANY}")),
    Check("processes", PROCESSES, partial(limit, resource.RLIMIT_NPROC, MANY, f"ulimit -u {MANY}")),
    Check("/dev/shm", "NCCL and data loaders pass tensors through it; a container has 64 MiB", shared_memory),
)
COUNTERS = Check("GPU counters", "Nsight Compute reads none without permission (ERR_NVGPUCTRPERM)", gpu_counters)
