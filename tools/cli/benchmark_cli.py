"""benchmark_cli: run, list and show pairs. Exit codes: 0 done, 1 failed or invalid, 2 usage, 4 nothing could run."""

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tools.cli.measuring import DONE, FAILED, INTERRUPTED, NOTHING, claims, launch, measure, publish, usage

if TYPE_CHECKING:  # the real imports are inside the commands, so that --help answers at once
    from common.python.discovery import Pair

ROOT = Path(__file__).resolve().parents[2]
UsageError: Any = typer.BadParameter.__bases__[0]  # click's, or that of the copy of click which newer typers carry

app = typer.Typer(
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich's Markdown costs more than all else that --help does
    help="Paired GPU workloads, proven equal and measured against each other and against physics.",
)

Targets = Annotated[
    list[str] | None,
    typer.Option("--targets", "-t", help="ch7, ch07:transpose, ch07/optimized_transpose.py or all; repeatable."),
]
Words = Annotated[list[str] | None, typer.Argument(help="The same, without the option.", show_default=False)]
RootOption = Annotated[Path, typer.Option("--root", hidden=True)]
WaitOption = Annotated[bool, typer.Option(help="Wait for a device that another run is using.")]
IterationsOption = Annotated[int | None, typer.Option(min=1, help="Samples of each variant, instead of precision.")]
ColdOption = Annotated[bool, typer.Option(help="Each variant in a fresh process, garbage collected between.")]
RanksOption = Annotated[
    int | None, typer.Option(min=1, help="Ranks here of a pair on several GPUs; by default as few as it needs.")
]
JunitOption = Annotated[Path | None, typer.Option(help="Write JUnit XML for a CI system here.", dir_okay=False)]


@app.command()
def run(
    words: Words = None,
    targets: Targets = None,
    artifacts_dir: Annotated[Path, typer.Option(help="Results go to a new folder in here.")] = Path("artifacts"),
    size: Annotated[str | None, typer.Option(help="bench, cpu or test; by default what fits this machine.")] = None,
    iterations: IterationsOption = None,
    warmup: Annotated[int | None, typer.Option(min=0, help="Warm-up steps of each variant in a round.")] = None,
    budget: Annotated[float, typer.Option(min=0.1, help="Seconds of sampling for a pair.")] = 3.0,
    timeout_multiplier: Annotated[float, typer.Option(min=0.01, help="Scales the time limit of a pair.")] = 1.0,
    suite_timeout: Annotated[float | None, typer.Option(min=1, help="Seconds for all pairs together.")] = None,
    reproducible: Annotated[bool, typer.Option(help="Fixed seeds and deterministic algorithms.")] = False,
    cold_start: ColdOption = False,
    profile: Annotated[bool, typer.Option(help="Trace a step of each variant, with ncu and nsys too.")] = False,
    resume: Annotated[Path | None, typer.Option(help="Go on with the run in this artifacts folder.")] = None,
    fail_fast: Annotated[bool, typer.Option(help="Stop at the first pair that failed or is invalid.")] = False,
    lock_clocks: Annotated[str | None, typer.Option(help="Hold the GPU at base, boost or these MHz (root).")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of inputs and orders; random by default.")] = None,
    nproc_per_node: RanksOption = None,
    nnodes: Annotated[int, typer.Option(min=1, help="Hosts that run this command together, with one --seed.")] = 1,
    node_rank: Annotated[int, typer.Option(min=0, help="This host's number; 0 leads and writes the results.")] = 0,
    rdzv_endpoint: Annotated[str | None, typer.Option(help="HOST:PORT on which node rank 0 listens.")] = None,
    junit: JunitOption = None,
    wait: WaitOption = True,
    root: RootOption = ROOT,
) -> None:
    """Prove and measure pairs, and write a folder of results."""
    from common.python.runner import Options

    if iterations is None and warmup is not None:
        iterations = 20
    options = Options(
        targets=[*(words or []), *(targets or [])],
        root=root,
        artifacts_dir=artifacts_dir,
        size=size,
        iterations=iterations,
        warmup=5 if iterations is not None and warmup is None else warmup,
        timeout_multiplier=timeout_multiplier,
        suite_timeout=suite_timeout,
        reproducible=reproducible,
        cold_start=cold_start,
        profile=profile,
        fail_fast=fail_fast,
        resume=resume,
        seed=seed,
        budget_s=budget,
        lock_clocks=lock_clocks,
        launch=launch(nnodes, node_rank, nproc_per_node, rdzv_endpoint),
    )
    raise typer.Exit(measure(options, junit, wait))


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run, such as artifacts/2026...Z.")],
    junit: JunitOption = None,
    root: RootOption = ROOT,
) -> None:
    """Write a run's report.html: charts, proofs and both sources of each pair, in one file that opens from disk."""
    typer.echo(f"report: {publish(folder, root, junit)}")


@app.command()
def compare(
    run_a: Annotated[Path, typer.Argument(help="The folder of a run.")],
    run_b: Annotated[Path, typer.Argument(help="That of a later one.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON to stdout, and nothing else.")] = False,
) -> None:
    """Two runs pair by pair: what differs around them, the ratios of times, and how each speedup changed."""
    from common.python.run_comparison import print_comparison

    try:
        print_comparison(run_a, run_b, as_json)
    except (ValueError, ArithmeticError) as error:  # the latter from figures that no run measures
        raise usage(str(error)) from error


