"""The arguments and options of the commands, with their help: those of several, and the many of `run`."""

import math
import tempfile
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from tools.cli.completion import complete_target

MOST_S = 1e6  # eleven days: beyond it a deadline may be no number
MOST_CALLS = 1_000_000
MOST_RANKS = 1024  # on a host
OF_THE_SUITE = ("words", "targets", "artifacts_dir", "ray", "junit", "history")


def number(value: float | None) -> float | None:
    """A number of an option with a range, in which click finds NaN, too. Raises typer.BadParameter for it."""
    if value is not None and math.isnan(value):
        raise typer.BadParameter("nan is no number")
    return value


def folder(value: str) -> Path:
    """One that is named, since `''` would be the one that the user is in. Raises typer.BadParameter."""
    if not value:
        raise typer.BadParameter("'' names no folder")
    return Path(value)


def run_folder(value: str) -> Path:
    """That of a run, which `latest` may name. Raises typer.BadParameter."""
    from common.python.report.artifacts import followed

    return followed(folder(value))


def writable(value: str) -> Path:
    """A file that is written last, where a wrong name costs nothing yet; its folder is made. Raises BadParameter.

    A file beside it, of as long a name as `journal.write` needs, tells whether its folder takes one.
    """
    file = Path(value)
    if file.is_dir():  # so is ''
        raise typer.BadParameter(f"{value!r} names no file")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        tempfile.NamedTemporaryFile(dir=file.parent, prefix=file.name).close()
    except OSError as error:
        raise typer.BadParameter(f"cannot write {value}: {error.strerror or error}") from error
    return file


def counts(iterations: int | None, warmup: int | None) -> dict[str, Any]:
    """Both of them where one is given: 20 samples, 5 calls to warm up."""
    if iterations is None and warmup is None:
        return {}
    return {"iterations": 20 if iterations is None else iterations, "warmup": 5 if warmup is None else warmup}


# What several options are: a count, a real number, a folder for results, a file to write.
count = partial(typer.Option, min=1)
real = partial(typer.Option, callback=number)
into = partial(typer.Option, parser=folder)
output = partial(typer.Option, parser=writable, metavar="FILE")

TARGETS = "A chapter (ch07), a pair (ch07:transpose), one of its files (ch07/optimized_transpose.py), or all."
Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TARGET]...", help=TARGETS, show_default=False, autocompletion=complete_target),
]
Targets = Annotated[
    list[str] | None,
    typer.Option("--targets", "-t", metavar="TARGET", help="The same; repeatable.", autocompletion=complete_target),
]
RootOption = Annotated[Path, typer.Option("--root", hidden=True)]
ArtifactsOption = Annotated[Path, into(help="Results go to a new folder in here.")]
GpuName = Annotated[
    str | None, typer.Option(help="A GPU by name, from its datasheet; by default the one that is here.")
]
WaitOption = Annotated[bool, typer.Option(help="Wait for a device that another run is using.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON to stdout, and nothing else.")]
JunitOption = Annotated[Path | None, output(help="Write JUnit XML for a CI system here.")]
HistoryOption = Annotated[Path | None, output(help="Add the run's times to this CSV, which `history` reads.")]
SeedOption = Annotated[int | None, typer.Option(min=0, help="Seed of inputs and orders; random by default.")]

SizeOption = Annotated[
    Literal["bench", "cpu", "test"] | None,
    typer.Option(help="Problem size; test is tiny. By default bench on a GPU, else cpu."),
]
SweepOption = Annotated[
    str | None,
    typer.Option(
        metavar="FIGURE=VALUES",
        help="One pair at each value of a figure of its size, such as batch=1,2,4,...,512 or dtype=bf16,fp16: a table "
        "and a chart.",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="FIGURE=VALUE", help="Another value of a figure of the size: n=4096 or dtype=fp16; repeatable."
    ),
]
AgainstOption = Annotated[
    str | None,
    typer.Option(metavar="REF", help="Time the same files as they are at a git ref, or in another checkout, beside."),
]
PythonOption = Annotated[
    str | None,
    typer.Option(metavar="PYTHON", help="Time the same files in another environment beside: path/to/venv/bin/python."),
]
IterationsOption = Annotated[
    int | None,
    count(max=MOST_CALLS, help="Time each variant this often, instead of until its interval is narrow."),
]
WarmupOption = Annotated[
    int | None,
    typer.Option(
        min=0, max=MOST_CALLS, help="Untimed calls before those; by default 5. Without --iterations it means 20."
    ),
]
BudgetOption = Annotated[float, real(min=0.1, max=MOST_S, help="At most this many seconds of timing for a pair.")]
QuickOption = Annotated[
    bool,
    typer.Option(
        "--quick",
        help="A first look: 20% of the sampling budget, wider intervals, earlier proofs at test size are reused.",
    ),
]
PatienceOption = Annotated[float, real(min=0.01, max=MOST_S, help="Multiply the time limit of each pair by this.")]
SuiteTimeoutOption = Annotated[float | None, real(min=1, max=MOST_S, help="Seconds for all pairs together.")]
ReproducibleOption = Annotated[bool, typer.Option(help="Fixed seeds and deterministic algorithms.")]
ColdOption = Annotated[bool, typer.Option(help="Each variant in a fresh process, garbage collected between.")]
ProfileOption = Annotated[
    bool, typer.Option(help="After the timing, trace a call of each variant: torch's profiler, ncu, nsys.")
]
ResumeOption = Annotated[
    Path | None,
    typer.Option(parser=run_folder, help="Continue the run in this folder, with its targets if none is named."),
]
FailFastOption = Annotated[bool, typer.Option(help="Start no further pair once one has failed or is invalid.")]
JobsOption = Annotated[
    int | None, count(help="Pairs proven at the same time, by default as many as fit into memory; each is timed alone.")
]
ShardOption = Annotated[
    str | None,
    typer.Option(metavar="I/N", help="Run part I of N of these pairs; `merge` puts the runs of all parts together."),
]
RayOption = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Measure on the machines of a Ray cluster: auto, local or HOST:PORT."),
]
RanksOption = Annotated[
    int | None,
    count(max=MOST_RANKS, help="For pairs on several GPUs: processes on this host, one a GPU; by default the fewest."),
]
HostsOption = Annotated[int, count(help="For several hosts: how many; each runs this command, with the same --seed.")]
HostOption = Annotated[int, typer.Option(min=0, help="This host's number; 0 leads and writes the results.")]
RendezvousOption = Annotated[str | None, typer.Option(help="HOST:PORT on which host number 0 listens.")]


def repeated(ctx: typer.Context) -> list[str]:
    """The options of `run` that were given and say how a pair is measured, as words for another process."""
    words = list[str]()
    for option in ctx.command.params:
        source, value = ctx.get_parameter_source(option.name or ""), ctx.params.get(option.name or "")
        if option.name not in OF_THE_SUITE and source is not None and source.name == "COMMANDLINE":
            flag = option.secondary_opts[-1] if value is False else option.opts[0]
            for one in value if isinstance(value, list | tuple) else [value]:
                words += [flag] if isinstance(one, bool) else [flag, str(one)]
    return words


def named(words: list[str] | None, targets: list[str] | None) -> list[str]:
    """All targets that were named, as arguments and by `--targets`."""
    return [*(words or []), *(targets or [])]
