"""A plot of each experiment, as an SVG file that stands alone."""

import io
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from common.python.base.results import Model
from tools.selftest.aa import by_pair
from tools.selftest.models import Cheats, Drift, Others, Outcome, Sessions, Suites, Truth
from tools.selftest.rivals import table
from tools.selftest.sessions import contains
from tools.selftest.truth import by_share

RIGHT, WRONG = "#2b6cb0", "#c53030"
WIDTH = 8.0


def plot(found: Model) -> str:
    """The SVG of one experiment's result."""
    figure = PLOTS[type(found)](found)
    out = io.StringIO()
    FigureCanvasSVG(figure).print_svg(out, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    return out.getvalue()


def _figure(height: float, title: str, columns: int = 1) -> tuple[Figure, list[Any]]:
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.subplots(1, columns, squeeze=False)
    figure.suptitle(title, fontsize=11)
    return figure, list(axes[0])


def _intervals(axes: Any, outcomes: Sequence[Outcome]) -> None:
    """Every interval as a line about the truth, from the lowest ratio; those that miss it in red."""
    drawn = [outcome for outcome in outcomes if outcome.interval is not None]
    drawn.sort(key=lambda outcome: outcome.interval.ratio / outcome.truth if outcome.interval else 0.0)
    for y, outcome in enumerate(drawn):
        if outcome.interval is not None:
            ends = [outcome.interval.low / outcome.truth - 1, outcome.interval.high / outcome.truth - 1]
            axes.plot(ends, [y, y], color=RIGHT if contains(outcome) else WRONG, linewidth=1)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_yticks([])


def _aa(found: Sessions) -> Figure:
    groups = by_pair([outcome for session in found.sessions for outcome in session.outcomes])
    figure, [axes] = _figure(0.5 + 0.35 * max(len(groups), 2), "A/A: intervals of equal sides; red misses 1")
    for y, outcomes in enumerate(groups.values()):
        for shift, outcome in zip(np.linspace(-0.35, 0.35, len(outcomes)), outcomes):
            if outcome.interval is not None:
                ends = [outcome.interval.low - 1, outcome.interval.high - 1]
                axes.plot(ends, [y + shift] * 2, color=RIGHT if contains(outcome) else WRONG, linewidth=0.7)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(groups)), list(groups))
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    return figure


def _truth(found: Truth) -> Figure:
    groups = by_share([outcome for session in found.planted for outcome in session.outcomes])
    figure, axes = _figure(
        3.2, "Planted slowdowns: intervals about the truth; the spin kernel", max(len(groups), 1) + 1
    )
    for panel, (share, outcomes) in zip(axes, groups.items()):
        _intervals(panel, outcomes)
        panel.set_title(f"{share:.1%} planted", fontsize=9)
    for y, reading in enumerate(found.readings):
        errors = [read / reading.known_us - 1 for read in reading.read_us]
        axes[-1].plot(errors, [y] * len(errors), "|", color=RIGHT)
    axes[-1].set_yticks(range(len(found.readings)), [reading.label.split(" before")[0] for reading in found.readings])
    axes[-1].set_title("spin: error", fontsize=9)
    axes[-1].xaxis.set_major_formatter(PercentFormatter(1.0))
    return figure


def _drift(found: Drift) -> Figure:
    figure, axes = _figure(4.0, "Heated and rested in turn: the same samples read two ways", 2)
    told = [outcome for session in found.sessions for outcome in session.outcomes]
    for panel, outcomes, title in zip(axes, (told, found.apart), ("interleaved", "A, then B")):
        _intervals(panel, outcomes)
        panel.set_title(title, fontsize=9)
    return figure


def _others(found: Others) -> Figure:
    rows = table(found.timings)
    pairs, methods = list(dict.fromkeys(r.pair for r in rows)), list(dict.fromkeys(r.method for r in rows))
    figure, [axes] = _figure(0.9 + 0.4 * max(len(pairs), 2), "Ratios of equal sides, by method")
    for place, method in enumerate(methods):
        ratios = [(pairs.index(t.pair), t.ratio - 1) for t in found.timings if t.method == method]
        heights = [y + 0.15 * (place - (len(methods) - 1) / 2) for y, _ in ratios]
        axes.plot([ratio for _, ratio in ratios], heights, "|", label=method)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_xscale("symlog", linthresh=0.01)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_yticks(range(len(pairs)), pairs)
    if methods:
        axes.legend(fontsize=8)
    return figure


def _cheats(found: Cheats) -> Figure:
    figure, [axes] = _figure(2.0, "Cheats that were refused, honest variants that were accepted")
    for y, honest in enumerate((False, True)):
        rows = [row for row in found.rows if row.honest == honest]
        right = sum(row.refused != honest for row in rows)
        axes.barh(y, right, color=RIGHT)
        axes.barh(y, len(rows) - right, left=right, color=WRONG)
        axes.text(len(rows), y, f" {right} of {len(rows)}", va="center")
    axes.set_yticks([0, 1], ["cheats", "honest"])
    axes.margins(x=0.15)
    return figure


def _suites(found: Suites) -> Figure:
    figure, axes = _figure(3.6, "Seconds a pair by phase; speedups of each run about their median", 2)
    left = np.zeros(len(found.passes))
    phases = list(dict.fromkeys(phase for one in found.passes for phase in one.phases))
    for phase in phases:
        spent = np.array([one.phases.get(phase, 0.0) / max(len(one.pairs), 1) for one in found.passes])
        axes[0].barh(range(len(found.passes)), spent, left=left, label=phase)
        left = left + spent
    axes[0].set_yticks(range(len(found.passes)), [f"{one.budget_s:g} s budget" for one in found.passes])
    if phases:
        axes[0].legend(fontsize=7)
    keys = sorted({key for one in found.passes for key in one.speedups})
    for y, key in enumerate(keys):
        taken = [one.speedups[key] for one in found.passes if key in one.speedups]
        middle = median(interval.ratio for interval in taken)
        for shift, interval in zip(np.linspace(-0.3, 0.3, len(taken)), taken):
            axes[1].plot([interval.low / middle - 1, interval.high / middle - 1], [y + shift] * 2, color=RIGHT)
    axes[1].set_yticks(range(len(keys)), keys, fontsize=7)
    axes[1].xaxis.set_major_formatter(PercentFormatter(1.0))
    return figure


PLOTS: dict[type[Model], Callable[[Any], Figure]] = {
    Sessions: _aa,
    Truth: _truth,
    Drift: _drift,
    Others: _others,
    Cheats: _cheats,
    Suites: _suites,
}
