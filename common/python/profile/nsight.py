"""`run --profile` after a pair's session: an ncu report and an nsys timeline of one step of each measured variant.

Everything here is outside the timed samples and inside the pair's time limit: profilers get what its session left.
What could not be captured is a note of the pair, with the reason, and never a failure of it. Both tools start the
process that they watch; their options are described at https://docs.nvidia.com/nsight-compute/NsightComputeCli and
https://docs.nvidia.com/nsight-systems/UserGuide.
"""

import contextlib
import io
import json
import math
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from common.python.base.results import PairResult, SpeedOfLight, VariantResult
from common.python.base.text import clean
from common.python.base.toolkit import ROOT, find_program
from common.python.corpus.discovery import Pair

if TYPE_CHECKING:
    from pandas import DataFrame

NO_TIME = "no time was left of the pair's limit (--timeout-multiplier) or of the suite's"
LAUNCHES = 100  # the most that ncu replays of a step: each takes tens of passes, with its memory restored between them
RAW = ("--csv", "--page", "raw", "--print-units", "base")
SECTIONS = ("SpeedOfLight", "Occupancy", "LaunchStats", "WarpStateStats", "MemoryWorkloadAnalysis")
TIME, READ, WRITTEN = "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum"
DRAM = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
SM = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
UNITS = {TIME: "ns", READ: "byte", WRITTEN: "byte", DRAM: "%", SM: "%", OCCUPANCY: "%"}  # with --print-units base
# nsys looks at registered strings alone unless told otherwise, and those of torch.cuda.nvtx are not registered.
NSYS_ENVIRONMENT = {"NSYS_NVTX_PROFILER_REGISTER_ONLY": "0"}
FORBIDDEN = "ERR_NVGPUCTRPERM"
ERROR, NO_KERNEL = re.compile(r"^==ERROR==\s*(.+)$", re.MULTILINE), "No kernels were profiled"


@dataclass(frozen=True, kw_only=True)
class StepSettings:
    """How the steps of a pair are run, by its session as by a profiler. Times in seconds."""

    folder: Path  # of this pair's artifacts
    scratch: Path
    size: str
    seed: int
    device: str
    time_limit_s: float = 120.0
    suite_deadline: float = math.inf  # a monotonic time, at which the suite ends whatever its pairs do
    reproducible: bool = False
    profile: bool = False
    progress: Callable[[str, PairResult], None] = lambda phase, result: None


class Uncaptured(Exception):
    """Why there is no report of a step, or what it lacks of that step."""


@dataclass(frozen=True)
class Capture:
    """One tool over one variant's step; `deadline` is a monotonic time."""

    program: Path
    step: list[object]  # the command line of the process that steps the variant once, marked
    row: VariantResult
    settings: StepSettings
    deadline: float

    @property
    def kernels(self) -> int:
        """How many kernels the step launches, by the profile of its session."""
        return (self.row.why and self.row.why.kernels) or 0

    def report(self, suffix: str) -> Path:
        return self.settings.folder.resolve() / "profiles" / f"{self.row.name}{suffix}"

    def run(self, words: Sequence[object], log: str) -> str:
        """Run the tool to its end; what it printed, which the log keeps. Raises Uncaptured when it failed."""
        if (left_s := self.deadline - time.monotonic()) <= 0:
            raise Uncaptured(NO_TIME)
        code, printed = run_tool([self.program, *words], self.settings.folder.resolve() / "logs" / log, left_s)
        if failure := complaint(printed, code):
            raise Uncaptured(failure)
        return printed

    def write(self, words: Sequence[object], suffix: str) -> Path:
        """Run the tool over the step; its report. Raises Uncaptured when there is none or it is empty."""
        report = self.report(suffix)
        report.parent.mkdir(parents=True, exist_ok=True)
        report.unlink(missing_ok=True)  # a resumed run may have left one
        self.run([*words, *self.step], f"{report.name}.log")
        if not report.exists() or not report.stat().st_size:
            raise Uncaptured(f"it wrote no {report.name}")
        return report


