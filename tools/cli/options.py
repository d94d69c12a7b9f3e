"""Arguments and options of the commands, with their help: those of several, and all of `run` and `estimate`."""

import math
import tempfile
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import typer

from common.python.base.toolkit import ROOT
from common.python.run.options import Options
from common.python.stats.sampling_plan import BUDGET_S, QUICK
from common.python.workers.launch import Launch

ARTIFACTS = Path("artifacts")
MOST_S = 1e6  # eleven days: beyond it a deadline may be no number
MOST_CALLS = 1_000_000
MOST_RANKS = 1024  # on a host
MOST = 10**9  # sequences, tokens, GPUs: beyond what is of use, and exact in a float
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


# What several options are: a run, unset by default, a switch, a count, a real number, a folder for results, a file.
a_run = partial(typer.Argument, parser=run_folder)
unset = partial(typer.Option, None)
switch = partial(typer.Option, False)
count = partial(typer.Option, min=1)
real = partial(typer.Option, callback=number)
positive = partial(real, min=1e-9, max=1e30)  # beyond them a quotient may be no number
into = partial(typer.Option, parser=folder)
output = partial(typer.Option, parser=writable, metavar="FILE")

TARGETS = "A chapter (ch07), a pair (ch07:transpose), one of its files (ch07/optimized_transpose.py), or all."
none = {"default_factory": list, "show_default": False}
Words = Annotated[list[str], typer.Argument(metavar="[TARGET]...", help=TARGETS, **none)]
Targets = Annotated[list[str], typer.Option("--targets", "-t", metavar="TARGET", help="The same; repeatable.", **none)]
RootOption = Annotated[Path, typer.Option("--root", hidden=True)]
ArtifactsOption = Annotated[Path, into(help="Results go to a new folder in here.")]
GpuName = Annotated[
    str | None, typer.Option(help="A GPU by name, from its datasheet; by default the one that is here.")
]
WaitOption = Annotated[bool, typer.Option(help="Wait for a device that another run is using.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON to stdout, and nothing else.")]
JunitOption = Annotated[Path | None, output(help="Write JUnit XML for a CI system here.")]
SeedOption = Annotated[int | None, typer.Option(min=0, help="Seed of inputs and orders; random by default.")]


