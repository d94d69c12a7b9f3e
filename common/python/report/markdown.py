"""Results as files that people keep: markdown for a pair, a suite and a chapter's README, and CSV for a spreadsheet."""

import csv
import io
import re
from collections.abc import Iterable, Sequence

from common.python.base.results import PairResult, Proof, Summary, VariantResult
from common.python.base.text import clean, printable
from common.python.performance_targets import peak_text
from common.python.report.rows import (
    COLUMNS,
    bytes_text,
    footers,
    gain_text,
    headline_spread,
    interval_text,
    on_cpu,
    rows,
    suite_title,
    time_text,
    trusted,
    verdict_text,
)

BEGIN = "<!-- results:begin -->"
END = "<!-- results:end -->"


def pair_markdown(result: PairResult) -> str:
    """All that a reader asks of one pair: verdict, times, proof, what explains the difference, how it was measured."""
    row = rows(result)[0]
    told = [part for part in (row.speedup, row.why) if part]
    parts = [f"# {escaped(result.key)}", f"**{row.verdict}**" + "".join(f", {escaped(part)}" for part in told)]
    if on_cpu(result):
        parts.append("**Measured on the CPU, not on a GPU.**")
    if result.variants:
        parts += ["## Times", _table(TIMES, [times_cells(result, variant) for variant in result.variants])]
        parts += ["## Proof", _table(PROOF, [proof_cells(variant) for variant in result.variants])]
    if metrics := metric_rows(result):
        parts += ["## Metrics", _table(METRICS, metrics)]
    if seen := speed_rows(result):
        parts += ["## Speed of light", SPEED_MEANS, _table(SPEED, seen)]
    facts = pair_facts(result)
    parts += ["## Measurement", "\n".join(f"- {escaped(fact)}" for fact in facts)] if facts else []
    if result.log:
        parts += ["## Log", "\n".join(f"    {printable(line)}" for line in result.log.splitlines())]
    return "\n\n".join(parts) + "\n"


TIMES = ("variant", "idea", "verdict", "gain", "median", "q1", "q3", "p99", "n", "% of limit", "rate", "prepare")


def times_cells(result: PairResult, variant: VariantResult) -> list[str]:
    named = [variant.label, variant.sentence, verdict_text(result, variant)]
    spread = headline_spread(result, variant)
    if not trusted(result, variant) or spread is None:
        return [*named, variant.reason or ""]
    return [
        *named,
        gain_text(result, variant),
        *(time_text(us) for us in (spread.median, spread.q1, spread.q3, spread.p99)),
        str(spread.n),
        "" if variant.percent_of_limit is None else f"{variant.percent_of_limit:.1f}%",
        ", ".join(f"{value:.4g} {unit}" for unit, value in variant.rates.items()),
        "" if variant.prepare_s is None else f"{variant.prepare_s:.2f} s",
    ]


PROOF = ("variant", "comparisons", "largest error", "refused because")


def proof_cells(variant: VariantResult) -> list[str]:
    errors = [proof.error for proof in variant.proofs if proof.error is not None]
    refused = "; ".join(_refusal(proof) for proof in variant.proofs if proof.reason)
    return [variant.label, str(len(variant.proofs)), f"{max(errors):.2e}" if errors else "", refused]


METRICS = ("variant", "what it tells of itself")


def metric_rows(result: PairResult) -> list[list[str]]:
    """What each trusted variant reports beside its time, by name and unit."""
    known = [(row.label, row.why.metrics) for row in result.variants if row.why and trusted(result, row)]
    return [[label, ", ".join(f"{name} {value:.4g}" for name, value in told.items())] for label, told in known if told]


SPEED = ("variant", "DRAM", "SM", "occupancy", "read", "written", "kernels", "their time")
SPEED_MEANS = (
    "By ncu, of one step: each kernel alone, with flushed caches; percentages are of the GPU's peaks, means by the "
    "kernels' times."
)


def speed_rows(result: PairResult) -> list[list[str]]:
    """What ncu measured of each trusted variant."""
    known = [(row.label, row.speed_of_light) for row in result.variants if trusted(result, row)]
    return [
        [
            label,
            *(f"{percent:.1f}%" for percent in (seen.dram_percent, seen.sm_percent, seen.occupancy_percent)),
            *(bytes_text(count) for count in (seen.read_bytes, seen.written_bytes)),
            str(seen.kernels),
            time_text(seen.kernel_us),
        ]
        for label, seen in known
        if seen
    ]


