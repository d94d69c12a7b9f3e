"""The charts of a report, as SVG inside its page: a suite's gains, its roofline, and the samples of a pair.

Colours are the page's own: matplotlib is given stand-ins that become CSS variables, so that a chart follows its page
into the dark. Text stays text, which can be found, copied and read aloud. Samples are drawn as histograms: they stay
small. Names are cut to what fits and are never parsed: a dollar sign in one is a dollar sign.
"""

import io
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from matplotlib.transforms import IdentityTransform

from common.python.base.results import CONTROL, Interval, PairResult, VariantResult
from common.python.base.text import clean
from common.python.performance_targets import Peaks, peak_text
from common.python.report.markup import Markup, escaped
from common.python.report.rows import headline_spread, rows, time_text, trusted
from common.python.stats.verdict import headline_row, times

INK, FAINT, GOOD, FAIR, BAD, PEER = STAND_INS = [f"#00000{index}" for index in range(1, 7)]
CSS = dict(zip(STAND_INS, ["currentColor", *(f"var(--{name})" for name in ("faint", "good", "fair", "bad", "peer"))]))
COLOURS = {"faster": GOOD, "smaller": GOOD} | dict.fromkeys(("slower", "larger", "invalid", "failed"), BAD)
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "figure.dpi": 72,  # as SVG counts: a pixel is a point
    "font.family": "DejaVu Sans",  # comes with matplotlib; the page sets its own
    "font.size": 9,
    "text.parse_math": False,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "grid.color": FAINT,
    "grid.linewidth": 0.4,
}
WIDTH, RIGHT = 6.6, 1.35  # inches: the whole chart, and the words right of its axes
LETTERS, LETTER = 32, 0.075  # of a name, and inches that one takes
GAINS = (1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 0.2, 0.5, 0.8, 1, 1.25, 2, 5, 10, 20, 50, 100, 1e3, 1e4, 1e5, 1e6)  # ticks
ROOFLINE = (8.8, 6.4)  # inches: it has many names
NAME_HEIGHT = 12  # points from the name of one roof to the next
SAME_ROOF = 1.01  # roofs that differ by less share a name
MOST_BINS = 48
REACH = 3.0  # interquartile ranges beyond the quartiles that are drawn; what lies further out is counted


def gain_chart(results: Sequence[PairResult]) -> Markup:
    """A line a pair on a log axis: its gain with the interval, its further rungs small, its peers hollow."""
    with matplotlib.rc_context(STYLE):
        figure, axes = _canvas([name_text(result.key) for result in results], 0.24)
        axes.set_xscale("log")
        axes.axvline(1, color=INK, linewidth=0.8)
        reach = [0.8, 1.25]
        for y, result in enumerate(results):
            shown = rows(result)[0]
            axes.text(1.02, y, shown.speedup.split(" [")[0] or shown.verdict, transform=axes.get_yaxis_transform(),
                      va="center", color=COLOURS.get(shown.verdict, INK))  # fmt: skip
            own = headline_row(result)
            for variant in (variant for variant in result.variants if trusted(result, variant)):
                reach += _gain(axes, y, result, variant, variant is own)
        axes.set_xlim(min(reach) / 1.1, max(reach) * 1.1)
        _gain_ticks(axes)
        return as_svg(figure, "gains", "Gain of each pair over its baseline, with its interval")


def _gain(axes: Any, y: float, result: PairResult, variant: VariantResult, leads: bool) -> list[float]:
    """Draw the gain of a variant; the gains that the axis must reach."""
    memory = result.goal == "memory" and variant.role != "peer"
    found = variant.speedup
    if memory:
        ratio = variant.memory_ratio
        found = None if ratio is None else Interval(ratio=ratio, low=ratio, high=ratio, rounds=1)
    if found is None or not all(math.isfinite(value) and value > 0 for value in (found.ratio, found.low, found.high)):
        return []
    colour = PEER if variant.role == "peer" else COLOURS.get(variant.verdict or "", FAIR)
    if variant.role == "peer":
        axes.plot(found.ratio, y, "s", markersize=4.5, markerfacecolor="none", markeredgecolor=colour)
    elif not leads:
        axes.plot(found.ratio, y, "o", markersize=2.5, color=colour)
    else:
        axes.plot([found.low, found.high], [y, y], color=colour, linewidth=2, solid_capstyle="butt")
        axes.plot(found.ratio, y, "D" if memory else "o", markersize=5, color=colour)
    return [found.ratio, *((found.low, found.high) if leads else ())]


def _gain_ticks(axes: Any) -> None:
    low, high = axes.get_xlim()
    inside = [tick for tick in GAINS if low <= tick <= high]
    spread_out = [tick for tick in inside if tick == 1 or abs(math.log(tick)) > math.log(high / low) / 9]
    ticks = spread_out if len(spread_out) <= 9 else [t for t in spread_out if math.log10(t) % 1 == 0]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))


