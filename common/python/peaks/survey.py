"""All peaks of a machine, each asked of a worker in turn, so that one that crashes or hangs leaves only its own gap."""

import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

from common.python.base.lock import Claim
from common.python.base.machine import Machine
from common.python.base.text import clean
from common.python.peaks import store
from common.python.peaks.display import peak_line, show
from common.python.peaks.store import BETWEEN_GPUS, NO_GPU, RESOURCE_OF, Curve, Peak, Survey
from common.python.performance_targets import Peaks, datasheet_peaks
from common.python.workers.launch import ONE_HOST
from common.python.workers.process import START_LIMIT_S, Worker, WorkerError, open_machine

PEAK_LIMIT_S = 60.0
TRIES = 3  # at a peak that another process may have disturbed
MESSAGES = [2**power for power in range(10, 31)]  # bytes, 1 KiB to 1 GiB
SETTINGS = ("NCCL_", "TORCH_NCCL_", "TORCH_SYMM_MEM_")  # read here, since launchers add some in the ranks
PLAN = "common.python.peaks.plan"  # whose functions a worker calls
ESSENTIAL = "hbm"  # most limits are made of it: without it the datasheet is the better source
Say = Callable[[str], None]
aloud = partial(print, flush=True)  # a minute of lines is worth little at its end


def survey(
    root: Path, log: Path, machine: Machine, found: dict[str, Any], say: Say, deadline: float = math.inf
) -> Survey:
    """Measure every peak; `say` hears a line for each as it comes. `found` is the device as a worker describes it.

    Raises WorkerError when the worker cannot say what there is to measure, or `deadline`, a monotonic time, has come.
    """
    started = time.monotonic()
    measured = datetime.now(timezone.utc).replace(microsecond=0)
    sheet = datasheet_peaks(found["device"])
    peaks, curves = [], []
    with tempfile.TemporaryDirectory(prefix="benchmark-", ignore_cleanup_errors=True) as scratch:
        surveyor = _Surveyor(root, Path(scratch), log, deadline)
        try:
            plan = surveyor.ask("plan", START_LIMIT_S)
            for name, unit in plan["units"].items():
                peak, curve = surveyor.measure(name, unit, plan["ranks"] if name in BETWEEN_GPUS else 0)
                peaks.append(peak)
                curves += [curve] if curve else []
                if peak.reason != NO_GPU:  # on a CPU that is the reason for nearly all of them
                    say(peak_line(peak, sheet))
        finally:
            surveyor.dismiss()
    return Survey(
        device=found["device"],
        uuid=found.get("uuid", store.CPU),
        measured=measured,
        seconds=time.monotonic() - started,
        versions=store.versions(machine.driver, machine.cuda_driver),
        l2_bytes=plan["l2_bytes"],
        peaks=peaks,
        curves=curves,
    )


class _Surveyor:
    """One worker after the other: what failed may have left its process in any state."""

    def __init__(self, root: Path, scratch: Path, log: Path, deadline: float = math.inf) -> None:
        self._root, self._scratch, self._log, self._deadline = root, scratch, log, deadline
        self._worker: Worker | None = None
        self._ranks = self._started = 0

    def ask(self, command: str, limit_s: float, ranks: int = 0, **arguments: Any) -> Any:
        """Have a worker do it, or one with so many ranks."""
        if ranks != self._ranks:
            self.dismiss()
        if self._worker is None:
            settings = {"seed": 0, "reproducible": False, "ranks": ranks, "launch": asdict(ONE_HOST), "run_id": "peaks"}
            self._worker = Worker(self._root, self._scratch / f"worker{self._started}", self._log, settings)
            self._ranks = ranks
            self._started += 1
        left_s = min(limit_s, self._deadline - time.monotonic())
        return self._worker.call("call", left_s, module=PLAN, function=command, **arguments)

    def measure(
        self, name: str, unit: store.Unit, ranks: int = 0, sizes: Sequence[int] = MESSAGES
    ) -> tuple[Peak, Curve | None]:
        """A peak, and what so many ranks measured over these sizes of messages in bytes.

        What something disturbs is measured again, and in the end is no peak. Raises WorkerError once the time for all
        peaks is over.
        """
        for _ in range(TRIES):
            try:
                answer = self.ask("measure", PEAK_LIMIT_S, ranks, name=name, sizes=list(sizes))
            except WorkerError as error:
                self.dismiss()
                if time.monotonic() >= self._deadline:
                    raise
                return Peak(name=name, unit=unit, reason=f"failed: {clean(error.reason)}"), None
            peak, curve = Peak(**answer["peak"]), answer["curve"]
            if (reason := store.disturbed(peak)) is None:
                settings = {name: value for name, value in sorted(os.environ.items()) if name.startswith(SETTINGS)}
                return peak, Curve(**curve | {"settings": settings}) if curve else None
        return Peak(name=name, unit=unit, reason=f"disturbed, {TRIES} times: {reason}"), None

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
    peaks are from. Raises ValueError for a stored file that cannot be read.
    """
    if found["device"] == "cpu":
        return None
    path = store.path_of(artifacts_dir, found["uuid"])
    stored, other = store.known(artifacts_dir, found["uuid"], machine)
    if stored is None:
        sheet = datasheet_peaks(found["device"])
        if sheet and not measure:
            say(f"{other}: limits come from the {sheet.source}; `benchmark_cli peak` measures them")
            return sheet
        say(f"{other}: measuring those of this {clean(found['device'])}, once, which takes about a minute")
        try:
            stored = survey(root, folder / "logs" / "peaks.log", machine, found, say, deadline)
            if ESSENTIAL not in store.peaks_of(stored).values:
                reasons = {peak.reason for peak in stored.peaks if RESOURCE_OF.get(peak.name) == ESSENTIAL}
                raise WorkerError(ESSENTIAL, "; ".join(sorted(filter(None, reasons))))
        except WorkerError as error:  # nothing is stored, so that the next run tries again
            source = f"LIMITS COME FROM THE {sheet.source.upper()}" if sheet else "THERE ARE NO LIMITS"
            say(f"THE PEAKS OF THIS GPU COULD NOT BE MEASURED ({clean(error.reason)}): {source}")
            return sheet
        store.save(path, stored)
    store.save(folder / "peaks.json", stored)
    peaks = store.peaks_of(stored)
    say(f"limits come from peaks {peaks.source}, kept in {path}")
    return peaks


def measure_and_keep(root: Path, artifacts_dir: Path, as_json: bool = False, claim: Claim = lambda uuid: None) -> None:
    """Measure all peaks and replace the stored file; a line for each peak comes as it is measured.

    `claim` takes the device's lock first. With `as_json` stdout gets the file's JSON and nothing else. Raises
    RuntimeError when no worker can be started, and OSError when the file cannot be written.
    """
    with tempfile.TemporaryDirectory(prefix="benchmark-") as logs:
        artifacts_dir.mkdir(parents=True, exist_ok=True)
        machine, found = open_machine(root, Path(logs))
        claim(found.get("uuid"))
        say = partial(print, file=sys.stderr if as_json else sys.stdout, flush=True)
        try:
            done = survey(root, Path(logs) / "peaks.log", machine, found, say)
        except WorkerError as error:
            raise RuntimeError(f"no peak can be measured: {error.reason}") from error
    path = store.path_of(artifacts_dir, done.uuid)
    store.save(path, done)
    if as_json:
        print(done.model_dump_json(indent=1))
    else:
        show(done)
        print(f"peaks: {path}")
