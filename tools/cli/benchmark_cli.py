"""benchmark_cli: run, list and show pairs.

Exit codes: 0 done, 1 failed or invalid, 2 usage, 3 slower than --against or --against-python, 4 nothing could run.
"""

import inspect
import locale
import os
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from common.python.base.toolkit import ROOT
from tools.cli import options as o  # what a command needs is imported inside it, so that --help answers at once
from tools.cli.exits import DONE, FAILED, NOTHING, PLAIN, claims, ended
from tools.cli.new_pair import new

NEWEST = o.ARTIFACTS / "latest"

app = typer.Typer(
    add_completion=True,
    **PLAIN,
    help="Pairs of GPU workloads: a plain and an optimized solution, proven equal and measured against each other. "
    "To begin: benchmark_cli list, benchmark_cli show ch07:transpose, benchmark_cli run ch07:transpose.",
)


@app.command("list")
def list_pairs(
    words: o.Words,
    targets: o.Targets,
    kind: Annotated[
        Literal["pytorch", "triton", "cuda"] | None, typer.Option(help="Only pairs with a solution of this kind.")
    ] = None,
    runnable: Annotated[
        bool, typer.Option("--runnable", help="Only pairs whose baseline and an optimized variant can be timed here.")
    ] = False,
    as_json: o.JsonOption = False,
    root: o.RootOption = ROOT,
) -> None:
    """What there is to run, and what of it can run here.

    Every pair that is named, or all: what each of its files does, what it is written in, and what it needs.
    """
    from common.python.base.machine import machine
    from common.python.corpus.discovery import choose
    from common.python.report.listing import print_list

    print_list(choose(root, [*words, *targets] or ["all"]), machine(), kind, runnable, as_json)


@app.command()
def show(words: o.Words, targets: o.Targets, as_json: o.JsonOption = False, root: o.RootOption = ROOT) -> None:
    """Chapters, the pairs of one, or the sources of a pair.

    Without a target the chapters; of a chapter its question and its pairs; of a pair the sources, side by side.
    """
    from common.python.report.listing import print_targets

    print_targets(root, [*words, *targets], as_json)


@app.command(
    help="Prove that pairs compute the same, and time them.\n\nResults go to a new folder: every sample, tables, and "
    "report.html. For example `benchmark_cli run ch07 ch09:softmax`."
)
def run(**given: Any) -> None:
    asked = o.RunOptions(**given)
    asked.refuse_together()
    from tools.cli.measuring import measure, on_ray
    from tools.cli.sweeping import figures, run_sweep

    targets = [*asked.words, *asked.targets]
    options = asked.options(targets, figures(asked.root, targets, asked.set_ or [], asked.sweep))
    if asked.ray is not None:
        raise typer.Exit(on_ray(options, asked.ray, asked))
    if asked.sweep is not None:
        raise typer.Exit(run_sweep(options, asked.sweep, asked.wait, asked.as_json))
    raise typer.Exit(measure(options, asked))


run.__signature__ = inspect.signature(o.RunOptions)  # type: ignore[attr-defined]  # which typer reads


@app.command()
def report(
    folder: Annotated[Path, o.a_run(metavar="[RUN]", help="The folder of a run, such as artifacts/2026...Z.")] = NEWEST,
    opened: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    junit: o.JunitOption = None,
    root: o.RootOption = ROOT,
) -> None:
    """Write the report.html of a run again.

    Charts, proofs and both sources of each pair, in one file that opens from disk.
    """
    import webbrowser

    from tools.cli.measuring import publish

    path = publish(folder, root, junit)
    typer.echo(f"report: {path}")
    if opened and not webbrowser.open(path.resolve().as_uri()):
        typer.echo(f"benchmark_cli: there is no browser here: open {path} in one elsewhere", err=True)
        raise typer.Exit(FAILED)