def roofline_chart(results: Sequence[PairResult], peaks: Peaks) -> Markup | None:
    """FLOP/s over FLOPs a byte under this machine's roofs; an arrow goes from each baseline to its headline variant.

    None if no pair has both flops and hbm_bytes with peaks that are known.
    """
    shown = [result for result in results if on_roofline(result, peaks)]
    if not shown:
        return None
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=ROOFLINE)
        axes = figure.add_axes((0.08, 0.09, 0.76, 0.89))  # the roofs' names stand on the right of them
        axes.set_xscale("log")
        axes.set_yscale("log")
        heights = [height for result in shown for height in _points(axes, result)]
        intensities = [_intensity(result) for result in shown]
        roofs = {result.cost.dtype: peaks.values[result.cost.dtype] for result in shown if result.cost}
        hbm = peaks.values["hbm"]
        ridges = [roof / hbm for roof in roofs.values()]
        low, high = min(intensities + ridges) / 4, max(intensities + ridges) * 6
        for roof in roofs.values():
            axes.plot([low, roof / hbm, high], [low * hbm, roof, roof], color=INK, linewidth=1)
        axes.set_xlim(low, high)
        axes.set_ylim(min([*heights, low * hbm]) / 2, max([*heights, *roofs.values()]) * 8)
        axes.set_xlabel("FLOPs for each byte that the problem must move")
        axes.set_ylabel("TFLOP/s")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1e12:g}"))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        _name_roofs(axes, roofs)
        slope = max(ridges) / 5, max(ridges) / 5 * hbm
        _name_points(axes, [(f"HBM {peak_text('hbm', hbm)}", slope)])
        alike = Counter(result.name for result in shown)
        keys = [result.name if alike[result.name] == 1 else result.key for result in shown]
        _name_points(axes, [(name_text(key), _headline_point(one)) for key, one in zip(keys, shown)], fontsize=8)
        return as_svg(figure, "roofline", "Roofline: each variant under the peaks of this machine")


def _name_points(axes: Any, names: Sequence[tuple[str, tuple[float, float]]], **look: Any) -> None:
    """Write each name beside its point, in the first place where it covers no other name; else leave it out."""
    taken: list[Any] = []
    for name, point in names:
        for x, y, align in ((6, 0, "left"), (-6, 0, "right"), (6, 9, "left"), (6, -9, "left"), (-6, 9, "right")):
            text = axes.annotate(
                name, point, (x, y), textcoords="offset pixels", ha=align, va="center", annotation_clip=False, **look
            )
            box = text.get_window_extent()
            if not any(box.overlaps(other) for other in taken):
                taken.append(box)
                break
            text.remove()


def on_roofline(result: PairResult, peaks: Peaks | None) -> bool:
    """Whether a pair has a place there: flops and bytes of its problem, a roof for them, and a time that holds."""
    cost = result.cost
    known = peaks is not None and cost is not None and {"hbm", cost.dtype} <= set(peaks.values)
    worked = cost is not None and cost.flops > 0 and cost.hbm > 0
    return known and worked and any(_rate(result, variant) for variant in result.variants)


def _rate(result: PairResult, variant: VariantResult) -> float | None:
    """FLOP/s of a variant whose time may be shown."""
    spread = headline_spread(result, variant)
    if not trusted(result, variant) or spread is None or spread.median <= 0 or result.cost is None:
        return None
    return result.cost.flops / (spread.median * 1e-6)


def _intensity(result: PairResult) -> float:
    return result.cost.flops / result.cost.hbm if result.cost else 0.0


def _points(axes: Any, result: PairResult) -> list[float]:
    """Draw the variants of a pair, all at the intensity of its problem; their heights."""
    x, own = _intensity(result), headline_row(result)
    heights = {id(variant): rate for variant in result.variants if (rate := _rate(result, variant))}
    for variant in (variant for variant in result.variants if id(variant) in heights):
        y, verdict = heights[id(variant)], COLOURS.get(variant.verdict or "", FAIR)
        if variant.role == "baseline":
            axes.plot(x, y, "o", markersize=5, markerfacecolor="none", markeredgecolor=INK)
            if own is not variant and id(own) in heights:
                arrow = {"arrowstyle": "->", "color": INK, "linewidth": 0.8, "shrinkA": 4, "shrinkB": 3}
                axes.annotate("", (x, heights[id(own)]), (x, y), arrowprops=arrow)
        elif variant.role == "peer":
            axes.plot(x, y, "s", markersize=4.5, markerfacecolor="none", markeredgecolor=PEER)
        else:
            axes.plot(x, y, "o", markersize=5 if variant is own else 2.5, color=verdict)
    return list(heights.values())


def _name_roofs(axes: Any, roofs: Mapping[str, float]) -> None:
    """Right of each roof its name, moved apart from the next one where they would touch; roofs alike share one."""
    names: list[tuple[str, str, float]] = []
    for dtype, roof in sorted(roofs.items(), key=lambda one: one[1]):
        text = peak_text(dtype, roof)
        if names and roof <= names[-1][2] * SAME_ROOF and text.split()[1] == names[-1][1].split()[1]:
            names[-1] = f"{names[-1][0]}/{dtype}", *names[-1][1:]
        else:
            names.append((dtype, text, roof))
    heights = [float(axes.transData.transform((1, roof))[1]) for *_, roof in names]
    for _ in range(99):
        for below, above in pairwise(range(len(names))):
            apart = max(0.0, NAME_HEIGHT - (heights[above] - heights[below])) / 2
            heights[below] -= apart
            heights[above] += apart
    for (dtypes, text, _), y in zip(names, heights):
        axes.text(axes.bbox.x1 + 5, y, f"{dtypes} {text}", va="center", transform=IdentityTransform())