@app.command()
def verify(
    words: Words = None,
    targets: Targets = None,
    build: Annotated[bool, typer.Option("--build/--no-build", help="Compile CUDA and Triton for every target.")] = True,
    execute: Annotated[bool, typer.Option("--execute/--no-execute", help="Import and prove pairs.")] = True,
    wait: WaitOption = True,
    root: RootOption = ROOT,
) -> None:
    """Check pairs without timing them: sources, proofs, compilation, expectations, READMEs; all, if none is named."""
    from common.python.lock import Busy
    from common.python.targets import TargetError
    from common.python.verify import follow, print_report
    from common.python.verify import verify as sweep

    try:
        with ExitStack() as stack, follow() as show:
            claim = claims(stack, wait)
            report = sweep(root, [*(words or []), *(targets or [])] or ["all"], build, execute, show, claim)
    except TargetError as error:
        raise usage(str(error)) from error
    except (RuntimeError, Busy) as error:
        typer.echo(f"benchmark_cli: {str(error).strip()}", err=True)
        raise typer.Exit(NOTHING) from error
    print_report(report)
    if report.nothing_checked:
        typer.echo(f"benchmark_cli: nothing to check: {root} has no pairs", err=True)
    raise typer.Exit(FAILED if report.problems else NOTHING if report.nothing_checked else DONE)


@app.command()
def build(
    words: Words = None,
    targets: Targets = None,
    arch: Annotated[str | None, typer.Option(help="By default sm_90a,sm_100a,sm_103a,sm_121a.")] = None,
    artifacts_dir: Annotated[Path, typer.Option(help="build.json goes to a new folder in here.")] = Path("artifacts"),
    jobs: Annotated[int | None, typer.Option(min=1, help="Compilers at a time; by default as many as cores.")] = None,
    root: RootOption = ROOT,
) -> None:
    """Compile every .cu file and Triton kernel for each architecture, without a GPU; all pairs, if none is named."""
    from common.python.build_report import print_build, sweep
    from common.python.targets import TargetError

    try:
        built, folder = sweep(root, [*(words or []), *(targets or [])] or ["all"], arch, artifacts_dir, jobs)
    except TargetError as error:
        raise usage(str(error)) from error
    except OSError as error:
        raise usage(f"cannot use {error.filename or artifacts_dir}: {error.strerror or error}") from error
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    print_build(built, folder)
    outcomes = {one.status for one in built.compiled}
    raise typer.Exit(FAILED if "failed" in outcomes else DONE if "compiled" in outcomes else NOTHING)


@app.command()
def peak(
    artifacts_dir: Annotated[Path, typer.Option(help="They go to peaks/<UUID>.json in here.")] = Path("artifacts"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the file's JSON to stdout, and nothing else.")] = False,
    wait: WaitOption = True,
    root: RootOption = ROOT,
) -> None:
    """Measure this machine's bandwidths, arithmetic rates and launch costs, which limits are made of, and keep them."""
    from common.python.lock import Busy
    from common.python.peak_display import measure

    try:
        with ExitStack() as stack:
            measure(root, artifacts_dir, as_json, claims(stack, wait))
    except OSError as error:
        raise usage(f"cannot use {error.filename or artifacts_dir}: {error.strerror or error}") from error
    except (RuntimeError, Busy) as error:
        typer.echo(f"benchmark_cli: {str(error).strip()}", err=True)
        raise typer.Exit(NOTHING) from error
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as a JSON list.")] = False,
) -> None:
    """What this machine has and lacks for measuring, why it matters, and what would change it; changes nothing."""
    from common.python.doctor import diagnose, print_report

    print_report(diagnose(), as_json)


@app.command()
def selftest(
    only: Annotated[str | None, typer.Option(help="Some of aa,truth,drift,others,cheats,cost,repeat.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Under twenty minutes on an H200, instead of two.")] = False,
    publish: Annotated[
        list[Path] | None, typer.Option(metavar="FOLDER", help="Measure nothing: put earlier selftests on the page.")
    ] = None,
    artifacts_dir: Annotated[Path, typer.Option(help="Results go to a new folder in here.")] = Path("artifacts"),
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of inputs and orders; random by default.")] = None,
    wait: WaitOption = True,
    root: RootOption = ROOT,
) -> None:
    """Measure the measurement on this machine: seven experiments, and whether each promise about them is kept."""
    from tools.selftest.command import publish_runs
    from tools.selftest.command import selftest as measure_itself

    code = publish_runs(publish, root) if publish else measure_itself(root, artifacts_dir, only, full, seed, wait)
    raise typer.Exit(code)


@app.command("list")
def list_pairs(words: Words = None, targets: Targets = None, root: RootOption = ROOT) -> None:
    """Every pair: mechanism, kind, needs, and whether it runs here."""
    from common.python.listing import print_list
    from common.python.machine import machine

    print_list(_selected(words, targets, root, default="all"), machine())


@app.command()
def show(words: Words = None, targets: Targets = None, root: RootOption = ROOT) -> None:
    """The sources of a pair side by side, baseline left."""
    from common.python.sources import print_pair

    for pair in _selected(words, targets, root, default=None):
        print_pair(pair)


def _selected(words: list[str] | None, targets: list[str] | None, root: Path, default: str | None) -> "list[Pair]":
    from common.python.discovery import find_pairs, select
    from common.python.targets import TargetError, parse

    asked = [*(words or []), *(targets or [])] or ([default] if default else [])
    if not asked:
        raise usage("nothing to show: name a pair, such as `show ch07:transpose`")
    try:
        return select(find_pairs(root), [target for text in asked for target in parse(text)])
    except TargetError as error:
        raise usage(str(error)) from error


def main() -> None:
    """Entry point of the console script. What typer finds wrong is said in one line, like everything else."""
    try:
        code = app(standalone_mode=False)
    except UsageError as error:
        command = error.ctx.command_path if error.ctx else "benchmark_cli"
        code = usage(f"{error.format_message().rstrip('.')}; see `{command} --help`").exit_code
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    sys.exit(code)


if __name__ == "__main__":
    main()