@app.command()
def merge(
    runs: Annotated[list[Path], o.a_run(metavar="RUN...", help="Folders of runs.")],
    artifacts_dir: o.ArtifactsOption = o.ARTIFACTS,
    junit: o.JunitOption = None,
    root: o.RootOption = ROOT,
) -> None:
    """Put runs together into one, such as those of `run --shard`.

    Each pair keeps the host, the GPU and the peaks of its own run. All must be of the same code, and no pair in two.
    """
    from tools.cli.measuring import merge_runs

    raise typer.Exit(merge_runs(runs, artifacts_dir, root, junit))


@app.command()
def compare(
    run_a: Annotated[Path, o.a_run(metavar="RUN_A", help="The folder of a run.")],
    run_b: Annotated[Path, o.a_run(metavar="[RUN_B]", help="That of a later one.")] = NEWEST,
    as_json: o.JsonOption = False,
) -> None:
    """Compare two runs, pair by pair.

    What differs around them (GPU, driver, libraries), the ratios of times, and how each speedup changed.
    """
    from common.python.regress.run_comparison import print_comparison

    if run_a.resolve() == run_b.resolve():
        raise ValueError(f"RUN_A and RUN_B are both {run_b}: name two runs; without RUN_B it is the newest")
    print_comparison(run_a, run_b, as_json)


@app.command()
def history(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `run --history FILE` wrote.")],
    page: Annotated[Path, o.output("--output", help="The page to write.")] = Path("history.html"),
    as_json: o.JsonOption = False,
) -> None:
    """How times changed over many runs.

    For each pair, size and GPU: the latest time, and the commit since which it differs. The page has a chart of each.
    """
    from common.python.regress.history import print_history

    print_history(file, page, as_json)


@app.command()
def verify(
    words: o.Words,
    targets: o.Targets,
    build: Annotated[bool, typer.Option("--build/--no-build", help="Compile for each kind of GPU.")] = True,
    execute: Annotated[bool, typer.Option("--execute/--no-execute", help="Import pairs and prove them right.")] = True,
    again: Annotated[bool, typer.Option("--again", help="Prove on a CPU what has not changed, too.")] = False,
    wait: o.WaitOption = True,
    root: o.RootOption = ROOT,
) -> None:
    """Check pairs without timing them.

    What is written in them, that both sides compute the same, that they compile for each kind of GPU, and that stored
    results and the tables of READMEs agree. All pairs, if none is named.
    """
    from common.python.report.live_view import LiveView, aside
    from common.python.verify.sweep import print_report
    from common.python.verify.sweep import verify as sweep

    with claims(wait) as claim, LiveView(aside()) as view:
        report = sweep(root, [*words, *targets] or ["all"], build, execute, view, claim, again)
    print_report(report)
    if not (outcomes := {one.outcome for one in report.findings} & {"passed", "problem"}):
        typer.echo(f"benchmark_cli: nothing to check: {root} has no pairs", err=True)
    raise typer.Exit(FAILED if "problem" in outcomes else DONE if outcomes else NOTHING)


app.command()(new)


@app.command()
def build(
    words: o.Words,
    targets: o.Targets,
    arch: Annotated[
        list[str] | None, typer.Option(help="Kinds of GPU; by default sm_80 and six more, to sm_121a.")
    ] = None,
    artifacts_dir: Annotated[Path, o.into(help="build.json goes to a new folder in here.")] = o.ARTIFACTS,
    jobs: Annotated[int | None, o.count(help="Compilers at a time; by default as many as cores.")] = None,
    root: o.RootOption = ROOT,
) -> None:
    """Compile CUDA and Triton; no GPU is needed.

    Every .cu file and Triton kernel for each architecture, with the registers and shared memory that each kernel takes.
    All pairs, if none is named.
    """
    from common.python.build.report import print_build, sweep

    kinds = ",".join(arch) if arch else None
    built, folder = sweep(root, [*words, *targets] or ["all"], kinds, artifacts_dir, jobs)
    print_build(built, folder)
    outcomes = {one.status for one in built.compiled}
    raise typer.Exit(FAILED if "failed" in outcomes else DONE if "compiled" in outcomes else NOTHING)


