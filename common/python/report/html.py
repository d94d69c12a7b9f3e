"""A run as one page that opens from disk: no network, no script, nothing that foreign text could turn into either."""

from pathlib import Path
from statistics import median

from common.python.base.results import Manifest, PairResult, Summary, VariantResult
from common.python.base.text import clean
from common.python.performance_targets import Peaks, peak_text
from common.python.report.artifacts import Run
from common.python.report.charts import gain_chart, on_roofline, roofline_chart, sample_chart
from common.python.report.markdown import (
    METRICS,
    PROOF,
    SPEED,
    SPEED_MEANS,
    TIMES,
    metric_rows,
    pair_facts,
    proof_cells,
    speed_rows,
    times_cells,
)
from common.python.report.markup import PALETTE, Inside, Markup, bullets, escaped, folded, table, tag
from common.python.report.rows import COLUMNS, bytes_text, footers, on_cpu, rows, suite_title, time_text, trusted
from common.python.report.source_diff import sources_section

# A second lock on the door: even if some text became markup, no browser would run or fetch anything for it.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
STYLE = """
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 80rem; padding: 1rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; font-variant-numeric: tabular-nums; -webkit-text-size-adjust: 100%; }
h1, h2, h3, h4 { line-height: 1.25; margin: 1.5em 0 0.5em; overflow-wrap: anywhere; }
h4 { font-weight: 600; margin: 0.5em 0; }
p, li, summary { overflow-wrap: anywhere; }
a { color: var(--peer); }
.lead { font-size: 1.15rem; }
.loud { font-size: 1.15rem; font-weight: 700; padding: 0.6rem 0.8rem; color: #fff; background: #b3141f; }
.note, figcaption, .small { font-size: 0.875rem; opacity: 0.85; }
.scroll, figure { overflow-x: auto; }
figure { margin: 1rem 0; }
svg { display: block; width: 100%; max-width: 54rem; min-width: 30rem; height: auto; }
svg text { font-family: system-ui, sans-serif !important; }
table { border-collapse: collapse; font-size: 0.875rem; }
th, td { padding: 0.3rem 0.6rem; text-align: left; vertical-align: top; white-space: nowrap;
  border-bottom: 1px solid var(--faint); }
td.words { white-space: normal; min-width: 16rem; max-width: 40rem; overflow-wrap: anywhere; }
.rung { padding-left: 1rem; }
.faster, .smaller { color: var(--good); }
.same, .inconclusive, .noisy { color: var(--fair); }
.slower, .larger, .invalid, .failed { color: var(--bad); font-weight: 700; }
.sides { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 28rem), 1fr)); gap: 1rem; }
.sides > div { min-width: 0; }
pre { margin: 0; padding: 0.6rem; overflow-x: auto; background: var(--raised);
  font: 0.8rem/1.45 ui-monospace, monospace; tab-size: 4; }
mark { background: var(--mark); color: inherit; }
summary { cursor: pointer; padding: 0.35rem 0; color: var(--peer); }
section.pair { border-top: 1px solid var(--faint); margin-top: 2rem; }
"""


def page(run: Run, root: Path) -> str:
    """The whole report. `root` is the checkout whose sources are shown, where they are still those of the run."""
    summary = run.summary
    name = f"Benchmark report, {', '.join(_devices(summary)) or summary.manifest.machine.hostname}"
    head = [
        Markup('<meta charset="utf-8">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{escaped(POLICY)}">'),
        tag("title", name),
        Markup(f"<style>{PALETTE}{STYLE}</style>"),
    ]
    pages = [_pair(index, result, summary.manifest, root) for index, result in enumerate(summary.pairs)]
    body = [*_headline(summary), *_charts(run), *_environment(run), *pages]
    document = tag("html", tag("head", *head), tag("body", tag("main", *body)), lang="en")
    return f"<!DOCTYPE html>\n{document.text}\n"


