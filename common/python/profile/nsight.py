"""Nsight Compute and Nsight Systems on one marked step: their command lines, and what their reports hold.

Options are described at https://docs.nvidia.com/nsight-compute/NsightComputeCli and
https://docs.nvidia.com/nsight-systems/UserGuide. Both tools start the process that they watch.
"""

import csv
import io
import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from common.python.base.results import SpeedOfLight
from common.python.base.text import clean

LAUNCHES = 100  # the most that ncu replays of a step: each takes tens of passes, with its memory restored between them
SECTIONS = ("SpeedOfLight", "Occupancy", "LaunchStats", "WarpStateStats", "MemoryWorkloadAnalysis")
TIME, READ, WRITTEN = "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum"
DRAM = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
SM = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
UNITS = {  # with --print-units base; older releases write units out
    TIME: ("ns", "nsecond"),
    READ: ("byte",),
    WRITTEN: ("byte",),
    DRAM: ("%",),
    SM: ("%",),
    OCCUPANCY: ("%",),
}
FORBIDDEN = "ERR_NVGPUCTRPERM"
ERROR, NO_KERNEL = re.compile(r"^==ERROR==\s*(.+)$", re.MULTILINE), "No kernels were profiled"
UNNAMED = re.compile(r"\(anonymous namespace\)::|<unnamed>::|\{anonymous\}::")
TOP_LETTERS = 120  # of a name in Why.top
COPIES = ("Memcpy ", "Memset ")  # what torch.profiler calls the work of copy engines


class ReportError(Exception):
    """A report that cannot be read, or is not of the step: what was wrong."""


@dataclass(frozen=True)
class Launch:
    """A kernel's launch as ncu saw it: its values in ns, bytes and percent, by metric."""

    kernel: str
    values: dict[str, float]


def mark(name: str) -> str:
    """The name of the NVTX range around a variant's step."""
    return f"step of {name}"


def ncu_command(program: Path, name: str, report: Path, step: Sequence[str]) -> list[str]:
    """The command line that profiles the kernels of the marked step into `report`, which ends in .ncu-rep.

    Clocks are left alone. Each pass over a kernel starts with flushed caches, as a timed sample does: as found, they
    would hold what the pass before it left. A kernel launched by another thread (autograd's) is the step's too.
    """
    return [
        *(str(program), "--export", str(report.with_suffix("")), "--force-overwrite"),
        *("--target-processes", "application-only", "--graph-profiling", "node"),
        *("--nvtx", "--nvtx-push-pop-scope", "process", "--nvtx-include", f"{mark(name)}/"),  # the / is for push/pop
        *("--clock-control", "none", "--cache-control", "all", "--launch-count", str(LAUNCHES)),
        *(word for section in SECTIONS for word in ("--section", section)),
        *("--metrics", ",".join(UNITS)),
        *step,
    ]


def ncu_table_command(program: Path, report: Path) -> list[str]:
    """The command line that prints a report as CSV: a line a launch, under the metrics' names and their units."""
    words = ("--csv", "--page", "raw", "--print-units", "base", "--print-kernel-base", "demangled")
    return [str(program), "--import", str(report), *words]


def nsys_command(program: Path, name: str, report: Path, step: Sequence[str]) -> list[str]:
    """The command line that records the marked step's timeline into `report`, which ends in .nsys-rep.

    By default nsys would end the process with the range, and would wait for every process that this one started.
    """
    return [
        *(str(program), "profile", "--output", str(report.with_suffix("")), "--force-overwrite=true"),
        *("--trace=cuda,nvtx", "--cuda-graph-trace=node", "--sample=none", "--cpuctxsw=none"),
        *("--capture-range=nvtx", f"--nvtx-capture={mark(name)}", "--capture-range-end=stop"),
        *("--kill=none", "--wait=primary"),
        *step,
    ]


# nsys looks at registered strings alone unless told otherwise, and those of torch.cuda.nvtx are not registered.
NSYS_ENVIRONMENT = {"NSYS_NVTX_PROFILER_REGISTER_ONLY": "0"}


def nsys_table_command(program: Path, report: Path, table: Path) -> list[str]:
    """The command line that turns a report into an SQLite file."""
    return [str(program), "export", "--type=sqlite", f"--output={table}", "--force-overwrite=true", str(report)]


