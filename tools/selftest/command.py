"""What `benchmark_cli selftest` does: experiments before the user's eyes, their table, and the exit code."""

from contextlib import ExitStack
from pathlib import Path

import typer
from rich.text import Text

from common.python.base.text import clean, text_table, wide_console
from common.python.report.rows import LOUD
from tools.cli.measuring import DONE, FAILED, NOTHING, claims, exits, told, usage
from tools.selftest.experiments import broken, open_selftest
from tools.selftest.models import NAMES, Name, Report
from tools.selftest.sessions import FORMS

STYLES = {"kept": "green", "refuted": "bold red", "undecided": "yellow", "not run": "dim"}


def chosen(only: str | None) -> list[Name]:
    """The experiments that `--only aa,truth` names; none, which means all, without it. Raises the exit for others."""
    words = [word.strip() for word in only.split(",")] if only is not None else []
    if unknown := [word for word in words if word not in NAMES]:
        raise usage(f"--only {clean(unknown[0])!r} is no experiment: name some of {','.join(NAMES)}")
    return [name for name in NAMES if name in words]


def selftest(root: Path, artifacts_dir: Path, only: str | None, full: bool, seed: int | None, wait: bool) -> int:
    """Run the experiments, print their table; the exit code."""
    form = FORMS["full" if full else "quick"]
    with exits(artifacts_dir), ExitStack() as stack:
        test = open_selftest(root, artifacts_dir, chosen(only), form, seed, told, claims(stack, wait))
        if test.bench.device == "cpu":
            told("MEASURED ON THE CPU, NOT ON A GPU: the promises are about a GPU")
        try:
            report = test.run()
        except KeyboardInterrupt:
            told(f"stopped; the experiments that were done are in {test.bench.folder}")
            raise
    show(report, test.bench.folder)
    if all(promise.standing == "not run" for promise in report.promises) and not report.failed:
        return NOTHING
    return FAILED if broken(report) or report.failed else DONE


def show(report: Report, folder: Path) -> None:
    """The table of promises, what could not run, and where the raw numbers are."""
    loud = "MEASURED ON THE CPU, NOT ON A GPU. " if report.device == "cpu" else ""
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
    for name, reason in report.failed.items():
        typer.echo(f"{name} failed: {clean(reason)}")
    for name, reason in report.not_run.items():
        typer.echo(f"{name} not run: {clean(reason)}")
    typer.echo(f"results: {folder}")
