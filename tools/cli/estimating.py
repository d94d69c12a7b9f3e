"""What `benchmark_cli estimate` does: the user's words made into the terms of the formulas, and their answer shown.

What loads pydantic or rich is imported inside: --help is quick.
"""

import json
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from common.python.base.hardware import DATASHEETS, datasheet
from common.python.base.machine import GIB, machine
from common.python.corpus.targets import nearest, quoted
from common.python.estimate.estimate import ARITHMETIC, Board, Case, splits, work
from common.python.estimate.estimate import estimate as estimated
from common.python.estimate.model_shapes import SHAPES, Model, model_of, model_of_count
from tools.cli.options import GpuName, JsonOption, count, real

if TYPE_CHECKING:
    from common.python.performance_targets import Peaks

MOST = 10**9  # sequences, tokens, GPUs: beyond what is of use, and exact in a float
RATES = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8")  # of the resources that peaks are known by
MODEL_HELP = "A published shape, such as llama-3.1-8b, or a number of parameters: 8B."
positive = partial(real, min=1e-9, max=1e30)  # beyond them a quotient may be no number

# The arguments that take more than a line; the others stand where they are used.
Name = Annotated[str, typer.Argument(metavar="MODEL", help=MODEL_HELP)]
Weights = Annotated[
    Literal["fp32", "bf16", "fp16", "fp8", "int8", "int4"],
    typer.Option(help="Dtype of weights, int4 in groups of 128."),
]
Arithmetic = Annotated[
    str | None, typer.Option("--math", help="Dtype of the arithmetic; by default the weights', bf16 for integer ones.")
]
Read = Annotated[float | None, positive(help="Bytes of weights that a step reads, if not as the dtype says.")]
Rate = Annotated[float | None, positive(help="A rate to hold against the floor, of all sequences together.")]
Phase = Annotated[
    Literal["decode", "prefill", "train"] | None, typer.Option(help="What was measured; decode by default.")
]
Artifacts = Annotated[Path, typer.Option(help="Where `peak` keeps what this machine can do.")]


def estimate(
    model: Name,
    weights: Weights = "bf16",
    kv: Annotated[Literal["fp32", "bf16", "fp16", "fp8", "int8"], typer.Option(help="Dtype of the KV cache.")] = "bf16",
    arithmetic: Arithmetic = None,
    gpu: GpuName = None,
    gpus: Annotated[int | None, count(max=MOST, help="Split over so many; by default as few as hold it.")] = None,
    batch: Annotated[int, count(max=MOST, help="Sequences at a time.")] = 1,
    context: Annotated[int, count(max=MOST, help="Tokens of each: its prompt, or what decode attends to.")] = 4096,
    layers: Annotated[int | None, count(max=10_000, help="This many layers instead of the shape's.")] = None,
    vocab: Annotated[int | None, count(max=MOST, help="A vocabulary of this size instead of the shape's.")] = None,
    weights_bytes: Read = None,
    measured_tokens_per_s: Rate = None,
    measured_ms: Annotated[float | None, positive(help="Or the time of a step to hold against it.")] = None,
    phase: Phase = None,
    artifacts_dir: Artifacts = Path("artifacts"),
    as_json: JsonOption = False,
) -> None:
    """What physics allows a language model on a GPU.

    Whether it fits and on how many, the least time of a token and of a prompt and what bounds it, and the batch from
    which decode is bound by arithmetic. A measured time or rate is held against its floor. Needs no GPU.
    """
    from tools.cli.estimate_table import show

    case = Case(
        model=find_model(model, layers, vocab),
        weights=weights,
        cache=kv,
        arithmetic=arithmetic or ARITHMETIC[weights],
        batch=batch,
        context=context,
        read_bytes=weights_bytes,
    )
    name, memory_bytes, peaks = find_gpu(gpu, artifacts_dir)
    rates = {dtype: peak for dtype, peak in peaks.values.items() if dtype in RATES}
    board = Board(name, memory_bytes, peaks.values["hbm"], rates, peaks.source)
    check(case, board, gpus)
    result = estimated(case, board, gpus, measured_step(phase, case, measured_tokens_per_s, measured_ms))
    if as_json:
        typer.echo(json.dumps(asdict(result), indent=1))
    else:
        show(result)


