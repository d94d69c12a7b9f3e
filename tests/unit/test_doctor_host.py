"""The host's checks on recorded /proc and /sys trees: bare machines, containers, and files that cannot be read."""

import os
import resource
from pathlib import Path
from types import SimpleNamespace

import pytest
from synthetic_run import written

from common.python.doctor.check_result import Finding, text
from common.python.doctor.host import COUNTERS, HOST, LIMITS, examine_host

CPU = "sys/devices/system/cpu"
HUGE = "sys/kernel/mm/transparent_hugepage/enabled"
GIB = 2**30
BARE = {  # a machine with two sockets, as its own files say it
    "proc/self/cgroup": "0::/user.slice",
    "proc/meminfo": "MemTotal:       134217728 kB\nMemFree:        100000000 kB",
    "proc/self/status": "Name:\tpython\nCapEff:\t0000000000000000",
    "proc/driver/nvidia/params": "EnableMSI: 1\nRmProfilingAdminOnly: 0",
    f"{CPU}/cpu0/cpufreq/scaling_governor": "performance",
    f"{CPU}/cpu1/cpufreq/scaling_governor": "performance",
    HUGE: "always [madvise] never",
}


@pytest.fixture(autouse=True)
def process(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What the system answers about this process; a test changes it."""
    answers = SimpleNamespace(affinity=8, cores=8, limits={}, shared=64 * GIB)

    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(answers.affinity if pid == 0 else 1)))
    monkeypatch.setattr(os, "cpu_count", lambda: answers.cores)
    monkeypatch.setattr(os, "statvfs", lambda folder: SimpleNamespace(f_blocks=answers.shared // 4096, f_frsize=4096))
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 128 * GIB // 4096, "SC_PAGE_SIZE": 4096}.get)
    monkeypatch.setattr(resource, "getrlimit", lambda name: answers.limits.get(name, (resource.RLIM_INFINITY,) * 2))
    return answers


def found(root: Path, files: dict[str, str]) -> dict[str, Finding]:
    return {finding.name: finding for finding in examine_host(written(root, BARE | files))}


def test_a_well_kept_machine_is_good_throughout(tmp_path: Path) -> None:
    findings = found(tmp_path, {})
    assert {name: finding.state for name, finding in findings.items() if finding.state != "good"} == {}
    assert findings["CPU cores"].found == "8 of 8 may be used"
    assert findings["memory"].found == "128.0 of 128.0 GiB"
    assert findings["CPU governor"].found == "performance on 2 CPUs"
    assert findings["locked memory (bytes)"].found == "unlimited (hard unlimited)"
    assert findings["/dev/shm"].found == "65536 MiB"


@pytest.mark.parametrize(
    ("files", "name", "state", "says", "change"),
    [
        ({f"{CPU}/cpu1/cpufreq/scaling_governor": "powersave"}, "CPU governor", "poor", "powersave on 1", "cpupower"),
        ({HUGE: "always madvise [never]"}, "transparent huge pages", "note", "never", "echo madvise"),
        ({"sys/fs/cgroup/user.slice/cpu.max": "400000 100000"}, "CPU cores", "note", "4 of 8 cores", "--cpuset-cpus"),
        ({"sys/fs/cgroup/user.slice/cpu.max": "nonsense"}, "CPU cores", "unknown", "not enough values", ""),
        ({"sys/fs/cgroup/user.slice/memory.max": str(33 * GIB)}, "memory", "note", "33.0 of 128.0 GiB", "--memory"),
        ({"proc/driver/nvidia/params": "RmProfilingAdminOnly: 1"}, "GPU counters", "note", "only", "modprobe.d"),
        ({"proc/driver/nvidia/params": "EnableMSI: 1"}, "GPU counters", "unknown", "no RmProfilingAdminOnly", ""),
    ],
)
def test_what_differs_is_named_with_what_would_change_it(
    files: dict[str, str], name: str, state: str, says: str, change: str, tmp_path: Path
) -> None:
    finding = found(tmp_path, files)[name]
    assert (finding.state, says in finding.found) == (state, True), finding
    assert bool(finding.change) == bool(change), finding
    assert change in (finding.change or "")


@pytest.mark.parametrize(("missing", "state"), [(0, "good"), (4096, "poor")])
def test_little_room_is_poor(process: SimpleNamespace, missing: int, state: str, tmp_path: Path) -> None:
    process.shared = GIB - missing
    finding = found(tmp_path, {})["/dev/shm"]
    assert (finding.state, finding.change) == (state, None if missing == 0 else "docker run --shm-size=8g ...")


def test_a_machine_that_says_nothing_is_unknown_and_never_an_error(tmp_path: Path) -> None:
    findings = examine_host(written(tmp_path, {"proc/meminfo": BARE["proc/meminfo"]}))
    assert [finding.name for finding in findings] == [check.name for check in (*HOST, *LIMITS, COUNTERS)]
    read = [finding for finding in findings if finding.area != "limits"]
    assert {finding.name for finding in read if finding.state != "unknown"} == {"CPU cores", "memory"}
    assert all(finding.found and finding.matters for finding in findings)
    assert findings[-1].found.endswith("proc/driver/nvidia/params: No such file or directory")


def test_a_file_that_is_no_utf_8_is_read_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "name").write_bytes(b" GPU \xff\n")
    assert text(tmp_path / "name") == "GPU \ufffd"
