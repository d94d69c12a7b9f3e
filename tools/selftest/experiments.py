"""The four experiments in order, each written as it ends, and the table of what they say of the promises."""

import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from common.python.base import lock, manifest
from common.python.base.journal import write
from common.python.base.results import Manifest, Model
from common.python.base.toolkit import ROOT
from common.python.corpus.discovery import find_pairs
from common.python.peaks.survey import peaks_for_run
from common.python.run.settings import SuiteTimeUp
from common.python.workers.probe import open_machine
from tools.selftest import aa, cheats, rivals, truth
from tools.selftest.forms import Form
from tools.selftest.models import NAMES, Name, Promise, Report
from tools.selftest.sessions import Bench

REPORT = "selftest.json"
KEEP_S = 30.0  # between two writings of what an experiment has found so far
NEEDS_GPU = "it is about a GPU: name it with --only to run it on a CPU all the same"


@dataclass(frozen=True)
class Experiment:
    """What it does, what its result says, and whether it makes sense on a CPU."""

    run: Callable[[Bench, Path], Any]
    promises: Callable[[Any, Bench], list[Promise]]
    on_cpu: bool = False
    suites: bool = False  # it runs suites, which need the peaks of the machine


EXPERIMENTS: dict[Name, Experiment] = {
    "aa": Experiment(aa.experiment, lambda found, b: aa.promises(found), on_cpu=True),
    "truth": Experiment(truth.experiment, lambda found, b: truth.promises(found, b.gpu), on_cpu=True),
    "others": Experiment(rivals.experiment, lambda found, b: rivals.promises(found)),
    "cheats": Experiment(cheats.experiment, lambda found, b: cheats.promises(found), on_cpu=True, suites=True),
}


@dataclass
class Selftest:
    """A selftest in progress; `run` goes through the experiments."""

    bench: Bench
    chosen: list[Name]
    report: Report

    def run(self) -> Report:
        """Run what was chosen, in the form's whole time; what one experiment leaves of its own is the next ones'.

        What a machine does once is not in that time: measuring peaks, and compiling the chapters' pairs.

        What is on disk is whole after each. Within one it is what `keep` heard, which writes at most every half minute;
        what was found since is lost if the process is killed.
        """
        until, seconds = time.monotonic(), self.bench.form.seconds
        longer = sum(seconds.values()) / sum(seconds[name] for name in self.chosen)
        for name in (name for name in NAMES if name in self.chosen):
            began = time.monotonic()
            until = max(until, began) + longer * seconds[name]
            self.bench.keep = self._keeper(name, began)
            try:
                with scratch_folder() as scratch, self.bench.until(until):
                    try:
                        found = EXPERIMENTS[name].run(self.bench, Path(scratch))
                    finally:
                        until = self.bench.deadline
                self._keep(name, found)
            except (RuntimeError, ValueError, SuiteTimeUp) as error:
                self.report.failed[name] = (str(error).strip().splitlines() or [type(error).__name__])[0]
            self.report.at_work = None
            self.report.seconds[name] = time.monotonic() - began
            write(self.bench.folder / REPORT, self.report.model_dump_json(indent=1))
        return self.report

    def _keeper(self, name: Name, began: float) -> Callable[[Model], None]:
        """Write and judge what an experiment has found so far, not more often than is worth its time."""
        last = began

        def keep(found: Model) -> None:
            nonlocal last
            if time.monotonic() < last + KEEP_S:
                return
            self._keep(name, found)
            self.report.at_work = name
            self.report.seconds[name] = time.monotonic() - began
            write(self.bench.folder / REPORT, self.report.model_dump_json(indent=1))
            last = time.monotonic()

        return keep

    def _keep(self, name: Name, found: Model) -> None:
        place = self.bench.folder / name
        write(place / f"{name}.json", found.model_dump_json(indent=1))
        earlier = [promise for promise in self.report.promises if promise.experiment != name]
        self.report.promises = earlier + EXPERIMENTS[name].promises(found, self.bench)


def scratch_folder() -> "tempfile.TemporaryDirectory[str]":
    """A folder for trees of pairs, which ends with its experiment."""
    return tempfile.TemporaryDirectory(prefix="selftest-", ignore_cleanup_errors=True)


def open_selftest(
    root: Path,
    artifacts_dir: Path,
    only: Sequence[Name],
    form: Form,
    seed: int | None,
    say: Callable[[str], None],
    claim: lock.Claim = lock.unclaimed,
) -> Selftest:
    """Look at the machine, take the device's lock, make the folder, and in the full form measure missing peaks.

    No promise tells of them, so the quick form, where there is a datasheet, does not spend a minute on that.

    Without `only`, on a CPU, the experiments that are about a GPU are left out. Raises RuntimeError if no worker can be
    started, OSError for a folder that cannot be written, ValueError for stored peaks that cannot be read.
    """
    seed = random.randrange(2**31) if seed is None else seed
    folder = artifacts_dir / datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S.%fZ") / "selftest"
    folder.mkdir(parents=True)
    full = form.name == "full"
    compiling = full and any(EXPERIMENTS[name].suites for name in only or NAMES)  # forked from what suites fork from
    machine, found = open_machine(root, folder, find_pairs(root) if compiling else ())
    claim(found.get("uuid"))
    gpu = found["device"] != "cpu"
    left_out: dict[str, str] = {}
    if not gpu and not only:
        left_out = {name: NEEDS_GPU for name in NAMES if not EXPERIMENTS[name].on_cpu}
    chosen = [name for name in NAMES if name in (only or NAMES) and name not in left_out]
    if gpu and any(EXPERIMENTS[name].suites for name in chosen):
        peaks_for_run(root, artifacts_dir, folder, machine, found, say, measure=full)
    device = found["device"], found.get("uuid")
    bench = Bench(root, folder, artifacts_dir, machine, *device, seed, form, say, found.get("quiet_pace_us"))
    about = _manifest(bench, chosen)
    write(folder / "manifest.json", about.model_dump_json(indent=1))
    report = Report(manifest=about, device=bench.device, form=form.name, seconds={}, promises=[], not_run=left_out)
    return Selftest(bench, chosen, report)


def _manifest(bench: Bench, chosen: Sequence[Name]) -> Manifest:
    folders = (ROOT / "common", ROOT / "tools" / "selftest")
    sources = sorted(path for folder in folders for path in folder.rglob("*.py"))
    asked: dict[str, str | int | float | bool | None] = {"form": bench.form.name}
    return manifest.collect(chosen, asked, sources, bench.seed, bench.machine)


def broken(report: Report) -> list[Promise]:
    """The promises that make a selftest fail: those refuted; in the full form, all that are not kept."""
    bad = ("refuted",) if report.form == "quick" else ("refuted", "undecided", "not run")
    return [promise for promise in report.promises if promise.standing in bad]


def nothing_ran(report: Report) -> bool:
    """Whether not one promise could be held against a measurement."""
    return all(promise.standing == "not run" for promise in report.promises)