def step_command(
    pairs: Sequence[Pair], size: str, limit_s: float, seed: int = 0, reproducible: bool = False, marked: bool = False
) -> list[object]:
    """The command line of a process that steps each variant of pairs once, by `one_step`; a pair has `limit_s`."""
    how = {"size": size, "seed": seed, "reproducible": reproducible, "marked": marked, "limit_s": math.ceil(limit_s)}
    asked = [
        {
            "root": str(pair.folder.root.resolve()),
            "baseline": pair.baseline_module,
            "modules": {variant.name: variant.module for variant in pair.variants},
            **how,
        }
        for pair in pairs
    ]
    return [sys.executable, "-m", "common.python.workers.one_step", *map(json.dumps, asked)]


def run_tool(words: Sequence[object], log: Path, limit_s: float) -> tuple[int, str]:
    """The exit code of one of the tools, and what it printed. Raises Uncaptured when it did not end in time."""
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = os.environ | NSYS_ENVIRONMENT | {"LC_ALL": "C"}  # or 1,234.5 may be written 1.234,5
    try:
        return run_to_end(words, log, limit_s, environment)
    except subprocess.TimeoutExpired:
        raise Uncaptured(f"it did not end in the {limit_s:.1f} s that were left of the limit") from None


def run_to_end(words: Sequence[object], output: Path, limit_s: float, environment: dict[str, str]) -> tuple[int, str]:
    """Run a program where this project's modules are found; its exit code and what it printed, which `output` keeps.

    What it started ends with it. Raises TimeoutExpired.
    """
    with output.open("w") as file:
        process = subprocess.Popen(
            [*map(str, words)],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=ROOT,
            start_new_session=True,
        )
        try:
            code = process.wait(limit_s)
        finally:
            with contextlib.suppress(ProcessLookupError):  # what it started has ended with it
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return code, output.read_text(errors="replace")


def profile(result: PairResult, pair: Pair, settings: StepSettings) -> PairResult:
    """The result with ncu's figures and with notes on what could not be captured; reports go to profiles/."""
    rows = [row for row in result.variants if row.status == "measured" and row.why is not None]
    if not settings.profile or not rows:
        return result
    if settings.device == "cpu" or pair.gpus > 1:
        why = "each rank left its trace" if pair.gpus > 1 else "they are of GPUs, and this is a CPU"
        result.notes.append(f"no ncu report and no nsys timeline: {why}")
        return result
    started = time.monotonic()
    deadline = min(started + settings.time_limit_s - sum(result.seconds.values()), settings.suite_deadline)
    settings.progress("profilers", result)
    for tool, capture in TOOLS.items():
        program = find_program(tool)
        if program is None:
            result.notes.append(f"{tool} is not found, so it captured nothing: `benchmark_cli doctor` says what would")
            continue
        how = (settings.size, settings.time_limit_s, settings.seed, settings.reproducible, True)
        reasons: dict[str, list[str]] = {}  # why rows, by their labels, are not captured
        for row in rows:
            try:
                step = Capture(program, step_command([pair.only({row.name})], *how), row, settings, deadline)
                seen = capture(step)
                if seen < step.kernels:
                    raise Uncaptured(f"its report has {seen} of the step's {step.kernels} kernels")
            except (Uncaptured, OSError, ValueError, sqlite3.Error) as error:
                if FORBIDDEN in str(error):
                    reasons[str(error)] = [other.label for other in rows]
                    break
                reasons.setdefault(str(error), []).append(row.label)
        result.notes += [f"{tool} on {', '.join(labels)}: {reason}" for reason, labels in reasons.items()]
    result.seconds["profilers"] = time.monotonic() - started
    return result


def by_ncu(step: Capture) -> int:
    """Profile the kernels of the step, whose figures enter the row; how many of them the report has."""
    if not step.kernels:
        raise Uncaptured("the Chrome trace holds no kernel of its step")
    words = [
        *("--export", step.report(""), "--force-overwrite", *ncu_options([step.row.name], UNITS)),
        *("--graph-profiling", "node", "--launch-count", LAUNCHES),
        *(word for section in SECTIONS for word in ("--section", section)),
    ]
    report = step.write(words, ".ncu-rep")
    printed = step.run(["--import", report, *RAW, "--print-kernel-base", "demangled"], f"{report.name}.read.log")
    figures = speed_of_light(printed)
    step.row.speed_of_light = figures
    return figures.kernels


