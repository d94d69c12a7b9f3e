"""All peaks of a machine, each asked of a worker in turn, so that one that crashes or hangs leaves only its own gap."""

import math
import tempfile
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from common.python import peak_store
from common.python.machine import Machine
from common.python.peak_store import NO_GPU, RESOURCE_OF, Peak, Survey
from common.python.performance_targets import Peaks, datasheet_peaks
from common.python.text import clean
from common.python.worker import Worker, WorkerError

START_LIMIT_S = 120.0
PEAK_LIMIT_S = 60.0
ESSENTIAL = "hbm"  # most limits are made of it: without it the datasheet is the better source
Say = Callable[[str], None]


def aloud(line: str) -> None:
    """Say it now: a minute of lines is worth little at its end."""
    print(line, flush=True)


def survey(
    root: Path, log: Path, machine: Machine, found: dict[str, Any], say: Say, deadline: float = math.inf
) -> Survey:
    """Measure every peak; `say` hears a line for each as it comes. `found` is the device as a worker describes it.

    Raises WorkerError when the worker cannot say what there is to measure, or `deadline`, a monotonic time, has come.
    """
    started = time.monotonic()
    measured = datetime.now(timezone.utc).replace(microsecond=0)
    with tempfile.TemporaryDirectory(prefix="benchmark-", ignore_cleanup_errors=True) as scratch:
        crew = _Surveyor(root, Path(scratch), log, deadline)
        try:
            plan = crew.ask("peak_plan", START_LIMIT_S)
            peaks = []
            for name, unit in plan["units"].items():
                peaks.append(crew.measure(name, unit))
                if peaks[-1].reason != NO_GPU:  # on a CPU that is the reason for nearly all of them
                    say(peak_line(peaks[-1], datasheet_peaks(found["device"])))
        finally:
            crew.dismiss()
    return Survey(
        device=found["device"],
        uuid=found.get("uuid", peak_store.CPU),
        measured=measured,
        seconds=time.monotonic() - started,
        versions=peak_store.versions(machine.driver, machine.cuda_driver),
        l2_bytes=plan["l2_bytes"],
        llc_bytes=plan["llc_bytes"],
        peaks=peaks,
    )


class _Surveyor:
    """One worker after the other: what failed may have left its process in any state."""

    def __init__(self, root: Path, scratch: Path, log: Path, deadline: float = math.inf) -> None:
        self._root, self._scratch, self._log, self._deadline = root, scratch, log, deadline
        self._worker: Worker | None = None
        self._hired = 0

    def ask(self, command: str, limit_s: float, **arguments: Any) -> Any:
        if self._worker is None:
            settings = {"seed": 0, "reproducible": False}
            self._worker = Worker(self._root, self._scratch / f"worker{self._hired}", self._log, settings)
            self._hired += 1
        return self._worker.call(command, min(limit_s, self._deadline - time.monotonic()), **arguments)

    def measure(self, name: str, unit: peak_store.Unit) -> Peak:
        try:
            return Peak(**self.ask("peak", PEAK_LIMIT_S, name=name))
        except WorkerError as error:
            self.dismiss()
            if time.monotonic() >= self._deadline:
                raise
            return Peak(name=name, unit=unit, reason=f"failed: {clean(error.reason)}")

    def dismiss(self) -> None:
        if self._worker is not None:
            self._worker.kill()
            self._worker = None


def peaks_for_run(
    root: Path,
    artifacts_dir: Path,
    folder: Path,
    machine: Machine,
    found: dict[str, Any],
    say: Say,
    deadline: float = math.inf,
) -> Peaks | None:
    """The peaks that a run's limits are made of: stored ones, else measured now and stored, else the datasheet's.

    None on a CPU, where a chapter starts at once and no limits are shown. What was measured also goes to `peaks.json`
    in the run's folder. `say` hears where the peaks are from and how old they are. Raises PeakFileError for a stored
    file that cannot be read.
    """
    if found["device"] == "cpu":
        return None
    path = peak_store.path_of(artifacts_dir, found["uuid"])
    stored = peak_store.load(path)
    here = peak_store.versions(machine.driver, machine.cuda_driver)
    other = peak_store.difference(stored, found["uuid"], here) if stored else f"there are no peaks in {path}"
    if stored is None or other is not None:
        say(f"{other}: measuring those of this {clean(found['device'])}, once, which takes about a minute")
        try:
            stored = survey(root, folder / "logs" / "peaks.log", machine, found, say, deadline)
        except WorkerError as error:
            return _by_datasheet(found["device"], error.reason, say)
        if ESSENTIAL not in peak_store.peaks_of(stored).values:
            reasons = {peak.reason for peak in stored.peaks if RESOURCE_OF.get(peak.name) == ESSENTIAL}
            return _by_datasheet(found["device"], "; ".join(sorted(filter(None, reasons))), say)
        peak_store.save(path, stored)
    peak_store.save(folder / "peaks.json", stored)
    peaks = peak_store.peaks_of(stored)
    age = peak_store.age_text(stored.measured, datetime.now(timezone.utc))
    say(f"limits come from peaks {peaks.source}, {age}, kept in {path}")
    return peaks


def _by_datasheet(device: str, reason: str, say: Say) -> Peaks | None:
    """The datasheet's peaks, said loudly; they are not stored, so that the next run tries again."""
    sheet = datasheet_peaks(device)
    source = f"LIMITS COME FROM THE {sheet.source.upper()}" if sheet else "THERE ARE NO LIMITS"
    say(f"THE PEAKS OF THIS GPU COULD NOT BE MEASURED ({clean(reason)}): {source}")
    return sheet


def peak_line(peak: Peak, sheet: Peaks | None) -> str:
    """One plain line: name, median, interval, share of the datasheet, clock, power, method; or why it has none."""
    if peak.value is None or peak.low is None or peak.high is None:
        return f"{clean(peak.name):24} not measured: {clean(peak.reason or '')}"
    share = datasheet_share(peak, sheet)
    parts = (
        f"{clean(peak.name):24} {figure(peak.value, peak.unit):>14}",
        f"[{figure(peak.low, peak.unit)}, {figure(peak.high, peak.unit)}]",
        "" if share is None else f"{share:.0%} of the datasheet",
        "" if peak.sustained is None else f"sustained {figure(peak.sustained, peak.unit)}",
        "" if peak.sm_mhz is None else f"{peak.sm_mhz:.0f} MHz",
        "" if peak.power_w is None else f"{peak.power_w:.0f} W",
        clean(", ".join(peak.throttle)),
        clean(peak.method),
    )
    return "  ".join(filter(None, parts))


def figure(value: float, unit: str) -> str:
    """Four digits in the unit that suits: 4.251 TB/s, 55.52 GB/s, 0.8800 us."""
    if unit == "s":
        return f"{_four_digits(value * 1e6)} us"
    letter, scale = next(((a, s) for a, s in (("T", 1e12), ("G", 1e9)) if value >= 0.9999 * s), ("M", 1e6))
    return f"{_four_digits(value / scale)} {letter}{unit}"


def _four_digits(value: float) -> str:
    return f"{value:.{max(0, 3 - math.floor(math.log10(float(f'{value:.4g}'))))}f}"


def datasheet_share(peak: Peak, sheet: Peaks | None) -> float | None:
    """The value over what the datasheet promises; None where it promises nothing of the kind."""
    promised = sheet.values.get(RESOURCE_OF.get(peak.name, "")) if sheet else None
    return peak.value / promised if promised and peak.value is not None else None
