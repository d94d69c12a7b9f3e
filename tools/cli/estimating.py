"""`benchmark_cli estimate`: the user's words as the terms of the formulas, and their answer as a small table.

A line of it is what is asked, the number, and what bounds it or how it comes about, in plain words.
"""

import json
from dataclasses import asdict, replace
from pathlib import Path

import typer

from common.python.base.hardware import DATASHEETS, datasheet
from common.python.base.machine import GIB, machine
from common.python.base.text import counted
from common.python.corpus.targets import nearest, quoted
from common.python.estimate.estimate import ARITHMETIC, USABLE, Board, Case, Estimate, Floor, Measured, splits
from common.python.estimate.model_shapes import SHAPES, Model, model_of, model_of_count
from common.python.peaks import store
from common.python.performance_targets import Peaks, datasheet_peaks, peak_text
from common.python.report.rows import bytes_text, time_text
from common.python.report.tables import text_table, wide_console
from tools.cli.options import EstimateOptions

RATES = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8")  # of the resources that peaks are known by
MARGIN = 0.05  # by which a measured step may beat a measured peak, as for the rates of pairs
COUNTED = (
    "Floors move each byte once and do each FLOP once, at these peaks. Launches, activations and the links between "
    "GPUs come on top: no real step is as fast."
)


def print_estimate(asked: EstimateOptions) -> None:
    """Print the table and, under it, where the peaks are from; or all as JSON."""
    case = Case(
        model=find_model(asked.model, asked.layers, asked.vocab),
        weights=asked.weights,
        cache=asked.kv,
        arithmetic=asked.arithmetic or ARITHMETIC[asked.weights],
        batch=asked.batch,
        context=asked.context,
        read_bytes=asked.weights_bytes,
    )
    name, memory_bytes, peaks = find_gpu(asked.gpu, asked.artifacts_dir)
    rates = {dtype: peak for dtype, peak in peaks.values.items() if dtype in RATES}
    board = Board(name, memory_bytes, peaks.values["hbm"], rates, peaks.source)
    check(case, board, asked.gpus)
    found = Estimate(case, board, asked.gpus, measured_step(asked, case))
    if asked.as_json:
        typer.echo(json.dumps(vars(found), indent=1, default=asdict))
        return
    title = (
        f"{case.model.name}: {case.weights} weights, {case.cache} cache, {case.arithmetic} arithmetic; "
        f"{counted(case.batch, 'sequence')} of {case.context} tokens on {counted(found.gpus, 'GPU')} ({board.name})"
    )
    sources = f"Peaks: {board.source}. Model: {case.model.source}.\n{COUNTED}"
    wide_console().print(text_table(("", "estimate", "because"), rows(found), title, sources))


def find_model(word: str, layers: int | None = None, vocab: int | None = None) -> Model:
    """The published model of this name, or one of so many parameters. Raises ValueError for any other word."""
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


def find_gpu(word: str | None, artifacts_dir: Path) -> tuple[str, float, Peaks]:
    """A GPU's name, bytes of memory and peaks: its datasheet's, if `word` is what a driver calls it or its name's first
    words; without `word` this machine's first, as measured if by these versions. Raises ValueError for any other."""
    if word is not None:
        begins = f"{word.strip().lower()} "  # of several boards, such as H100 SXM and H100 PCIe, the first
        sheet = datasheet(word) or next((s for s in DATASHEETS if f"{s.name.lower()} ".startswith(begins)), None)
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
    if peaks is None or "hbm" not in peaks.values:
        lacks = f"{store.path_of(artifacts_dir, uuid)} has no memory bandwidth"
        why = lacks if peaks else f"{other}, and {gpu.name} has no datasheet here"
        raise ValueError(f"{why}: measure it with `benchmark_cli peak`")
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