def find_model(word: str, layers: int | None = None, vocab: int | None = None) -> Model:
    """The model that a word names or counts, with so many layers and words. Raises ValueError for what is neither."""
    shapes = {shape.name: shape for shape in SHAPES}
    if shape := shapes.get(word.strip().lower()):
        changed = [f"{count} {what}" for count, what in ((layers, "layers"), (vocab, "words")) if count]
        name = " of ".join([shape.name, *([" and ".join(changed)] if changed else [])])
        return model_of(replace(shape, name=name, layers=layers or shape.layers, vocab=vocab or shape.vocab))
    if (counted := model_of_count(word)) is None:
        hint = nearest(word, list(shapes))
        raise ValueError(f"MODEL {quoted(word)} is not a published shape or a number of parameters, such as 8B{hint}")
    if layers or vocab:
        raise ValueError(f"--layers and --vocab need a published shape: {word.strip()} parameters have none to replace")
    return counted


def find_gpu(word: str | None, artifacts_dir: Path) -> "tuple[str, float, Peaks]":
    """A GPU's name, its bytes of memory and its peaks: those of the datasheet for one that is named by the table or as
    a driver does; else of this machine's first, as measured if by these versions. Raises ValueError for any other."""
    from common.python.peaks import store
    from common.python.performance_targets import datasheet_peaks

    if word is not None:
        names = {sheet.name.lower(): sheet for sheet in DATASHEETS}
        sheet = names.get(word.strip().lower()) or datasheet(word)
        promised = datasheet_peaks(sheet.reported[0]) if sheet else None
        if sheet is None or promised is None:
            hint = nearest(word.strip().upper(), [sheet.name for sheet in DATASHEETS])
            raise ValueError(f"--gpu {quoted(word)} is not in the table of datasheets{hint}")
        return sheet.name, sheet.memory_gb * 1e9, promised
    here = machine()
    if not here.gpus:
        raise ValueError("this machine has no GPU: name one of the table, such as --gpu H200")
    gpu = here.gpus[0]
    uuid = gpu.uuid.removeprefix("GPU-")  # NVML writes the prefix, torch, which names the file, does not
    stored, other = store.known(artifacts_dir, uuid, here)
    peaks = store.peaks_of(stored) if stored else datasheet_peaks(gpu.name)
    if peaks is None:
        raise ValueError(f"{other}, and {gpu.name} has no datasheet here: measure it with `benchmark_cli peak`")
    if "hbm" not in peaks.values:
        path = store.path_of(artifacts_dir, uuid)
        raise ValueError(f"{path} has no memory bandwidth: measure it with `benchmark_cli peak`")
    source = f"{peaks.source} on this machine" if stored else f"{peaks.source}, since {other}"
    return gpu.name, gpu.memory_gib * GIB, peaks.model_copy(update={"source": source})


def check(case: Case, board: Board, gpus: int | None) -> None:
    """Raise ValueError for arithmetic that the board has no rate for, or GPUs that the heads cannot be split over."""
    if case.arithmetic not in board.rates:
        known = f"no {case.arithmetic} rate of {board.name} is known ({board.source})"
        raise ValueError(f"{known}: choose with --math{nearest(case.arithmetic, sorted(board.rates))}")
    counts = splits(case.model)
    if gpus is not None and counts and gpus not in counts:
        can = ", ".join(map(str, counts))
        raise ValueError(f"--gpus {gpus} cannot split the heads of {case.model.name} evenly: {can} can")


def measured_step(
    phase: str | None, case: Case, tokens_per_s: float | None, ms: float | None
) -> tuple[str, float] | None:
    """The measured phase and the seconds of its step; None if nothing was measured."""
    given = [value for value in (tokens_per_s, ms) if value is not None]
    if len(given) == 2 or (phase and not given):
        raise ValueError("give one of --measured-ms and --measured-tokens-per-s; --phase goes with it")
    measured = phase or "decode"
    if tokens_per_s is not None:
        return measured, work(measured, case).tokens / tokens_per_s
    return (measured, ms / 1e3) if ms is not None else None