class RunOptions(NamedTuple):
    """The arguments and options of `run`, in the order in which its help shows them."""

    ctx: typer.Context
    words: Words
    targets: Targets
    artifacts_dir: ArtifactsOption = ARTIFACTS
    size: Literal["bench", "cpu", "test"] | None = unset(
        help="Problem size; test is tiny. By default bench on a GPU, else cpu."
    )
    sweep: str | None = unset(
        metavar="FIGURE=VALUES",
        help="One pair at each value of a figure of its size, such as batch=1,2,4,...,512 or dtype=bf16,fp16: a table "
        "and a chart.",
    )
    set_: list[str] | None = unset(
        "--set", metavar="FIGURE=VALUE", help="Another value of a figure of the size: n=4096 or dtype=fp16; repeatable."
    )
    against: str | None = unset(
        metavar="REF", help="Time the same files as they are at a git ref, or in another checkout, beside."
    )
    against_python: str | None = unset(
        metavar="PYTHON", help="Time the same files in another environment beside: path/to/venv/bin/python."
    )
    iterations: int | None = count(
        None, max=MOST_CALLS, help="Time each variant this often, instead of until its interval is narrow."
    )
    warmup: int | None = unset(
        min=0, max=MOST_CALLS, help="Untimed calls before those; by default 5. Without --iterations it means 20."
    )
    budget: float = real(BUDGET_S, min=0.1, max=MOST_S, help="At most this many seconds of timing for a pair.")
    quick: bool = switch(
        "--quick",
        help="A first look: 20% of the sampling budget, wider intervals, earlier proofs at test size are reused.",
    )
    timeout_multiplier: float = real(1.0, min=0.01, max=MOST_S, help="Multiply the time limit of each pair by this.")
    suite_timeout: float | None = real(None, min=1, max=MOST_S, help="Seconds for all pairs together.")
    reproducible: bool = switch(help="Fixed seeds and deterministic algorithms.")
    cold_start: bool = switch(help="Each variant in a fresh process, garbage collected between.")
    profile: bool = switch(help="After the timing, trace a call of each variant: torch's profiler, ncu, nsys.")
    resume: Path | None = unset(
        parser=run_folder, help="Continue the run in this folder, with its targets if none is named."
    )
    fail_fast: bool = switch(help="Start no further pair once one has failed or is invalid.")
    jobs: int | None = count(
        None, help="Pairs proven at the same time, by default as many as fit into memory; each is timed alone."
    )
    shard: str | None = unset(
        metavar="I/N", help="Run part I of N of these pairs; `merge` puts the runs of all parts together."
    )
    ray: str | None = unset(
        metavar="ADDRESS", help="Measure on the machines of a Ray cluster: auto, local or HOST:PORT."
    )
    seed: SeedOption = None
    nproc_per_node: int | None = count(
        None,
        max=MOST_RANKS,
        help="For pairs on several GPUs: processes on this host, one a GPU; by default the fewest.",
    )
    nnodes: int = count(1, help="For several hosts: how many; each runs this command, with the same --seed.")
    node_rank: int = typer.Option(0, min=0, help="This host's number; 0 leads and writes the results.")
    rdzv_endpoint: str | None = unset(help="HOST:PORT on which host number 0 listens.")
    junit: JunitOption = None
    history: Path | None = output(None, help="Add the run's times to this CSV, which `history` reads.")
    wait: WaitOption = True
    as_json: JsonOption = False
    root: RootOption = ROOT

    def options(self, targets: list[str], figure: str | None) -> Options:
        """What the harness is asked for, with these targets and figures of the size.

        Of --iterations and --warmup both are fixed where one is given: 20 samples, 5 calls to warm up.
        """
        given = self._asdict()
        asked = {field.name: given[field.name] for field in fields(Options) if field.name in given}
        asked |= {"targets": targets, "figure": figure, "budget_s": self.budget * (QUICK if self.quick else 1)}
        if self.iterations is not None or self.warmup is not None:
            asked["iterations"] = 20 if self.iterations is None else self.iterations
            asked["warmup"] = 5 if self.warmup is None else self.warmup
        return Options(**asked, launch=Launch(self.nnodes, self.node_rank, self.nproc_per_node, self.rdzv_endpoint))

    def refuse_together(self) -> None:
        """Raise ValueError for options that do not go together, and where nothing is named."""
        if not (self.words or self.targets or self.resume):
            raise ValueError("nothing to run: name targets, such as `run --targets ch1` or `run --targets all`")
        measured = ("sweep", "ray", "resume", "profile")
        apart = {"against": measured, "against_python": ("against", *measured), "history": measured[:2]}
        for one, others in (apart | {"sweep": ("resume", "shard", "junit")}).items():
            if getattr(self, one) is not None and any(getattr(self, other) for other in others):
                *most, last = (f"--{other}" for other in others)
                raise ValueError(f"--{one.replace('_', '-')} goes without {', '.join(most)} and {last}")


class EstimateOptions(NamedTuple):
    """The arguments and options of `estimate`."""

    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="A published shape, such as llama-3.1-8b, or a number of parameters: 8B."),
    ]
    weights: Literal["fp32", "bf16", "fp16", "fp8", "int8", "int4"] = typer.Option(
        "bf16", help="Dtype of weights, int4 in groups of 128."
    )
    kv: Literal["fp32", "bf16", "fp16", "fp8", "int8"] = typer.Option("bf16", help="Dtype of the KV cache.")
    arithmetic: str | None = unset(
        "--math", help="Dtype of the arithmetic; by default the weights', bf16 for integer ones."
    )
    gpu: GpuName = None
    gpus: int | None = count(None, max=MOST, help="Split over so many; by default as few as hold it.")
    batch: int = count(1, max=MOST, help="Sequences at a time.")
    context: int = count(4096, max=MOST, help="Tokens of each: its prompt, or what decode attends to.")
    layers: int | None = count(None, max=10_000, help="This many layers instead of the shape's.")
    vocab: int | None = count(None, max=MOST, help="A vocabulary of this size instead of the shape's.")
    weights_bytes: float | None = positive(None, help="Bytes of weights that a step reads, if not as the dtype says.")
    measured_tokens_per_s: float | None = positive(
        None, help="A rate to hold against the floor, of all sequences together."
    )
    measured_ms: float | None = positive(None, help="Or the time of a step to hold against it.")
    phase: Literal["decode", "prefill", "train"] | None = unset(help="What was measured; decode by default.")
    artifacts_dir: Path = typer.Option(ARTIFACTS, help="Where `peak` keeps what this machine can do.")
    as_json: JsonOption = False


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