@app.command()
def peak(
    artifacts_dir: Annotated[Path, o.into(help="They go to peaks/<UUID>.json in here.")] = o.ARTIFACTS,
    as_json: Annotated[bool, typer.Option("--json", help="Print the file's JSON to stdout, and nothing else.")] = False,
    wait: o.WaitOption = True,
    root: o.RootOption = ROOT,
) -> None:
    """Measure what this machine can do at best.

    Bandwidths, arithmetic rates and launch costs: from them comes the limit that each pair's times are held against.
    They are kept for later runs.
    """
    from common.python.peaks.survey import measure_and_keep

    with claims(wait) as claim:
        measure_and_keep(root, artifacts_dir, as_json, claim)


@app.command()
def estimate(**given: Any) -> None:
    """What physics allows a language model on a GPU.

    Whether it fits and on how many, the least time of a token and of a prompt and what bounds it, and the batch from
    which decode is bound by arithmetic. A measured time or rate is held against its floor. Needs no GPU.
    """
    from tools.cli.estimating import print_estimate

    print_estimate(o.EstimateOptions(**given))


estimate.__signature__ = inspect.signature(o.EstimateOptions)  # type: ignore[attr-defined]


@app.command()
def roofline(
    words: o.Words,
    targets: o.Targets,
    gpu: o.GpuName = None,
    run: Annotated[
        Path | None, typer.Option(parser=o.run_folder, help="What this run measured; or name it as TARGET.")
    ] = None,
    artifacts_dir: Annotated[Path, o.into(help="Gets the chart; has what `peak` measured.")] = o.ARTIFACTS,
    root: o.RootOption = ROOT,
) -> None:
    """The limit of each pair, and what binds it.

    FLOPs per byte, the resource that takes longest, and the least time at the bench size, by the pair's cost and the
    peaks of a GPU: measured ones, or its datasheet's with --gpu; with a chart. Needs no GPU and times nothing.
    """
    from tools.cli.roofline import show, show_run

    if run is None and words:
        place = o.run_folder(str(artifacts_dir / "latest") if words[0] == "latest" else words[0])
        if os.path.isfile(place / "summary.json"):
            run, words = place, words[1:]
    if run is None:
        show(root, [*words, *targets] or ["all"], gpu, artifacts_dir)
    elif gpu or words or targets:
        raise ValueError("a run has its own pairs and peaks: name no target and no --gpu with it")
    else:
        show_run(run)


@app.command()
def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False) -> None:
    """What this machine lacks for measuring.

    And what it has, why it matters, and what would change it. It changes nothing itself.
    """
    from common.python.doctor.diagnosis import diagnose, print_report

    print_report(diagnose(), as_json)


@app.command()
def selftest(
    only: Annotated[str | None, typer.Option(help="Some of aa,truth,others,cheats.")] = None,
    full: Annotated[bool, typer.Option("--full", help="About twenty minutes on an H200, instead of two.")] = False,
    artifacts_dir: o.ArtifactsOption = o.ARTIFACTS,
    seed: o.SeedOption = None,
    wait: o.WaitOption = True,
    root: o.RootOption = ROOT,
) -> None:
    """Measure how well the harness measures here.

    Four experiments, such as a pair whose sides are the same, and whether each promise about them is kept.
    """
    from tools.selftest import command as its

    raise typer.Exit(its.selftest(root, artifacts_dir, only, full, seed, wait))


def main(words: list[str] | None = None) -> None:
    """Entry point of the console script."""
    if words is None and locale.getpreferredencoding(False).lower() not in ("utf-8", "utf8"):
        os.environ["PYTHONUTF8"] = "1"  # all files are UTF-8, whatever the locale, for the worker processes too
        os.execv(sys.executable, sys.orig_argv)
    ended(app, "benchmark_cli", words)


if __name__ == "__main__":
    main()