def _refusal(proof: Proof) -> str:
    return f"{proof.reason} ({proof.size}, {proof.when})"


def pair_facts(result: PairResult) -> list[str]:
    shape = " ".join(f"{name}={value}" for name, value in result.shape.items())
    facts = [
        result.device and f"device: {result.device}",
        result.size and f"size: {result.size} {shape}",
        result.clock and f"clock: {result.clock}",
        result.tolerance is not None and f"tolerance: {result.tolerance:g} normwise against float64",
        result.limit
        and f"limit: {time_text(result.limit.us)} by {result.limit.resource}, "
        f"{peak_text(result.limit.resource, result.limit.peak)} ({result.limit.source})",
        result.control and f"control, the baseline against itself: {interval_text(result.control)}",
        result.verdict != "invalid"
        and result.peer_ratio
        and f"peer {result.best_peer}: {interval_text(result.peer_ratio)}, its time over the optimized one's",
        result.floor_us and f"floor: an empty step takes {time_text(result.floor_us)}",
        result.discarded_blocks and f"blocks discarded: {result.discarded_blocks}",
        result.seconds and "seconds: " + ", ".join(f"{phase} {s:.2f}" for phase, s in result.seconds.items()),
        result.seed is not None and f"seed: {result.seed}",
        *result.notes,
    ]
    return [fact for fact in facts if fact]


def summary_markdown(summary: Summary) -> str:
    """The table of a run, with what it ran on and how it was started."""
    manifest = summary.manifest
    dirty = " with uncommitted changes" if manifest.git_dirty else ""
    driver = f", driver {manifest.machine.driver}" if manifest.machine.driver else ""
    versions = ", ".join(f"{name} {version}" for name, version in manifest.versions.items() if version)
    facts = [
        f"started {manifest.started}, took {summary.seconds:.0f} s",
        f"command: {' '.join(manifest.command)}",
        f"GPU: {', '.join(gpu.name for gpu in manifest.machine.gpus) or 'none'}{driver}",
        f"CPU: {manifest.machine.cpu}, {manifest.machine.cores} cores",
        f"versions: {versions}",
        f"commit: {manifest.git_commit or 'unknown'}{dirty}",
    ]
    parts = ["# Benchmark results", "\n".join(f"- {escaped(fact)}" for fact in facts)]
    if not summary.complete:
        parts.append("**Incomplete: the run stopped before its last pair.**")
    return "\n\n".join([*parts, escaped(suite_title(summary.pairs)), _suite(summary.pairs)]) + "\n"


def chapter_table(results: Sequence[PairResult], commit: str | None = None, mechanisms: bool = False) -> str:
    """The table of a chapter's README: a figure in prose names its GPU, and its commit where that is known.

    With `mechanisms`, each line says what its variant does, in the variant's own first sentence.
    """
    measured = sorted({clean(result.device) for result in results if result.device})
    at = f", commit {commit}" if commit else ""
    loud = " These are times of a CPU, not of a GPU." * any(map(on_cpu, results))
    origin = escaped(f"Measured on {', '.join(measured)}{at}.{loud}") if measured else "Not measured yet."
    return f"{_suite(results, mechanisms)}\n\n{origin}"


def _suite(results: Sequence[PairResult], mechanisms: bool = False) -> str:
    first, *others = COLUMNS
    lines = []
    for row in (row for result in results for row in rows(result)):
        name, *cells = (escaped(cell) for cell in row.cells())
        lines.append(["&nbsp;&nbsp;" * row.rung + name, *[escaped(row.mechanism)] * mechanisms, *cells])
    notes = "\n".join(f"- {escaped(line)}" for line in footers(results))
    table = _escaped_table((first, *["mechanism"] * mechanisms, *others), lines)
    return "\n\n".join(filter(None, (table, notes)))


