"""`run --profile` after a pair's session: an ncu report and an nsys timeline of one step of each measured variant.

Everything here is outside the timed samples and inside the pair's time limit: profilers get what its session left.
What could not be captured is a note of the pair, with the reason, and never a failure of it.
"""

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from common.python.base.results import PairResult, VariantResult
from common.python.base.toolkit import ROOT, find_program
from common.python.corpus.discovery import Pair, Variant
from common.python.profile import nsight
from common.python.profile.nsight import FORBIDDEN, ReportError

NO_TIME = "no time was left of the pair's limit (--timeout-multiplier) or of the suite's"
AT_WORK = 1.5  # times what an empty step reads: one that does nothing reads 1.0, the shortest kernel of the suite 1.7


class Settings(Protocol):
    """What is used here of how a session is run; `suite_deadline` is a monotonic time."""

    @property
    def root(self) -> Path: ...
    @property
    def folder(self) -> Path: ...
    @property
    def scratch(self) -> Path: ...
    @property
    def size(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def device(self) -> str: ...
    @property
    def time_limit_s(self) -> float: ...
    @property
    def suite_deadline(self) -> float: ...
    @property
    def reproducible(self) -> bool: ...
    @property
    def profile(self) -> bool: ...
    @property
    def progress(self) -> Callable[[str, PairResult], None]: ...


class Uncaptured(Exception):
    """Why there is no report of a step, or why it is not of that step."""


@dataclass(frozen=True)
class Watch:
    """One tool over one variant's step; `deadline` is a monotonic time."""

    program: Path
    pair: Pair
    variant: Variant
    row: VariantResult
    settings: Settings
    deadline: float

    def report(self, suffix: str) -> Path:
        return self.settings.folder.resolve() / "profiles" / f"{self.row.name}{suffix}"

    def step(self) -> list[str]:
        """The command line of the process that steps the variant once, marked."""
        settings = self.settings
        asked = {
            "root": str(settings.root.resolve()),
            "scratch": str(settings.scratch.resolve() / "profiled"),
            "baseline": f"{self.pair.chapter}.baseline_{self.pair.name}",
            "module": self.variant.module,
            "name": self.row.name,
            "size": settings.size,
            "seed": settings.seed,
            "reproducible": settings.reproducible,
            "limit_s": math.ceil(settings.time_limit_s),
        }
        return [sys.executable, "-m", "common.python.workers.profiled_step", json.dumps(asked)]

    def run(self, words: list[str], log: Path) -> str:
        """Run a command line to its end; what it printed, which `log` keeps. Raises Uncaptured when it failed."""
        left_s = self.deadline - time.monotonic()
        if left_s <= 0:
            raise Uncaptured(NO_TIME)
        log.parent.mkdir(parents=True, exist_ok=True)
        environment = os.environ | nsight.NSYS_ENVIRONMENT | {"LC_ALL": "C"}  # or 1,234.5 may be written 1.234,5
        with log.open("w+", errors="replace") as output:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=ROOT,  # where the step's module is found
                start_new_session=True,
            )
            try:
                code = process.wait(left_s)
            except subprocess.TimeoutExpired:
                raise Uncaptured(f"it did not end in the {left_s:.1f} s that were left of the limit") from None
            finally:
                with contextlib.suppress(ProcessLookupError):  # what it started has ended with it
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            output.seek(0)
            printed = output.read()
        if failure := nsight.complaint(printed, code):
            raise Uncaptured(failure)
        return printed

    def capture(self, words: list[str], report: Path) -> None:
        """Run a tool that writes `report`. Raises Uncaptured when there is none or it is empty."""
        report.parent.mkdir(parents=True, exist_ok=True)
        report.unlink(missing_ok=True)  # a resumed run may have left one
        self.run(words, self._log(report))
        if not report.exists() or not report.stat().st_size:
            raise Uncaptured(f"it wrote no {report.name}")

    def read(self, words: list[str], report: Path) -> str:
        """What the tool prints of a report."""
        return self.run(words, self._log(report).with_suffix(".read.log"))

    def _log(self, report: Path) -> Path:
        return self.settings.folder.resolve() / "logs" / f"{report.name}.log"


