"""`benchmark_cli selftest`: four experiments, each written as it ends, and what they say of the harness's promises."""

import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import typer
from rich.text import Text

from common.python.base import manifest
from common.python.base.interrupt import SuiteTimeUp
from common.python.base.journal import new_folder, write
from common.python.base.text import clean
from common.python.corpus.discovery import find_pairs
from common.python.peaks.survey import peaks_for_run
from common.python.report.rows import LOUD
from common.python.report.tables import text_table, wide_console
from common.python.workers.process import WorkerError, open_machine
from tools.cli.exits import DONE, FAILED, NOTHING, claims, told
from tools.selftest import cheats, others, truth
from tools.selftest.promises import NAMES, Name, Report
from tools.selftest.sessions import FORMS, Bench

EXPERIMENTS = {
    "aa": truth.against_itself,
    "truth": truth.known_truth,
    "others": others.experiment,
    "cheats": cheats.experiment,
}
REPORT = "selftest.json"
NEEDS_GPU = "it is about a GPU: name it with --only to run it on a CPU all the same"
STYLES = {"kept": "green", "refuted": "bold red", "undecided": "yellow", "not run": "dim"}


def selftest(root: Path, artifacts_dir: Path, only: str | None, full: bool, seed: int | None, wait: bool) -> int:
    """Run the experiments that `--only aa,truth` names, or all, and print their table; the exit code.

    Raises RuntimeError if no worker can be started, OSError for a folder that cannot be written, ValueError for stored
    peaks that cannot be read.
    """
    words = NAMES if only is None else [word.strip() for word in only.split(",")]
    if unknown := [word for word in words if word not in NAMES]:
        raise ValueError(f"--only {clean(unknown[0])!r} is no experiment: name some of {','.join(NAMES)}")
    names, form = [name for name in NAMES if name in words], FORMS["full" if full else "quick"]
    folder, suites = new_folder(artifacts_dir) / "selftest", "cheats" in names
    folder.mkdir()
    with claims(wait) as claim:
        machine, found = open_machine(root, folder, find_pairs(root) if suites and full else ())
        claim(found.get("uuid"))
        if found["device"] != "cpu" and suites:  # no promise needs peaks: the quick form takes a datasheet's, if any
            peaks_for_run(root, artifacts_dir, folder, machine, found, told, measure=full)
        seed, device = random.randrange(2**31) if seed is None else seed, (found["device"], found.get("uuid"))
        bench = Bench(root, folder, artifacts_dir, machine, *device, seed, form, told, found["best_pace_us"])
        left_out = {"others": NEEDS_GPU} if only is None and not bench.gpu else {}
        try:
            report = run(bench, [name for name in names if name not in left_out], left_out)
        except KeyboardInterrupt:
            told(f"stopped; the experiments that were done are in {folder}")
            raise
    show(report, folder)
    if all(promise.standing == "not run" for promise in report.promises) and not report.failed:
        return NOTHING
    bad = ("refuted",) if report.form == "quick" else ("refuted", "undecided", "not run")
    return FAILED if report.failed or any(promise.standing in bad for promise in report.promises) else DONE


def run(bench: Bench, names: Sequence[Name], left_out: dict[str, str]) -> Report:
    """Run these experiments in the form's whole time: what one leaves of its own, the next ones have.

    What a machine does once is not in that time: measuring peaks, and compiling the chapters' pairs.
    """
    form, own = bench.form, [path for path in Path(__file__).parent.rglob("*") if path.suffix in (".py", ".json")]
    sources = manifest.sources_of(sorted(own))
    about = manifest.collect(names, {"form": form.name}, sources, bench.seed, bench.machine)
    write(bench.folder / "manifest.json", about.model_dump_json(indent=1))
    report = Report(
        manifest=about, device=bench.device, form=form.name, seconds={}, promises=[], not_run=dict(left_out)
    )
    until, longer = time.monotonic(), sum(form.seconds.values()) / sum(form.seconds[name] for name in names)
    for name in names:
        began = time.monotonic()
        until = bench.deadline = max(until, began) + longer * form.seconds[name]
        try:
            with tempfile.TemporaryDirectory(prefix="selftest-", ignore_cleanup_errors=True) as scratch:
                report.promises += EXPERIMENTS[name](bench, Path(scratch))
        except (RuntimeError, ValueError, WorkerError, SuiteTimeUp) as error:
            report.failed[name] = (str(error).strip().splitlines() or [type(error).__name__])[0]
        report.seconds[name] = time.monotonic() - began
        write(bench.folder / REPORT, report.model_dump_json(indent=1))
    return report


def show(report: Report, folder: Path) -> None:
    """The table of promises, what could not run, and where the raw numbers are."""
    loud = "MEASURED ON THE CPU, NOT ON A GPU: the promises are about a GPU. " if report.device == "cpu" else ""
    title = f"{loud}selftest, {report.form} form, {report.device}, {sum(report.seconds.values()):.0f} s"
    lines = [
        (one.experiment, one.promise, one.measured, one.bound, Text(one.standing, style=STYLES[one.standing]))
        for one in report.promises
    ]
    columns = ("experiment", "promise", "measured", "bound", "kept")
    wide_console().print(text_table(columns, lines, title, style=LOUD if loud else "bold"))
    for promise in report.promises:
        if promise.note:
            typer.echo(f"{promise.experiment}: {clean(promise.promise)}: {clean(promise.note)}")
    for what, reasons in (("failed", report.failed), ("not run", report.not_run)):
        for name, reason in reasons.items():
            typer.echo(f"{name} {what}: {clean(reason)}")
    typer.echo(f"results: {folder}")