def replace_between_markers(text: str, table: str, begin: str = BEGIN, end: str = END) -> str:
    """The text with the table between its markers in place of what stood there; ValueError if it has not one pair."""
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ValueError(f"the text must hold {begin} and, after it, {end}, once each")
    before, rest = text.split(begin)
    return f"{before}{begin}\n{table.strip()}\n{end}{rest.split(end)[1]}"


# What would begin a heading, a list, a quotation or a rule where it is the first on a line.
BLOCK = re.compile(r"^(\d{1,9}(?=[.)](?:\s|$))|(?=#{1,6}(?:\s|$)|[+-](?:\s|$)|>|[-=]+\s*$))")


def escaped(text: str) -> str:
    """Foreign text as one line that GitHub shows as it is: no cell, tag, link, list, emphasis or formula of its own."""
    shown = re.sub(r"([\\`*\[\]|~])", r"\\\1", clean(text).replace("&", "&amp;").replace("<", "&lt;"))
    shown = re.sub(r"(?<!\w)_+|_+(?!\w)", lambda edge: edge[0].replace("_", r"\_"), shown)  # inside a word it is itself
    return BLOCK.sub(r"\1\\", shown).replace("$", "<span>$</span>")  # a formula stands between dollars, escaped or not


def _table(columns: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    return _escaped_table(columns, [[escaped(cell) for cell in line] for line in lines])


def _escaped_table(columns: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    padded = [[*line, *[""] * (len(columns) - len(line))] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in [list(columns), ["---"] * len(columns), *padded])


def summary_csv(summary: Summary) -> str:
    """A line for each variant of each pair (a pair without variants has one line), for spreadsheets and scripts."""
    lines: list[dict[str, object]] = []
    for pair in summary.pairs:
        fields = _pair_fields(pair)
        lines += [fields | _variant_fields(pair, variant) for variant in pair.variants] or [fields]
    out = io.StringIO()
    writer = csv.DictWriter(out, FIELDS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return out.getvalue()


SPREAD = ("n", "mean", "std", "median", "q1", "q3", "p95", "p99", "outliers")
FIELDS = (
    *("chapter", "pair", "device", "size", "clock", "variant", "role", "label", "status", "verdict", "reason"),
    *("speedup", "speedup_low", "speedup_high", "rounds", "memory_ratio", "percent_of_limit", "limit_us", "limit_by"),
    *("peer", "peer_ratio", "kernels", "syncs", "copied_bytes", "peak_bytes", "prepare_s", "first_call_s"),
    *(f"{clock}_{name}" for clock in ("device", "wall") for name in SPREAD),
)


def _pair_fields(pair: PairResult) -> dict[str, object]:
    return {
        "chapter": pair.chapter,
        "pair": pair.name,
        "device": pair.device,
        "size": pair.size,
        "clock": pair.clock,
        "status": pair.status,
        "verdict": verdict_text(pair, pair),
        "reason": clean(pair.reason or ""),
        "limit_us": pair.limit and pair.limit.us,
        "limit_by": pair.limit and pair.limit.resource,
        "peer": pair.best_peer,
        "peer_ratio": pair.peer_ratio.ratio if pair.peer_ratio and pair.verdict != "invalid" else None,
    }


def _variant_fields(pair: PairResult, variant: VariantResult) -> dict[str, object]:
    named: dict[str, object] = {
        "variant": variant.name,
        "role": variant.role,
        "label": variant.label,
        "status": variant.status,
        "verdict": verdict_text(pair, variant),
        "reason": clean(variant.reason or pair.reason or ""),
    }
    if not trusted(pair, variant):
        return named
    speedup = variant.speedup
    spreads = {"device": variant.device, "wall": variant.wall}
    times = {f"{clock}_{n}": getattr(spread, n) for clock, spread in spreads.items() if spread for n in SPREAD}
    gained = {
        "speedup": speedup and speedup.ratio,
        "speedup_low": speedup and speedup.low,
        "speedup_high": speedup and speedup.high,
        "rounds": speedup and speedup.rounds,
        "memory_ratio": variant.memory_ratio,
        "percent_of_limit": variant.percent_of_limit,
        "prepare_s": variant.prepare_s,
        "first_call_s": variant.first_call_s,
    }
    why = variant.why.model_dump(include={"kernels", "syncs", "copied_bytes", "peak_bytes"}) if variant.why else {}
    return named | gained | why | times
