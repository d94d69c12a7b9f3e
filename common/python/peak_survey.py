"""All peaks of a machine, each asked of a worker in turn, so that one that crashes or hangs leaves only its own gap."""

import math
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from common.python import peak_store
from common.python.launch import ONE_HOST
from common.python.machine import Machine
from common.python.manifest import relevant_environment
from common.python.peak_store import NO_GPU, RESOURCE_OF, Curve, Peak, Survey
from common.python.performance_targets import Peaks, datasheet_peaks
from common.python.text import clean
from common.python.worker import Worker, WorkerError

START_LIMIT_S = 120.0
PEAK_LIMIT_S = 60.0
TRIES = 3  # at a peak that another process may have disturbed
MESSAGES = [2**power for power in range(10, 31)]  # bytes, 1 KiB to 1 GiB
MESSAGE_NAMES = {"all_reduce": "all-reduce", "nvlink_copy": "peer copy"}
SETTINGS = ("NCCL_", "TORCH_NCCL_", "TORCH_SYMM_MEM_")  # of the caller: the launcher adds some of its own in ranks
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
            peaks, curves = [], []
            for name, unit in plan["units"].items():
                if name in plan["links"]:
                    peak, curve = crew.link(name, unit, plan["ranks"])
                    curves += [curve] if curve else []
                else:
                    peak = crew.measure(name, unit)
                peaks.append(peak)
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
        curves=curves,
    )


class _Surveyor:
    """One worker after the other: what failed may have left its process in any state."""

    def __init__(self, root: Path, scratch: Path, log: Path, deadline: float = math.inf) -> None:
        self._root, self._scratch, self._log, self._deadline = root, scratch, log, deadline
        self._worker: Worker | None = None
        self._ranks = self._hired = 0

    def ask(self, command: str, limit_s: float, ranks: int = 0, **arguments: Any) -> Any:
        """Have a worker do it, or one with so many ranks."""
        if ranks != self._ranks:
            self.dismiss()
        if self._worker is None:
            settings = {"seed": 0, "reproducible": False, "ranks": ranks, "launch": asdict(ONE_HOST), "run_id": "peaks"}
            self._worker = Worker(self._root, self._scratch / f"worker{self._hired}", self._log, settings)
            self._ranks = ranks
            self._hired += 1
        return self._worker.call(command, min(limit_s, self._deadline - time.monotonic()), **arguments)

    def measure(self, name: str, unit: peak_store.Unit) -> Peak:
        """A peak; one that something disturbs is taken again, and in the end is none."""
        for _ in range(TRIES):
            try:
                peak = Peak(**self.ask("peak", PEAK_LIMIT_S, name=name))
            except WorkerError as error:
                return self._failed(name, unit, error)
            if (reason := peak_store.disturbed(peak)) is None:
                return peak
        return Peak(name=name, unit=unit, reason=f"disturbed, {TRIES} times: {reason}")

    def link(
        self, name: str, unit: peak_store.Unit, ranks: int, sizes: Sequence[int] = MESSAGES
    ) -> tuple[Peak, Curve | None]:
        """What messages between GPUs take: the best that was seen, and the curve over their sizes in bytes."""
        try:
            answer = self.ask("link", PEAK_LIMIT_S, ranks, name=name, sizes=list(sizes))
        except WorkerError as error:
            return self._failed(name, unit, error), None
        if answer["curve"] is None:
            return Peak(**answer["peak"]), None
        asked = {key: value for key, value in relevant_environment(os.environ).items() if key.startswith(SETTINGS)}
        return Peak(**answer["peak"]), Curve(**answer["curve"] | {"settings": asked})

    def _failed(self, name: str, unit: peak_store.Unit, error: WorkerError) -> Peak:
        """A peak that is missing, and why. Raises the error once the time for all peaks is over."""
        self.dismiss()
        if time.monotonic() >= self._deadline:
            raise error
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
    measure: bool = True,
) -> Peaks | None:
    """The peaks that a run's limits are made of: stored ones, else measured now and stored, else the datasheet's.

    Without `measure` a datasheet comes before measuring, which takes a minute. None on a CPU, where a chapter starts at
    once and no limits are shown. What was measured also goes to `peaks.json` in the run's folder. `say` hears where the
    peaks are from and how old they are. Raises PeakFileError for a stored file that cannot be read.
    """
    if found["device"] == "cpu":
        return None
    path = peak_store.path_of(artifacts_dir, found["uuid"])
    stored = peak_store.load(path)
    here = peak_store.versions(machine.driver, machine.cuda_driver)
    other = peak_store.difference(stored, found["uuid"], here) if stored else f"there are no peaks in {path}"
    if stored is None or other is not None:
        if not measure and (sheet := datasheet_peaks(found["device"])):
            say(f"{other}: limits come from the {sheet.source}; `benchmark_cli peak` measures them")
            return sheet
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


def curve_text(curve: Curve) -> str:
    """One line: `all-reduce: 9.810 us at 1 KiB, 329.1 GB/s at 1 GiB (...)`; the latter is the best of all sizes."""
    small, best = curve.points[0], max(curve.points, key=curve.rate)
    how = "; ".join([curve.method, *(f"{name}={value}" for name, value in curve.settings.items())])
    slow = f"{figure(small.seconds, 's')} at {size_text(small.bytes)}"
    fast = f"{figure(curve.rate(best), 'B/s')} at {size_text(best.bytes)}"
    return clean(f"{MESSAGE_NAMES.get(curve.name, curve.name)}: {slow}, {fast} ({how})")


def size_text(count: float) -> str:
    """1 KiB, 64 MiB, 1 GiB: sizes of messages are powers of two."""
    unit, scale = next(((u, s) for u, s in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)) if count >= s), ("B", 1))
    return f"{count / scale:g} {unit}"


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
