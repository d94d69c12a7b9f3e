"""Hold runs against what is expected of them; so far: write a run's results into the chapters' expectation files."""

from pathlib import Path
from typing import Annotated

import typer

from common.python import expectations
from common.python.results import PairResult, Summary

ROOT = Path(__file__).resolve().parents[2]


def main(
    artifacts_dir: Annotated[Path, typer.Option(help="The folder of one run, such as artifacts/20260101T000000Z.")],
    update: Annotated[bool, typer.Option(help="Rewrite the chapters' expectations and README tables.")] = False,
    root: Annotated[Path, typer.Option(hidden=True)] = ROOT,
) -> None:
    """List a run's pairs; with --update, keep its proven results as expectations and regenerate the READMEs."""
    try:
        summary = Summary.model_validate_json((artifacts_dir / "summary.json").read_text())
    except (OSError, ValueError) as error:
        raise _usage(f"{artifacts_dir}/summary.json: {str(error).splitlines()[0]}") from error
    for pair in summary.pairs:
        typer.echo(f"{pair.key}  {pair.verdict or pair.status}  {_ratio(pair)}")
    if not update:
        return
    sound = [pair for pair in summary.pairs if pair.status == "measured" and pair.verdict != "invalid"]
    for pair in summary.pairs:
        if pair not in sound:
            typer.echo(f"{pair.key}: not kept, it is {pair.verdict or pair.status}: {pair.reason}", err=True)
    try:
        for path in expectations.record(root, sound, summary.manifest):
            typer.echo(f"wrote {path.relative_to(root)}")
    except ValueError as error:
        raise _usage(str(error)) from error


def _ratio(pair: PairResult) -> str:
    gained = [row.speedup for row in pair.variants if row.name == f"optimized_{pair.name}" and row.speedup]
    return f"{gained[0].ratio:.3f} [{gained[0].low:.3f}, {gained[0].high:.3f}]" if gained else ""


def _usage(message: str) -> typer.Exit:
    typer.echo(f"analyze_expectations: {message}", err=True)
    return typer.Exit(2)


if __name__ == "__main__":
    typer.run(main)