def complaint(printed: str, code: int) -> str | None:
    """Why a tool failed, in one line, by what it and the process under it printed; None if it did not."""
    if FORBIDDEN in printed:
        return f"it may not read the GPU's counters ({FORBIDDEN}): `benchmark_cli doctor` says what would change that"
    error = ERROR.search(printed)
    if code == 0 and error is None:
        return "it saw no kernel in the marked step" if NO_KERNEL in printed else None
    own = [line for line in printed.splitlines() if line.strip() and not line.startswith("==")]
    parts = [f"exit code {code}" if code else "", error[1] if error else "", own[-1] if own else ""]
    return clean(": ".join(filter(None, parts)))


def launches(table: str) -> list[Launch]:
    """The launches in ncu's raw page as CSV. Raises ReportError where a metric is missing or in another unit."""
    start = table.find('"ID",')
    header, units, *lines = [*csv.reader(io.StringIO(table[start:])), [], []] if start >= 0 else [[], []]
    rows = [dict(zip(header, line)) for line in lines if line]
    if not rows:
        raise ReportError("the report holds no kernel")
    told = dict(zip(header, units))
    for metric, known in UNITS.items():
        if told.get(metric) not in known:
            found = f"in {told[metric] or 'no unit'}" if metric in told else "missing"
            raise ReportError(f"{metric} is {found}, and should be in {known[0]}")
    return [Launch(row["Kernel Name"], {metric: _number(row, metric) for metric in UNITS}) for row in rows]


def _number(row: dict[str, str], metric: str) -> float:
    try:
        return float(row[metric].replace(",", ""))
    except (KeyError, ValueError):
        raise ReportError(f"{metric} of {base_name(row['Kernel Name'])} is {row.get(metric)!r}, no number") from None


def speed_of_light(seen: Sequence[Launch]) -> SpeedOfLight:
    """The figures of a step: bytes and times are added up, percentages weighted by the kernels' times."""
    total = sum(launch.values[TIME] for launch in seen)
    if total <= 0:
        raise ReportError("its kernels took no time")

    def weighted(metric: str) -> float:
        return sum(launch.values[metric] * launch.values[TIME] for launch in seen) / total

    return SpeedOfLight(
        dram_percent=weighted(DRAM),
        sm_percent=weighted(SM),
        occupancy_percent=weighted(OCCUPANCY),
        kernel_us=total / 1e3,
        read_bytes=sum(launch.values[READ] for launch in seen),
        written_bytes=sum(launch.values[WRITTEN] for launch in seen),
        kernels=len(seen),
    )


def timeline_kernels(table: Path) -> list[str]:
    """The kernels in a timeline that was turned into SQLite, a name for each launch."""
    query = "SELECT s.value FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.demangledName"
    try:
        with closing(sqlite3.connect(f"file:{table}?mode=ro", uri=True)) as base:
            present = base.execute("SELECT 1 FROM sqlite_master WHERE name = 'CUPTI_ACTIVITY_KIND_KERNEL'").fetchone()
            return [name for (name,) in base.execute(query)] if present else []  # no launch, no table
    except sqlite3.Error as error:
        raise ReportError(f"its SQLite export cannot be read: {error}") from error


def base_name(kernel: str) -> str:
    """A kernel's name without return type, namespaces, template arguments and parameters: tools differ in those."""
    short, longer = UNNAMED.sub("", kernel), ""
    while short != longer:  # from the innermost template arguments outwards; a return type may have some as well
        longer, short = short, re.sub(r"<[^<>]*>", "", short)
    words = re.split(r"[<(]", short, maxsplit=1)[0].split()
    return words[-1].rpartition("::")[2] if words else kernel


def lacking(top: Sequence[str], seen: Sequence[str]) -> list[str]:
    """Those of a step's longest kernels (`Why.top`, cut at 120 letters) that are not among the seen."""
    names = tuple(base_name(kernel) for kernel in seen)
    wanted = dict.fromkeys(base_name(kernel) for kernel in top if not kernel.startswith(COPIES))
    cut = {base_name(kernel) for kernel in top if len(kernel) == TOP_LETTERS}
    return [
        kernel
        for kernel in wanted
        if kernel not in names and not (kernel in cut and any(name.startswith(kernel) for name in names))
    ]