def _devices(summary: Summary) -> list[str]:
    return sorted({clean(result.device) for result in summary.pairs if result.device})


def _headline(summary: Summary) -> list[Markup]:
    """Machine, date, counts by verdict, and the table that a terminal shows, each pair linked to its section."""
    machine, loud = summary.manifest.machine, any(map(on_cpu, summary.pairs))
    gpus = ", ".join(gpu.name for gpu in machine.gpus) or "no GPU"
    lines: list[list[Inside]] = []
    for index, result in enumerate(summary.pairs):
        for row in rows(result):
            first = tag("span", row.pair, class_="rung") if row.rung else tag("a", row.pair, href=f"#pair-{index}")
            lines.append([first, _verdict(row.verdict), *row.cells()[2:]])
    parts = [
        tag("h1", "Benchmark report"),
        tag("p", suite_title(summary.pairs), class_="loud" if loud else "lead"),
        tag(
            "p", f"{machine.hostname}: {gpus}, {machine.cpu}; {summary.manifest.started}, took {summary.seconds:.0f} s"
        ),
    ]
    if not summary.complete:
        parts.append(tag("p", "Incomplete: the run stopped before its last pair.", class_="loud"))
    notes = bullets(footers(summary.pairs)) if summary.pairs else tag("p", "No pair was run.")
    return [*parts, tag("h2", "Results"), table(COLUMNS, lines), tag("div", notes, class_="small")]


def _verdict(verdict: str) -> Markup:
    return tag("span", verdict, class_=verdict)


def _charts(run: Run) -> list[Markup]:
    """What a suite looks like: gains, and the roofline of a GPU whose peaks are known."""
    pairs, parts = run.summary.pairs, []
    if any(trusted(result, variant) and variant.speedup for result in pairs for variant in result.variants):
        how = (
            "Large: the variant that speaks for the pair, with the 95% interval of its speedup (a diamond where memory "
            "is the goal: how much less it holds). Small: further rungs. Hollow squares: peers. The baseline is 1x."
        )
        parts += [tag("h2", "Gains"), _figure(gain_chart(pairs), how)]
    chart = roofline_chart(pairs, run.peaks) if run.peaks else None
    if chart is not None and run.peaks is not None:
        missing = [clean(result.key) for result in pairs if not on_roofline(result, run.peaks)]
        how = (
            f"Peaks: {clean(run.peaks.source)}. Hollow circles: baselines; arrows lead to the variant that speaks for "
            "the pair; small: further rungs; hollow squares: peers. FLOPs and bytes are the least that a problem "
            "needs. A name that finds no room is left out."
        )
        absent = f" Not shown, for want of FLOPs, bytes, a peak or a time: {', '.join(missing)}." if missing else ""
        parts += [tag("h2", "Roofline"), _figure(chart, how + absent)]
    return parts


def _figure(chart: Markup, caption: str) -> Markup:
    return tag("figure", chart, tag("figcaption", caption))


def _environment(run: Run) -> list[Markup]:
    """All that the results depend on, as the manifest has it."""
    about = run.summary.manifest
    machine = about.machine
    facts: list[tuple[str, str]] = [
        ("started", f"{about.started}, finished {run.summary.finished}"),
        ("command", " ".join(about.command)),
        ("commit", f"{about.git_commit or 'unknown'}{' with uncommitted changes' * bool(about.git_dirty)}"),
        ("host", f"{machine.hostname}, {machine.system}"),
        ("CPU", f"{machine.cpu}, {machine.cores} cores, {machine.numa_nodes} NUMA nodes, {machine.memory_gib:.0f} GiB"),
    ]
    for gpu in machine.gpus:
        limits = [
            f"{value:.0f} {unit}"
            for value, unit in (
                (gpu.power_limit_w, "W power limit"),
                (gpu.max_sm_mhz, "MHz SM at most"),
                (gpu.max_memory_mhz, "MHz memory at most"),
            )
            if value is not None
        ]
        facts.append(("GPU", ", ".join([gpu.name, f"sm_{gpu.sm}", f"{gpu.memory_gib:.0f} GiB", *limits, gpu.uuid])))
    known = {
        "driver": machine.driver,
        "CUDA of the driver": machine.cuda_driver,
        "peaks": run.peaks and f"{run.peaks.source}: {_peaks(run.peaks)}",
        "seed": about.seed,
        **about.versions,
        **{f"option {name}": value for name, value in about.options.items()},
        **{f"${name}": value for name, value in about.environment.items()},
    }
    facts += [(name, str(value)) for name, value in known.items() if value is not None and value is not False]
    return [tag("h2", "Environment"), table(("what", "as it was"), facts)]


