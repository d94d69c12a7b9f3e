"""A run as one page that opens from disk: no network, no script, and foreign text is always escaped."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby, zip_longest
from pathlib import Path
from statistics import median
from typing import Any

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup

from common.python.base.results import PairResult, VariantResult
from common.python.base.text import clean, counted, printable
from common.python.corpus.targets import homes
from common.python.performance_targets import peak_text
from common.python.report.artifacts import Run
from common.python.report.charts import (
    PALETTE,
    gain_chart,
    ladder_chart,
    on_roofline,
    ranked_chart,
    roofline_chart,
    sample_chart,
)
from common.python.report.markdown import pair_facts, sections
from common.python.report.rows import COLUMNS, footers, ratio_text, rows, suite_title, time_text
from common.python.report.sources import Lines, sources

NAMED_GAINS = 24  # pairs whose names a chart of gains has room for on the first screen


def page(run: Run, root: Path, held: Mapping[str, str] | None = None) -> str:
    """The whole report. `root` is the checkout whose sources are shown, where they are still those of the run.

    `held` has the status of each pair that was held against an expectation, by key; None where nothing is expected.
    """
    pairs, about = run.summary.pairs, run.summary.manifest
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    measured = [result for result, row in _headlines(pairs) if row.speedup]
    chart = gain_chart if len(measured) <= NAMED_GAINS else ranked_chart
    places = {result.key: f"pair-{number}" for number, result in enumerate(pairs, 1)}
    return environment.get_template("report.html").render(
        palette=Markup(PALETTE),
        summary=run.summary,
        about=about,
        machine=about.machine,
        devices=sorted({result.device for result in pairs if result.device}),
        title=suite_title(pairs),
        chapters=[(name, list(own)) for name, own in groupby(pairs, key=lambda result: result.chapter)],
        places=places,
        cards=lambda results: _cards(results, held),
        counted=counted,
        columns=COLUMNS,
        rows=rows,
        loud=any(result.on_cpu for result in pairs),
        footers=footers(pairs),
        gains=chart(measured) if measured else None,
        ranked=chart is ranked_chart,
        roofline=roofline_chart(pairs, run.peaks) if run.peaks else None,
        peaks=run.peaks,
        peak_text=peak_text,
        off_roofline=[result.key for result in pairs if not on_roofline(result, run.peaks)],
        facts=_facts("", about.model_dump(mode="json", exclude={"schema_version", "sources"})),
        sections=sections,
        pair_facts=pair_facts,
        ladder_chart=ladder_chart,
        sample_chart=sample_chart,
        kernels=_kernels,
        code=_code,
        sources=lambda result: sources(result, about.sources, homes(root, about.targets)),
    )


def _headlines(pairs: Sequence[PairResult]) -> list[tuple[PairResult, VariantResult]]:
    """The headline variant of each pair whose numbers may be shown."""
    return [(result, row) for result in pairs if (row := result.headline) and result.trusted(row)]


def _cards(pairs: Sequence[PairResult], held: Mapping[str, str] | None) -> dict[str, Any]:
    """What the first screen says of a run: counts of verdicts, medians over the headlines, and what regressed."""
    headlines = _headlines(pairs)
    return {
        "counts": Counter(rows(result)[0].verdict for result in pairs),
        "limit": _median([row.percent_of_limit for _, row in headlines], lambda share: f"{share:.0f}%"),
        "peers": _median([peer.ratio for result, _ in headlines if (peer := result.peer_ratio)], ratio_text),
        "held": held,
        "regressed": [result.key for result in pairs if (held or {}).get(result.key) == "regressed"],
    }


def _median(values: Sequence[float | None], shown: Callable[[float], str]) -> tuple[str, int]:
    """The median of the values that are known, in words, and how many there are; empty for none."""
    known = [value for value in values if value is not None]
    return (shown(median(known)), len(known)) if known else ("", 0)


def _kernels(result: PairResult) -> tuple[list[str], list[tuple[str, ...]]]:
    """The longest kernels (operators on a CPU) of one profiled step, baseline beside headline: two heads, and lines."""
    own = result.headline
    sides = [row for row in result.variants if row.role == "baseline" or row is own]
    known = [(row, row.why) for row in sides if row.why and row.why.top and result.trusted(row)]
    if len(known) != 2:
        return [], []
    heads = []
    for row, why in known:
        count = counted(why.operators, "operator") if why.kernels is None else counted(why.kernels, "kernel")
        busy = f", {time_text(why.busy_us)} busy" if why.busy_us else ""
        heads.append(f"{row.label}: {count}{busy}")
    return heads, list(zip_longest(*(map(clean, why.top) for _, why in known), fillvalue=""))


def _code(lines: Lines) -> Markup:
    """Lines of a source, those marked that the file beside it lacks. Quotes stay as they are: it is no attribute."""
    parts = []
    for marked, own in groupby(lines, key=lambda line: line[1]):
        text = str(_shown("\n".join(line for line, _ in own)))
        text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        parts.append(f"<mark>{text}</mark>" if marked else text)
    return Markup("\n".join(parts))


def _shown(value: object) -> object:
    """Text line by line without characters that would turn its direction or move a cursor; Markup as it is."""
    if isinstance(value, Markup):
        return value
    return "\n".join(printable(line.expandtabs(4)) for line in str(value).split("\n"))


def _facts(name: str, value: object) -> list[tuple[str, object]]:
    """What the manifest holds, a line for each value: `machine.gpus.0.name`, `versions.torch`; null is left out."""
    if isinstance(value, dict):
        return [fact for key, inner in value.items() for fact in _facts(f"{name}.{key}".lstrip("."), inner)]
    if isinstance(value, list) and any(isinstance(inner, dict) for inner in value):
        return _facts(name, dict(enumerate(value)))
    if isinstance(value, list):
        value = " ".join(map(str, value))
    if isinstance(value, bool):
        value = "yes" if value else "no"
    return [] if value is None else [(name, value)]
