"""A run by templates: as one page that opens from disk, as Markdown, and as JUnit XML, which CI systems read.

The page needs no network and no script. Foreign text is always escaped, and loses what is not printable.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from itertools import zip_longest
from pathlib import Path
from statistics import median
from typing import Any

from jinja2 import Environment, FileSystemLoader, Template
from markupsafe import Markup

from common.python.base import text
from common.python.base.results import PairResult, Summary
from common.python.corpus.targets import homes
from common.python.performance_targets import peak_text
from common.python.report import charts, markdown, rows
from common.python.report.artifacts import Run
from common.python.report.sources import sources
from common.python.report.tables import filled


def page(run: Run, root: Path, held: Mapping[str, str] | None = None) -> str:
    """The whole report. `root` is the checkout whose sources are shown, where they are still those of the run.

    `held` has the status of each pair that was held against an expectation, by key; None where nothing is expected.
    """
    pairs, about = run.summary.pairs, run.summary.manifest
    places = homes(root, about.targets)
    written = _template("report.html").render(
        run=run,
        pairs=pairs,
        places={result.key: f"pair-{number}" for number, result in enumerate(pairs, 1)},
        held=held,
        environment=about.model_dump_json(indent=1, exclude={"schema_version", "sources"}, exclude_none=True),
        sources=lambda result: sources(result, about.sources, places),
    )
    return re.sub(r"</mark>(\s+)<mark>", r"\1", written)  # marks with only empty lines between them are one


def pair_markdown(result: PairResult) -> str:
    """One pair as a file: verdict, the tables about its variants, and how it was measured."""
    return _template("pair.md").render(result=result)


def summary_markdown(summary: Summary) -> str:
    """The table of a run, with what it ran on and how it was started."""
    return _template("summary.md").render(summary=summary, about=summary.manifest) + "\n"


def history_page(name: str, series: Sequence[Any]) -> str:
    """The times of each series over runs, with its changes."""
    return _template("history.html").render(name=name, series=series)


def junit_xml(summary: Summary) -> str:
    """A test case a pair, failed where `run` would exit with 1: one that is slower or inconclusive is proven."""
    return _template("junit.xml").render(summary=summary, pairs=summary.pairs)


@cache
def _template(name: str) -> Template:
    """A file beside this one; its ending says how text in it is escaped."""
    place = FileSystemLoader(Path(__file__).parent)
    shown = _in_markdown if name.endswith(".md") else _shown
    environment = Environment(loader=place, autoescape=True, trim_blocks=True, lstrip_blocks=True, finalize=shown)
    environment.globals |= {"rows": rows, "text": text, "charts": charts, "markdown": markdown, "median": median}
    environment.globals |= {"cards": _cards, "kernels": _kernels, "filled": filled, "peak_text": peak_text}
    environment.filters["code"] = lambda source: Markup(escape(str(_shown(source)), quote=False))  # quotes as they are
    return environment.get_template(name)


def _shown(value: object) -> object:
    """Text line by line without characters that would turn its direction or move a cursor; Markup as it is."""
    if isinstance(value, Markup):
        return value
    return "\n".join(text.printable(line.expandtabs(4)) for line in str(value).split("\n"))


def _in_markdown(value: object) -> Markup:
    return value if isinstance(value, Markup) else Markup(markdown.escaped(str(value)))


def _cards(pairs: Sequence[PairResult]) -> dict[str, Any]:
    """Counts of verdicts and, of the headline variants whose numbers may be shown, what the medians are of."""
    known = [(result, row) for result in pairs if (row := result.headline) and result.trusted(row)]
    return {
        "counts": Counter(rows.rows(result)[0].verdict for result in pairs),
        "limits": [row.percent_of_limit for _, row in known if row.percent_of_limit is not None],
        "peers": [result.peer_ratio.ratio for result, _ in known if result.peer_ratio],
        "measured": [result for result, row in known if row.speedup],
    }


def _kernels(result: PairResult) -> list[tuple[str, ...]]:
    """The longest kernels (operators on a CPU) of one profiled step, baseline beside headline; the first line heads."""
    columns = []
    for row in (row for row in result.variants if row in (result.baseline, result.headline)):
        if (why := row.why) and why.top and result.trusted(row):
            counts = (why.operators, "operator") if why.kernels is None else (why.kernels, "kernel")
            busy = f", {rows.time_text(why.busy_us)} busy" if why.busy_us else ""
            columns.append([f"{row.label}: {text.counted(*counts)}{busy}", *map(text.clean, why.top)])
    return list(zip_longest(*columns, fillvalue="")) if len(columns) == 2 else []
