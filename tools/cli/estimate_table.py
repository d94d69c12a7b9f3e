"""An estimate as a small table in plain words: what is asked, the number, and what bounds it or how it comes about."""

from common.python.base.text import counted, text_table, wide_console
from common.python.estimate.estimate import USABLE, Estimate, Floor, Measured
from common.python.performance_targets import peak_text
from common.python.report.rows import time_text

PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
MARGIN = 0.05  # by which a measured step may beat a measured peak, as for the rates of pairs
COUNTED = (
    "Floors move each byte once and do each FLOP once, at these peaks. Launches, activations and the links between "
    "GPUs come on top: no real step is as fast."
)


def show(estimate: Estimate) -> None:
    """Print the table and, under it, where the peaks are from."""
    case, board = estimate.case, estimate.board
    title = (
        f"{case.model.name}: {case.weights} weights, {case.cache} cache, {case.arithmetic} arithmetic; "
        f"{counted(case.batch, 'sequence')} of {case.context} tokens on {counted(estimate.gpus, 'GPU')} ({board.name})"
    )
    sources = f"Peaks: {board.source}. Model: {case.model.source}.\n{COUNTED}"
    wide_console().print(text_table(("", "estimate", "because"), rows(estimate), title, sources))


def rows(estimate: Estimate) -> list[tuple[str, str, str]]:
    """The lines of the table."""
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


def bytes_text(value: float) -> str:
    """Four digits in the unit that suits: `16.06 GB`, `131.1 kB`, `960 B`."""
    scale, prefix = next((pair for pair in PREFIXES if value >= pair[0]), PREFIXES[-1])
    return f"{value / scale:.4g} {prefix}B"


def ms_text(ms: float) -> str:
    return time_text(1e3 * ms)


def rate_text(tokens_per_s: float) -> str:
    return f"{tokens_per_s:,.0f} tokens/s" if tokens_per_s >= 100 else f"{tokens_per_s:.3g} tokens/s"