def by_nsys(step: Capture) -> int:
    """Record the step's timeline; how many of its kernels that has."""
    words = [
        *("profile", "--output", step.report(""), "--force-overwrite=true"),
        *("--trace=cuda,nvtx", "--cuda-graph-trace=node", "--sample=none", "--cpuctxsw=none"),
        *("--capture-range=nvtx", f"--nvtx-capture={mark(step.row.name)}"),
        # By default nsys would end the process with the range, and wait for every process that this one started.
        *("--capture-range-end=stop", "--kill=none", "--wait=primary"),
    ]
    report = step.write(words, ".nsys-rep")
    table = step.settings.scratch.resolve() / f"{step.row.name}.sqlite"
    exported = ("export", "--type=sqlite", f"--output={table}", "--force-overwrite=true", report)
    step.run(exported, f"{report.name}.read.log")
    with contextlib.closing(sqlite3.connect(f"file:{table}?mode=ro", uri=True)) as base:
        present = base.execute("SELECT 1 FROM sqlite_master WHERE name = 'CUPTI_ACTIVITY_KIND_KERNEL'").fetchone()
        # Without a launch there is no table of them.
        return base.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()[0] if present else 0


TOOLS = {"ncu": by_ncu, "nsys": by_nsys}


def ncu_options(variants: Iterable[str], metrics: Iterable[str]) -> tuple[str, ...]:
    """What tells ncu to read these metrics of the marked steps of variants."""
    ranges = [word for variant in variants for word in ("--nvtx-include", f"{mark(variant)}/")]  # / for push and pop
    marked = ("--nvtx", "--nvtx-push-pop-scope", "process", *ranges)  # what autograd's thread launches counts too
    caches = ("--clock-control", "none", "--cache-control", "all")  # each pass begins with cold ones, as a sample does
    return *marked, "--target-processes", "application-only", *caches, "--metrics", ",".join(metrics)


def mark(name: str) -> str:
    """The name of the NVTX range around a variant's step."""
    return f"step of {name}"


# What the tools print and write.


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


def ncu_table(page: str) -> "DataFrame":
    """Ncu's raw page as CSV: a line a launch, columns by metric and unit. Raises Uncaptured for an empty one."""
    import pandas  # slow to load

    _, head, rest = page.partition('"ID",')  # below what ncu says of itself
    found = pandas.read_csv(io.StringIO(head + rest), header=[0, 1], thousands=",") if head else None
    if found is None or found.empty:
        raise Uncaptured("the report holds no kernel")
    return found


def speed_of_light(page: str) -> SpeedOfLight:
    """The figures of the step whose kernels ncu's raw page has, as CSV, a line a launch.

    Bytes and times are added up, percentages weighted by the kernels' times. Raises Uncaptured where a metric is
    missing, in another unit or no number.
    """
    import pandas  # slow to load

    seen = ncu_table(page).reindex(columns=[*UNITS.items()]).apply(pandas.to_numeric, errors="coerce")
    if lacks := [f"{metric} in {unit}" for metric, unit in seen if seen[metric, unit].isna().any()]:
        raise Uncaptured(f"no number for each kernel of {', '.join(lacks)}")
    seen = seen.droplevel(1, axis="columns")
    total = seen.sum()
    if total[TIME] <= 0:
        raise Uncaptured("its kernels took no time")
    mean = seen.mul(seen[TIME], axis="index").sum() / total[TIME]
    return SpeedOfLight(
        dram_percent=mean[DRAM],
        sm_percent=mean[SM],
        occupancy_percent=mean[OCCUPANCY],
        kernel_us=total[TIME] / 1e3,
        read_bytes=total[READ],
        written_bytes=total[WRITTEN],
        kernels=len(seen),
    )
