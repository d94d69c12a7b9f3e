"""Hold the newest run against what the chapters expect of this GPU; `--update` makes new expectations of several runs.

The last line counts pairs by status; of those that are inconclusive, a loss of 3% is not excluded. In GitHub Actions
the job's page gets all of it. Exit codes: 0 held; 2 usage or unreadable files; 3 a pair has a status of `--fail-on`.

`--update` takes only runs that show a gain. Where a pair's gain is near 1%, runs that came out lower are inconclusive
and left out, so the median of the others is too high: each run that was left out is named, with why.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from common.python.base.journal import write
from common.python.base.paths import CHECKOUT_ONLY, installed
from common.python.base.text import clean
from common.python.base.toolkit import ROOT
from common.python.corpus.targets import CHAPTERS
from common.python.regress.check import STATUSES, Held, counts, hold_run, proof_csv
from common.python.regress.environment import device_of
from common.python.regress.expectations import FEWEST_RUNS, expected, over_runs, record
from common.python.regress.runs import alike, expectations_of, run_folders
from common.python.report.artifacts import Run, read_run
from common.python.report.markdown import append_to_job_page
from common.python.report.rows import gain_text
from tools.cli.exits import SLOWER, alone, ended
from tools.cli.options import output
from tools.documentation.front_page import renew

PROGRAM = "analyze_expectations"
SHOWN = 5  # of the runs that are left out


def analyze(
    artifacts_dir: Annotated[
        Path, typer.Option(help="Holds runs, of which the newest is taken; or one run's folder.")
    ] = Path("artifacts"),
    output_csv: Annotated[Path | None, output(help="Write a line a pair here, such as to reports/x.csv.")] = None,
    fail_on: Annotated[str | None, typer.Option(help=f"Exit with 3 if a pair is {', '.join(STATUSES)}.")] = None,
    update: Annotated[
        bool, typer.Option(help="Rewrite expectations and README tables from the newest run and those of its sources.")
    ] = False,
    provisional: Annotated[bool, typer.Option(help=f"Let --update do with fewer than {FEWEST_RUNS} runs.")] = False,
    root: Annotated[Path, typer.Option(hidden=True)] = ROOT,
) -> None:
    """A line a pair: met, improved, regressed, inconclusive, failed, new, missing or unsupported, and why."""
    failing = [] if fail_on is None else [word.strip() for word in fail_on.split(",")]
    if unknown := [word for word in failing if word not in STATUSES]:
        raise ValueError(f"--fail-on {unknown[0]!r} is not a status: {', '.join(STATUSES)}")
    if provisional and not update:
        raise ValueError("--provisional goes with --update")
    folders = run_folders(artifacts_dir)
    newest = read_run(folders[-1])
    words = newest.summary.manifest.targets
    if update and installed(root) and any(pair.chapter in CHAPTERS for pair in newest.summary.pairs):
        raise ValueError(f"--update writes into the chapters' folders: {CHECKOUT_ONLY}")
    device = device_of(newest.summary) or "cpu"
    rows = hold_run(newest, expected(root, device, words))
    _show(rows, f"{newest.folder} on {clean(device)}")
    if output_csv is not None:
        write(output_csv, proof_csv(rows, newest.summary.manifest))
    if any(row.status in failing for row in rows):
        raise typer.Exit(SLOWER)  # and nothing is updated, which would hide it
    if update:
        _update(folders, newest, root, provisional)


def _show(rows: Sequence[Held], title: str) -> None:
    lines = []
    for row in rows:
        beside = f"({'; '.join(more)})" if (more := row.beside()) else ""
        lines.append("  ".join(filter(None, [clean(row.key), row.status, row.reason, beside])))
    lines.append(f"{title}: {counts(rows)}")
    typer.echo("\n".join(lines))
    shown = "".join(f"    {line}\n" for line in lines)  # as it is, whatever is in it
    append_to_job_page(f"## Held against expectations\n\n{shown}", os.environ)


def _update(folders: Sequence[Path], newest: Run, root: Path, provisional: bool) -> None:
    runs, told = alike(folders, newest)
    for line in told[-SHOWN:]:
        typer.echo(f"left out {clean(line)}", err=True)
    if len(told) > SHOWN:
        typer.echo(f"left out {len(told) - SHOWN} older runs too", err=True)
    if len(runs) < FEWEST_RUNS and not provisional:
        raise ValueError(f"--update takes {FEWEST_RUNS} runs of the same sources, or --provisional: found {len(runs)}")
    chosen, refused = expectations_of(runs, root, provisional)
    for line in refused:
        typer.echo(clean(line), err=True)
    written = record(root, chosen, newest.summary.manifest.targets)
    written += renew(root) if any(one.result.chapter in CHAPTERS for one in chosen) else []
    for path in written:
        typer.echo(f"wrote {path.relative_to(root) if path.is_relative_to(root) else path}")
    for one in chosen:
        shown = over_runs(one)
        gain = gain_text(shown, shown.headline) if shown.headline else "nothing"
        typer.echo(f"{clean(shown.key)}: expected from now on {gain}, the median of {one.runs}")
    if not chosen:
        raise ValueError("--update recorded nothing: no pair is proven, faster and alone on its GPU often enough")


if __name__ == "__main__":
    ended(alone(analyze), PROGRAM)