def profile(result: PairResult, pair: Pair, settings: Settings) -> PairResult:
    """The result with ncu's figures and with notes on what could not be captured; reports go to profiles/."""
    rows = [row for row in result.variants if row.status == "measured" and row.why is not None]
    if not settings.profile or not rows:
        return result
    if settings.device == "cpu":
        result.notes.append("no ncu report and no nsys timeline: they are of GPUs, and this is a CPU")
        return result
    result.notes += _empty_traces(result, rows)
    if pair.gpus > 1:
        result.notes.append("no ncu report and no nsys timeline: they step one process; each rank left its trace")
        return result
    started = time.monotonic()
    own_deadline = started + settings.time_limit_s - sum(result.seconds.values())
    deadline = min(own_deadline, settings.suite_deadline)
    variants = {variant.name: variant for variant in pair.variants}
    settings.progress("profilers", result)
    for tool, captured in TOOLS.items():
        program = find_program(tool)
        if program is None:
            result.notes.append(f"{tool} is not found, so it captured nothing: `benchmark_cli doctor` says what would")
            continue
        watches = [Watch(program, pair, variants[row.name], row, settings, deadline) for row in rows]
        result.notes += _uncaptured(tool, captured, watches)
    result.seconds["profilers"] = time.monotonic() - started
    return result


def _empty_traces(result: PairResult, rows: list[VariantResult]) -> list[str]:
    """A note on the rows whose trace, of which `why` was read, lacks all work of a device that was surely at work.

    That is known by the device clock alone, and while the host was in time for more than half of a row's samples.
    """
    if result.clock != "device" or not result.floor_us:
        return []
    late, idle_us = sum(block.late for block in result.blocks), AT_WORK * result.floor_us
    at_work = [row for row in rows if row.device and row.device.median > idle_us and 2 * late < row.device.n]
    empty = [row.label for row in at_work if row.why and not (row.why.kernels or row.why.top or row.why.busy_us)]
    told = "it holds no kernel and no copy, though the device was at work"
    return [f"the Chrome trace on {', '.join(empty)}: {told}"] if empty else []


def _uncaptured(tool: str, captured: "Capture", watches: list[Watch]) -> list[str]:
    """Watch one step after the other; a note for each reason why something is not captured."""
    reasons: dict[str, list[str]] = {}
    for index, watch in enumerate(watches):
        try:
            told = captured(watch)
        except (Uncaptured, ReportError, OSError) as error:
            told = str(error)
        if told is not None and FORBIDDEN in told:  # for all of them
            reasons[told] = [other.row.label for other in watches[index:]]
            break
        if told is not None:
            reasons.setdefault(told, []).append(watch.row.label)
    return [f"{tool} on {', '.join(labels)}: {reason}" for reason, labels in reasons.items()]


Capture = Callable[[Watch], str | None]  # what the report lacks, if anything; raises when there is none


def by_ncu(watch: Watch) -> str | None:
    """Profile the kernels of the step; the figures enter the row if they are of all the kernels that matter."""
    if not watch.row.why or not watch.row.why.kernels:
        return "the Chrome trace holds no kernel of its step"
    report = watch.report(".ncu-rep")
    watch.capture(nsight.ncu_command(watch.program, watch.row.name, report, watch.step()), report)
    seen = nsight.launches(watch.read(nsight.ncu_table_command(watch.program, report), report))
    if lacks := _lacks(watch, [launch.kernel for launch in seen]):
        return f"{lacks}; it gives no figures"
    watch.row.speed_of_light = nsight.speed_of_light(seen)
    if len(seen) < watch.row.why.kernels:
        how = "the first " if len(seen) == nsight.LAUNCHES else ""
        return f"its figures are of {how}{len(seen)} of the step's {watch.row.why.kernels} kernels"
    return None


def by_nsys(watch: Watch) -> str | None:
    """Record the step's timeline."""
    report, table = watch.report(".nsys-rep"), watch.settings.scratch.resolve() / f"{watch.row.name}.sqlite"
    watch.capture(nsight.nsys_command(watch.program, watch.row.name, report, watch.step()), report)
    watch.read(nsight.nsys_table_command(watch.program, report, table), report)
    return _lacks(watch, nsight.timeline_kernels(table))


def _lacks(watch: Watch, seen: list[str]) -> str | None:
    missing = nsight.lacking(watch.row.why.top if watch.row.why else [], seen)
    return f"its report lacks {', '.join(missing)}, among the step's longest kernels" if missing else None


TOOLS: dict[str, Capture] = {"ncu": by_ncu, "nsys": by_nsys}
