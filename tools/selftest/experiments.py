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
from common.python.base.results import Manifest
from common.python.base.toolkit import ROOT
from common.python.corpus.discovery import find_pairs
from common.python.peaks.survey import peaks_for_run
from common.python.run.settings import SuiteTimeUp
from common.python.workers.probe import open_machine
from tools.selftest import aa, cheats, others, truth
from tools.selftest.models import NAMES, Name, Promise, Report
from tools.selftest.sessions import Bench, Form

REPORT = "selftest.json"
NEEDS_GPU = "it is about a GPU: name it with --only to run it on a CPU all the same"


@dataclass(frozen=True)
class Experiment:
    """What it does, what its result says, and whether it makes sense on a CPU."""

    run: Callable[[Bench, Path], Any]
    promises: Callable[[Any, Bench], list[Promise]]
    on_cpu: bool = True


EXPERIMENTS: dict[Name, Experiment] = {
    "aa": Experiment(aa.experiment, lambda found, bench: aa.promises(found)),
    "truth": Experiment(truth.experiment, lambda found, bench: truth.promises(found, bench.gpu)),
    "others": Experiment(others.experiment, lambda found, bench: others.promises(found), on_cpu=False),
    "cheats": Experiment(cheats.experiment, lambda found, bench: cheats.promises(found)),
}


@dataclass
class Selftest:
    """A selftest in progress; `run` goes through the experiments."""

    bench: Bench
    chosen: list[Name]
    report: Report

    def run(self) -> Report:
        """Run what was chosen in the form's whole time: what one experiment leaves of its own, the next ones have.

        What a machine does once is not in that time: measuring peaks, and compiling the chapters' pairs.
        """
        until, seconds = time.monotonic(), self.bench.form.seconds
        longer = sum(seconds.values()) / sum(seconds[name] for name in self.chosen)
        for name in self.chosen:
            began = time.monotonic()
            until = self.bench.deadline = max(until, began) + longer * seconds[name]
            try:
                with tempfile.TemporaryDirectory(prefix="selftest-", ignore_cleanup_errors=True) as scratch:
                    found = EXPERIMENTS[name].run(self.bench, Path(scratch))
                write(self.bench.folder / name / f"{name}.json", found.model_dump_json(indent=1))
                self.report.promises += EXPERIMENTS[name].promises(found, self.bench)
            except (RuntimeError, ValueError, SuiteTimeUp) as error:
                self.report.failed[name] = (str(error).strip().splitlines() or [type(error).__name__])[0]
            self.report.seconds[name] = time.monotonic() - began
            write(self.bench.folder / REPORT, self.report.model_dump_json(indent=1))
        return self.report


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

    No promise needs them, so the quick form takes those of a datasheet, if there is one. Without `only`, on a CPU, the
    experiments that are about a GPU are left out. Raises RuntimeError if no worker can be started, OSError for a folder
    that cannot be written, ValueError for stored peaks that cannot be read.
    """
    seed = random.randrange(2**31) if seed is None else seed
    folder = artifacts_dir / datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S.%fZ") / "selftest"
    folder.mkdir(parents=True)
    suites, full = "cheats" in (only or NAMES), form.name == "full"
    machine, found = open_machine(root, folder, find_pairs(root) if suites and full else ())
    claim(found.get("uuid"))
    gpu = found["device"] != "cpu"
    chosen = [name for name in NAMES if name in (only or NAMES) and (gpu or only or EXPERIMENTS[name].on_cpu)]
    if gpu and suites:
        peaks_for_run(root, artifacts_dir, folder, machine, found, say, measure=full)
    device = found["device"], found.get("uuid")
    bench = Bench(root, folder, artifacts_dir, machine, *device, seed, form, say, found.get("quiet_pace_us"))
    about = _manifest(bench, chosen)
    write(folder / "manifest.json", about.model_dump_json(indent=1))
    left_out: dict[str, str] = {} if only else {name: NEEDS_GPU for name in NAMES if name not in chosen}
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