def _peaks(peaks: Peaks) -> str:
    return ", ".join(f"{resource} {peak_text(resource, value)}" for resource, value in peaks.values.items())


def _pair(index: int, result: PairResult, about: Manifest, root: Path) -> Markup:
    """A pair's own part of the page."""
    lead = rows(result)[0]
    told = ", ".join(filter(None, (lead.speedup, lead.why)))
    loud = on_cpu(result) and result.status == "measured"
    parts = [
        tag("h2", lead.pair, " ", _verdict(lead.verdict)),
        *([tag("p", told, class_="lead")] if told else []),
        *([tag("p", "Measured on the CPU, not on a GPU.", class_="loud")] if loud else []),
        *([table(TIMES, [times_cells(result, variant) for variant in result.variants])] if result.variants else []),
    ]
    if (chart := sample_chart(result)) is not None:
        how = "Samples about each variant's median; the line over the baseline is the control, prepared from it again."
        parts.append(_figure(chart, how))
    if explained := [_why(variant) for variant in result.variants if variant.why and trusted(result, variant)]:
        parts += [tag("h3", "Why"), table(WHY, explained)]
    if metrics := metric_rows(result):
        parts += [tag("h3", "Metrics"), table(METRICS, metrics)]
    if seen := speed_rows(result):
        parts += [tag("h3", "Speed of light"), tag("p", SPEED_MEANS), table(SPEED, seen)]
    if facts := [*pair_facts(result), *_clocks(result)]:
        parts += [tag("h3", "Measurement"), bullets(facts)]
    if result.variants:
        parts.append(folded("Proofs", table(PROOF, [proof_cells(variant) for variant in result.variants])))
    parts.append(sources_section(result, about.sources, root))
    if result.log:
        parts.append(folded("Log of the workers", tag("pre", result.log, tabindex="0")))
    return tag("section", *parts, id=f"pair-{index}", class_="pair")


WHY = ("variant", "kernels", "operators", "syncs", "copied", "device busy", "peak memory", "longest")


def _why(variant: VariantResult) -> list[str]:
    why = variant.why
    if why is None:
        return [variant.label]
    return [
        variant.label,
        "" if why.kernels is None else str(why.kernels),
        str(why.operators),
        str(why.syncs),
        bytes_text(why.copied_bytes),
        "" if why.busy_us is None else time_text(why.busy_us),
        "" if why.peak_bytes is None else bytes_text(why.peak_bytes),
        "; ".join(clean(name) for name in why.top),
    ]


def _clocks(result: PairResult) -> list[str]:
    """The GPU's state while samples were taken, as medians over the blocks."""
    seen = [block.telemetry for block in result.blocks if block.telemetry]
    states = {
        "MHz SM": [state.sm_mhz for state in seen],
        "MHz memory": [state.memory_mhz for state in seen],
        "W": [state.power_w for state in seen],
        "C": [state.temperature_c for state in seen],
    }
    known = {unit: [value for value in values if value is not None] for unit, values in states.items()}
    shown = [f"{median(values):.0f} {unit}" for unit, values in known.items() if values]
    return [f"GPU while sampling, medians over {len(seen)} blocks: {', '.join(shown)}"] if shown else []