def _headline_point(result: PairResult) -> tuple[float, float]:
    """Where the variant that speaks for a pair stands, or the first that can be shown."""
    own = headline_row(result)
    rates = (_rate(result, variant) for variant in (*([own] if own else []), *result.variants))
    return _intensity(result), next(filter(None, rates))


def sample_chart(result: PairResult) -> Markup | None:
    """Each variant's samples about its own median, the control drawn over the baseline as a line; None without any."""
    clock = result.clock or "device"
    shown = [variant for variant in result.variants if trusted(result, variant) and headline_spread(result, variant)]
    taken = [(variant, np.array(times(result.blocks, variant.name, clock))) for variant in shown]
    taken = [(variant, sample) for variant, sample in taken if sample.size]
    if not taken:
        return None
    control = np.array(times(result.blocks, CONTROL, clock))
    middles = [float(np.median(sample)) for _, sample in taken]
    far = max(_far(sample / middle - 1) for (_, sample), middle in zip(taken, middles))
    bins = min(MOST_BINS, 2 * math.isqrt(max(sample.size for _, sample in taken)) + 1)
    edges = np.linspace(-far, far, bins + 1)
    with matplotlib.rc_context(STYLE):
        names = [f"{name_text(v.label)} {time_text(m)}" for (v, _), m in zip(taken, middles)]
        figure, axes = _canvas(names, 0.5)
        for y, ((variant, sample), middle) in enumerate(zip(taken, middles)):
            colour = {"baseline": INK, "peer": PEER}.get(variant.role) or COLOURS.get(variant.verdict or "", FAIR)
            beyond = _histogram(axes, y, sample / middle - 1, edges, color=colour, fill=True, alpha=0.45)
            if variant.role == "baseline" and control.size:
                _histogram(axes, y, control / middle - 1, edges, color=INK, linewidth=1)
            axes.text(1.02, y, f"n {sample.size}" + f", {beyond} beyond" * (beyond > 0), va="center",
                      transform=axes.get_yaxis_transform())  # fmt: skip
        axes.set_xlim(-far, far)
        axes.set_xlabel("off the median")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:+g}%" if value else "0"))
        about = f"Samples of {clean(result.key)} about the median of each variant"
        return as_svg(figure, f"samples {result.key}", about)


def _far(offsets: "np.ndarray[Any, Any]") -> float:
    """How far from the median the chart must reach; at least 0.1%, for samples that are all alike."""
    q1, q3 = np.percentile(offsets, (25, 75))
    reach = REACH * (q3 - q1)
    return max(1e-3, min(float(np.abs(offsets).max()), max(reach - q1, reach + q3)))


def _histogram(axes: Any, y: float, offsets: "np.ndarray[Any, Any]", edges: Any, **style: Any) -> int:
    """A histogram that stands on the line `y`; the number of samples that lie beyond the edges."""
    counts, _ = np.histogram(offsets, edges)
    tallest = max(int(counts.max()), 1)
    axes.stairs(y + 0.4 - 0.8 * counts / tallest, edges, baseline=y + 0.4, **style)
    return int(offsets.size - counts.sum())


def _canvas(names: Sequence[str], line: float) -> tuple[Figure, Any]:
    """A figure with a named line for each, from the top down, `line` inches high; space on the right for words."""
    height = line * len(names) + 0.55
    left = 0.15 + LETTER * max(map(len, names), default=0)
    figure = Figure(figsize=(WIDTH, height))
    axes = figure.add_axes((left / WIDTH, 0.45 / height, (WIDTH - left - RIGHT) / WIDTH, line * len(names) / height))
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    return figure, axes


def name_text(name: str) -> str:
    """A foreign name on one line, no longer than a chart has room for."""
    name = clean(name)
    return name if len(name) <= LETTERS else f"{name[: LETTERS - 1]}…"


def as_svg(figure: Figure, name: str, title: str) -> Markup:
    """The figure as an element of a page: no prologue or metadata, ids of its own, the page's colours."""
    out = io.StringIO()
    salt: dict[Any, Any] = {"svg.hashsalt": name}
    with matplotlib.rc_context(salt):
        FigureCanvasSVG(figure).print_svg(out, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    text = out.getvalue()
    text = re.sub(r'<g id="[^"]*"', "<g", text[text.index("<svg") :])
    text = re.sub(r"(fill|stroke): (#00000[1-6])", lambda match: f"{match[1]}: {CSS[match[2]]}", text)
    return Markup(text.replace("<svg ", f'<svg role="img" aria-label="{escaped(title)}" ', 1))