def measured_step(asked: EstimateOptions, case: Case) -> tuple[str, float] | None:
    """The measured phase and the seconds of its step; None if nothing was measured."""
    tokens_per_s, ms = asked.measured_tokens_per_s, asked.measured_ms
    if (tokens_per_s and ms) or (asked.phase and not (tokens_per_s or ms)):
        raise ValueError("give one of --measured-ms and --measured-tokens-per-s; --phase goes with it")
    measured = asked.phase or "decode"
    if tokens_per_s:
        return measured, case.tokens(measured) / tokens_per_s
    return (measured, ms / 1e3) if ms else None


def rows(estimate: Estimate) -> list[tuple[str, str, str]]:
    case, needed, took = estimate.case, estimate.gpus_needed, estimate.measured
    weights = (
        f"{estimate.parameters / 1e9:,.4g} billion parameters; a step reads {bytes_text(estimate.read_bytes)} of them"
    )
    cache, taken = "unknown", "a count of parameters has no layers and heads: cache and attention are in no number here"
    if each := estimate.kv_bytes_per_token:
        cache = f"{bytes_text(each)} a token"
        taken = f"{bytes_text(estimate.cache_bytes)} for {counted(case.batch, 'sequence')}"
    held, usable = bytes_text(estimate.held_bytes), bytes_text(estimate.usable_bytes)
    share = f"weights and cache take {held} of the {usable} on each GPU that may be used, {USABLE:.0%} of its memory"
    fits = f"no; it needs {counted(needed, 'GPU')}" if needed else "no, however split"
    if estimate.held_bytes <= estimate.usable_bytes:
        fits = f"yes, on {counted(estimate.gpus, 'GPU')}"
    ridge, turns = "none", "at this context a sequence's cache takes longer to read than its FLOPs to do"
    if estimate.ridge_batch is not None:
        ridge, turns = f"{estimate.ridge_batch:.4g}", "decode is bound by memory below, by arithmetic above"
    if (alone := estimate.ridge_batch_weights) is not None:
        turns += f"; for the weights alone, without a cache, {alone:.4g}"
    found = [
        ("weights", bytes_text(estimate.weight_bytes), weights),
        ("KV cache", cache, taken),
        ("fits", fits, share),
        ("decode, at least", f"{ms_text(estimate.decode.ms)} a token", _bound(estimate, estimate.decode)),
        ("prefill, at least", ms_text(estimate.prefill.ms), _bound(estimate, estimate.prefill)),
        ("ridge batch", ridge, turns),
    ]
    return found + ([(f"measured {took.phase}", ms_text(took.ms), _verdict(took))] if took else [])


def _bound(estimate: Estimate, floor: Floor) -> str:
    """What binds, with its peak, and the time of the other."""
    rate = peak_text(estimate.case.arithmetic, estimate.board.rates[estimate.case.arithmetic])
    bandwidth = peak_text("hbm", estimate.board.bandwidth)
    total = f"{rate_text(floor.tokens_per_s)} in all"
    if floor.bound == "memory":
        return f"bound by memory at {bandwidth}; arithmetic would take {ms_text(floor.arithmetic_ms)}; {total}"
    return f"bound by arithmetic at {rate}; memory would take {ms_text(floor.memory_ms)}; {total}"


def _verdict(took: Measured) -> str:
    doubt = ": FASTER THAN PHYSICS ALLOWS, so doubt what was measured" * (took.share_of_floor > 1 + MARGIN)
    return (
        f"{took.share_of_floor:.1%} of the speed that its floor of {ms_text(took.floor_ms)} allows; "
        f"{rate_text(took.tokens_per_s)}; model FLOPs utilisation {took.flops_utilisation:.2%}{doubt}"
    )


def ms_text(ms: float) -> str:
    return time_text(1e3 * ms)


def rate_text(tokens_per_s: float) -> str:
    return f"{tokens_per_s:,.0f} tokens/s" if tokens_per_s >= 100 else f"{tokens_per_s:.3g} tokens/s"
