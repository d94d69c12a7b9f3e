"""The charts of a report, as SVG: a suite's gains, its roofline, and the samples of a pair.

Colours are CSS variables, so that a chart follows its page into dark mode. Every mark has a tooltip. Names of pairs and
variants are foreign text: they are escaped, and cut to the space there is.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from common.python.base.results import CONTROL, Interval, PairResult, VariantResult
from common.python.base.text import clean
from common.python.performance_targets import Peaks, peak_text
from common.python.report.rows import (
    TONES,
    bytes_text,
    gain_text,
    interval_text,
    ratio_text,
    rows,
    time_text,
    verdict_text,
    weak_baseline,
)
from common.python.stats.verdict import times

PALETTE = """
:root { color-scheme: light dark; --ink: #1f2328; --paper: #fff; --raised: #f3f5f7; --faint: #c9d1d9;
  --good: #1a7f37; --fair: #9a6700; --bad: #cf222e; --peer: #0969da; --mark: #fff3bf; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --paper: #0d1117; --raised: #171d25; --faint: #444c56;
  --good: #3fb950; --fair: #d29922; --bad: #f85149; --peer: #58a6ff; --mark: #3b3212; } }
"""
INK, FAINT, GOOD, FAIR, BAD, PEER = (f"var(--{name})" for name in ("ink", "faint", "good", "fair", "bad", "peer"))
WIDTH, RIGHT, BOTTOM = 720, 130, 40  # pixels: a chart, the words on the right of its axes, the labels under them
LETTERS, LETTER = 32, 7.2  # the longest name in letters, and pixels that a letter takes
LINE = 13  # pixels between two lines of text
BINS = 24
LEAST_REACH = 1e-3  # of the median, for samples that are all alike


@dataclass(frozen=True)
class Scale:
    """Maps values from `low` to `high` to pixels from `start` to `end`, by their logarithms where `log` is set."""

    low: float
    high: float
    start: float
    end: float
    log: bool = True

    def __call__(self, value: float) -> float:
        low, high, value = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        return round(self.start + (value - low) / (high - low) * (self.end - self.start), 1)

    def ticks(self) -> list[float]:
        """Round values on a log scale: powers of ten, and some between them where there are few."""
        span = self.high / self.low
        steps = (1, 1.25, 2, 5, 8) if span < 10 else (1, 2, 5) if span < 100 else (1,)
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        ticks = [step * 10.0**decade for decade in decades for step in steps]
        return [tick for tick in ticks if self.low <= tick <= self.high]


# Elements.


def _element(name: str, inside: str = "", **attributes: object) -> Markup:
    """An SVG element. Text and attributes are escaped unless they are Markup."""
    written = [Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), str(v)) for key, v in attributes.items()]
    form = "<{0}{1}>{2}</{0}>" if inside else "<{0}{1}/>"
    return Markup(form).format(name, Markup("").join(written), inside)


def _text(x: float, y: float, words: str, anchor: str = "start") -> Markup:
    more = {} if anchor == "start" else {"text_anchor": anchor}
    return _element("text", words, x=f"{x:.4g}", y=f"{y + 4:.6g}", **more)


def _line(points: Iterable[tuple[float, float]], colour: str, width: float = 1) -> Markup:
    joined = " ".join(f"{x},{y}" for x, y in points)
    return _element("polyline", points=joined, style=f"fill: none; stroke: {colour}; stroke-width: {width}")


def _mark(x: float, y: float, variant: VariantResult, leads: bool, told: str) -> Markup:
    """The place of a variant: hollow for a baseline, a hollow square for a peer, small for a further rung."""
    colour = _colour(variant)
    title = _element("title", f"{clean(variant.label)}: {told}")
    if variant.role == "peer":
        return _element("rect", title, x=x - 4, y=y - 4, width=8, height=8, style=f"fill: none; stroke: {colour}")
    if variant.role == "baseline":
        return _element("circle", title, cx=x, cy=y, r=5, style=f"fill: none; stroke: {colour}")
    return _element("circle", title, cx=x, cy=y, r=5 if leads else 2.5, style=f"fill: {colour}")


def _colour(variant: VariantResult) -> str:
    by_role = {"baseline": INK, "peer": PEER}
    return by_role.get(variant.role) or f"var(--{TONES.get(variant.verdict or '', 'fair')})"


def _axis(scale: Scale, ticks: Iterable[float], label: Callable[[float], str], top: float, bottom: float) -> Markup:
    """Vertical grid lines at the ticks, each with its label under it."""
    ticks = list(ticks)
    lines = "".join(f"M{scale(tick):g} {top:g}V{bottom:g}" for tick in ticks)
    parts = [_element("path", d=lines, style=f"stroke: {FAINT}; stroke-width: 0.5")]
    parts += [_text(scale(tick), bottom + LINE, label(tick), "middle") for tick in ticks]
    return Markup("").join(parts)


def _height_axis(scale: Scale, label: Callable[[float], str], left: float, right: float) -> Markup:
    """Horizontal grid lines at the ticks of a log scale, each with its label on the left."""
    parts = [_line([(left, scale(tick)), (right, scale(tick))], FAINT, 0.5) for tick in scale.ticks()]
    parts += [_text(left - 5, scale(tick), label(tick), "end") for tick in scale.ticks()]
    return Markup("").join(parts)


def _svg(title: str, height: float, parts: Iterable[Markup]) -> Markup:
    box, inside = f"0 0 {WIDTH} {height}", Markup("\n").join(parts)
    return _element("svg", inside, role="img", aria_label=title, viewBox=box)


def standing_alone(chart: Markup) -> str:
    """The chart as a file of its own, with its own colours for light and dark."""
    own = "svg { background: var(--paper); color: var(--ink); font: 12px sans-serif; } text { fill: var(--ink); }"
    opening, inside = chart.split(">", 1)
    return f'{opening} xmlns="http://www.w3.org/2000/svg"><style>{PALETTE}{own}</style>{inside}'


def _name(text: str) -> str:
    """A foreign name on one line, no longer than a chart has room for."""
    name = clean(text)
    return name if len(name) <= LETTERS else f"{name[: LETTERS - 1]}…"


def _left(names: Sequence[str]) -> float:
    return round(15 + LETTER * max(map(len, names), default=0))


def gain_chart(results: Sequence[PairResult]) -> Markup:
    """A line for each pair on a log axis: the headline with its interval, further rungs, peers."""
    names, step = [_name(result.key) for result in results], 24
    known = [[(v, gain) for v in result.variants if (gain := _gain(result, v))] for result in results]
    ends = [end for gains in known for _, gain in gains for end in (gain.low, gain.high)]
    scale = Scale(min([0.8, *ends]) / 1.1, max([1.25, *ends]) * 1.1, _left(names), WIDTH - RIGHT)
    bottom = step * len(names)
    parts = [
        _axis(scale, scale.ticks(), lambda tick: f"{tick:g}x", 0, bottom),
        _line([(scale(1), 0), (scale(1), bottom)], INK),
    ]
    for row, (result, gains) in enumerate(zip(results, known)):
        y, own, shown = (row + 0.5) * step, result.headline, rows(result)[0]
        parts.append(_text(scale.start - 8, y, names[row], "end"))
        parts.append(_text(scale.end + 8, y, shown.speedup.split(" [")[0] or shown.verdict))
        for variant, gain in gains:
            if variant is own:
                parts.append(_line([(scale(gain.low), y), (scale(gain.high), y)], _colour(variant), 2))
            told = interval_text(gain) if variant.role == "peer" else gain_text(result, variant)
            parts.append(_mark(scale(gain.ratio), y, variant, variant is own, told))
    return _svg("Gain of each pair over its baseline, with its interval", bottom + BOTTOM, parts)


def headline_chart(results: Sequence[PairResult]) -> Markup:
    """A line for each pair: its share of the limit before and after on the left, the best peer's ratio on the right.

    A peer's ratio over 1x means that the headline variant beats the peer.
    """
    names, step, top = [_name(result.key) for result in results], 22, 24
    peers = [result.peer_ratio.ratio for result in results if result.peer_ratio]
    share = Scale(0, 100, _left(names), 420, log=False)
    ratio = Scale(min([0.5, *peers]) / 1.1, max([2, *peers]) * 1.1, 460, WIDTH - RIGHT)
    bottom = top + step * len(names)
    parts = [
        _text(share.start, 8, "% of limit: baseline and optimized"),
        _text(ratio.start, 8, "best peer's time (or bytes) over optimized"),
        _axis(share, range(0, 101, 25), lambda tick: f"{tick:g}%", top, bottom),
        _axis(ratio, (0.5, 1, 2, 5, 10), lambda tick: f"{tick:g}x", top, bottom),
        _line([(ratio(1), top), (ratio(1), bottom)], INK),
    ]
    for row, (result, name) in enumerate(zip(results, names)):
        y, own = top + (row + 0.5) * step, result.headline
        ends = [v for v in result.variants if v is own or v.role == "baseline"]
        shares = [(v, min(100.0, v.percent_of_limit)) for v in ends if v.percent_of_limit is not None]
        parts.append(_text(share.start - 8, y, name, "end"))
        parts.append(_line([(share(value), y) for _, value in shares], INK))
        parts += [_mark(share(value), y, v, v is own, f"{value:.0f}% of the limit") for v, value in shares]
        if peer := result.peer_ratio:
            at, colour = ratio(peer.ratio), GOOD if peer.ratio >= 1 else FAIR
            parts.append(_line([(ratio(1), y), (at, y)], colour, 5))
            parts.append(_text(ratio.end + 8, y, f"{ratio_text(peer.ratio)} {_name(result.best_peer or '')}"[:18]))
    return _svg("Headlines: share of the limit, and the ratio to the best peer", bottom + 2 * LINE, parts)


def ranked_chart(results: Sequence[PairResult]) -> Markup:
    """A mark for each pair, from the smallest gain to the largest, on a log axis: for suites too long for names."""
    heads = [(result, own) for result in results if (own := result.headline)]
    known = sorted(((gain.ratio, *head) for head in heads if (gain := _gain(*head))), key=lambda one: one[0])
    ratios, top, bottom, step = [ratio for ratio, _, _ in known], 10, 230, (WIDTH - 55) / max(1, len(known))
    scale = Scale(min([0.8, *ratios]) / 1.1, max([1.25, *ratios]) * 1.1, bottom, top)
    parts = [_height_axis(scale, lambda tick: f"{tick:g}x", 45, WIDTH), _line([(45, scale(1)), (WIDTH, scale(1))], INK)]
    for rank, (ratio, result, own) in enumerate(known):
        title = _element("title", f"{clean(result.key)}: {verdict_text(result, own)} {gain_text(result, own)}")
        style = f"fill: {_colour(own)}" + "; fill-opacity: 0.4" * weak_baseline(result)
        x = round(50 + step * (rank + 0.5), 1)
        parts.append(_element("circle", title, cx=x, cy=scale(ratio), r=3, style=style))
    return _svg("Gain of each pair over its baseline, from the smallest to the largest", bottom + top, parts)


def _gain(result: PairResult, variant: VariantResult) -> Interval | None:
    """What a variant gains over the baseline, by the pair's goal; None where no axis could show it."""
    gain = result.gain(variant) if result.trusted(variant) else None
    return gain if gain and all(0 < end < math.inf for end in (gain.low, gain.ratio, gain.high)) else None


def roofline_chart(results: Sequence[PairResult], peaks: Peaks | None) -> Markup | None:
    """FLOP/s over FLOPs per byte under these peaks, with a line from each baseline to its headline variant.

    A pair that has no variants is named, as high as its limit allows. None if no pair has both FLOPs and bytes with
    known peaks.
    """
    shown = [(result, own) for result in results if (own := _achieved(result, peaks))]
    if not shown or peaks is None:
        return None
    hbm, height = peaks.values["hbm"], 520
    roofs = {result.cost.dtype: peaks.values[result.cost.dtype] for result, _ in shown if result.cost}
    intensities = [at for _, own in shown for _, at, _ in own] + [roof / hbm for roof in roofs.values()]
    rates = [rate for _, own in shown for _, _, rate in own]
    x = Scale(min(intensities) / 4, max(intensities) * 6, 60, WIDTH - RIGHT)
    y = Scale(min([*rates, x.low * hbm]) / 2, max([*rates, *roofs.values()]) * 4, height - BOTTOM, 10)
    parts = [
        _axis(x, x.ticks(), lambda tick: f"{tick:g}", y.end, y.start),
        _height_axis(y, lambda tick: f"{tick / 1e12:g}", x.start, x.end),
        _text((x.start + x.end) / 2, height - 8, "FLOPs for each byte that the problem must move", "middle"),
        _text(4, 6, "TFLOP/s"),
        _text(x(x.low * 1.1), y(x.low * hbm) - LINE, f"HBM {peak_text('hbm', hbm)}"),
    ]
    named = 0.0
    for dtype, roof in sorted(roofs.items(), key=lambda one: -one[1]):  # their names stand below each other
        parts.append(_line([(x.start, y(x.low * hbm)), (x(roof / hbm), y(roof)), (x.end, y(roof))], INK))
        named = max(y(roof), named + LINE)
        parts.append(_text(x.end + 5, named, f"{dtype} {peak_text(dtype, roof)}"))
    for result, own in shown:
        points = [(x(at), y(rate), row) for row, at, rate in own]
        parts.append(_line([(at, up) for at, up, row in points if row in (result.headline, result.baseline)], INK))
        for at, up, row in points:
            if row is None:
                parts.append(_element("circle", cx=at, cy=up, r=2.5, style=f"fill: {INK}"))
                parts.append(_text(at + 5, up, _name(result.key)))
                continue
            told = f"{clean(result.key)}, {time_text(result.us(row) or 0.0)}"
            parts.append(_mark(at, up, row, row is result.headline, told))
    return _svg("Roofline: each variant under the peaks of its GPU", height, parts)


def _achieved(result: PairResult, peaks: Peaks | None) -> list[tuple[VariantResult | None, float, float]]:
    """FLOPs per byte of the problem and FLOP/s of each variant whose time may be shown; empty without peaks."""
    cost = result.cost
    if peaks is None or cost is None or not {"hbm", cost.dtype} <= peaks.values.keys() or not cost.flops * cost.hbm:
        return []
    timed = [(row, us) for row in result.variants if result.trusted(row) and (us := result.us(row))]
    known = timed if result.variants or not result.limit else [(None, result.limit.us)]
    return [(row, cost.flops / cost.hbm, cost.flops / us * 1e6) for row, us in known if us > 0]


def ladder_chart(result: PairResult) -> Markup | None:
    """A bar for each variant in the order to learn them: baseline, rungs, headline, peers; and the limit as a line.

    Bars are times, or bytes at the peak where memory is the goal; over a span of 20 on a log scale. None where fewer
    than two variants have one.
    """
    memory, own = result.goal == "memory", result.headline
    place = {"baseline": 0, "optimized": 1, "ref": 3, "peer": 4}
    amounts = [(row, (row.why and row.why.peak_bytes) if memory else result.us(row)) for row in result.variants]
    known = [(row, amount) for row, amount in amounts if amount and result.trusted(row)]
    known.sort(key=lambda one: 2 if one[0] is own else place[one[0].role])
    if len(known) < 2:
        return None
    names, step = [_name(f"peer {row.label}" if row.role == "peer" else row.label) for row, _ in known], 24
    limit = None if memory or result.limit is None else result.limit.us
    values = [value for _, value in known] + ([limit] if limit else [])
    log = max(values) > 20 * min(values)
    scale = Scale(min(values) / 1.5 if log else 0, max(values), _left(names), WIDTH - RIGHT, log)
    bottom, parts = step * len(names), []
    for row, (variant, value) in enumerate(known):
        y, gain = row * step, _gain(result, variant)
        told = [bytes_text(value) if memory else time_text(value), *([ratio_text(gain.ratio)] if gain else [])]
        style = f"fill: {_colour(variant)}{'; fill-opacity: 0.85' * (variant is own)}"  # others: 0.5, by the page
        wide = max(1.0, round(scale(value) - scale.start, 1))
        parts.append(_element("rect", x=scale.start, y=y + 4, width=wide, height=step - 8, style=style))
        parts.append(_text(scale.start - 8, y + step / 2, names[row], "end"))
        parts.append(_text(scale.start + wide + 6, y + step / 2, ", ".join(told)))
    if limit:
        parts.append(_line([(scale(limit), 0), (scale(limit), bottom + 4)], BAD, 1.5))
        parts.append(_text(scale(limit), bottom + LINE, f"limit {time_text(limit)}" + ", log scale" * log))
    return _svg(f"The variants of {clean(result.key)} and their limit", bottom + 2 * LINE, parts)


def sample_chart(result: PairResult) -> Markup | None:
    """A histogram of each variant's samples about its median, the control drawn over the baseline as a line.

    It reaches as far as 98% of any variant's samples do. None without any samples that may be shown.
    """
    clock, step = result.clock or "device", 50
    taken = [(row, np.array(times(result.blocks, row.name, clock))) for row in result.variants if result.trusted(row)]
    shown = [(row, float(np.median(us)), us / np.median(us) - 1) for row, us in taken if us.size]
    if not shown:
        return None
    names = [f"{_name(row.label)} {time_text(middle)}" for row, middle, _ in shown]
    far = max(LEAST_REACH, *(float(np.percentile(abs(seen), 98)) for _, _, seen in shown))
    scale, bottom = Scale(-far, far, _left(names), WIDTH - RIGHT, log=False), step * len(names)
    ticks = [far * part for part in (-0.8, 0, 0.8)]
    parts = [_axis(scale, ticks, lambda tick: f"{100 * tick:+.2g}%" if tick else "median", 0, bottom)]
    for place, (row, middle, seen) in enumerate(shown):
        foot, beyond = step * (place + 0.9), int((abs(seen) > far).sum())
        parts.append(_outline(seen, scale, foot, f"fill: {_colour(row)}; fill-opacity: 0.35"))
        if row.role == "baseline" and (control := times(result.blocks, CONTROL, clock)):
            parts.append(_outline(np.array(control) / middle - 1, scale, foot, f"stroke: {INK}; fill: none"))
        parts.append(_text(scale.start - 8, foot - step / 2, names[place], "end"))
        parts.append(_text(scale.end + 8, foot - step / 2, f"n {seen.size}" + f", {beyond} beyond" * (beyond > 0)))
    return _svg(f"Samples of {clean(result.key)} about the median of each variant", bottom + BOTTOM, parts)


def history_chart(title: str, levels: Sequence[Sequence[float]], told: Sequence[str]) -> Markup:
    """A point for each run, its time in microseconds, with a tooltip; behind them each level's median and noise.

    The noise is two standard deviations, estimated from the median absolute deviation.
    """
    every, middles = [us for level in levels for us in level], [float(np.median(level)) for level in levels]
    noises = [2 * 1.4826 * float(np.median(abs(np.array(level) - m))) for level, m in zip(levels, middles)]
    ends = [m + sign * noise for m, noise in zip(middles, noises) for sign in (-1, 1)]
    low, high = min([*every, *ends]), max([*every, *ends])
    y = Scale(max(low * 0.99, low / 2), high * 1.01, 170, 10, log=False)
    x = Scale(0, max(1, len(every) - 1), 90, WIDTH - 20, log=False)
    parts, start = [_text(x.start - 8, y(at), time_text(at), "end") for at in (low, high)], 0
    for level, middle, noise in zip(levels, middles, noises):
        left, right = x(max(0, start - 0.5)), x(start + len(level) - 0.5)
        top, width = y(middle + noise), round(right - left, 1)
        height = max(1.0, round(y(middle - noise) - top, 1))
        parts.append(_element("rect", x=left, y=top, width=width, height=height, style=f"fill: {FAINT}"))
        parts.append(_line([(left, y(middle)), (right, y(middle))], INK))
        parts += [_line([(left, 0), (left, 180)], BAD, 1.5)] * (start > 0)
        start += len(level)
    for place, (us, words) in enumerate(zip(every, told)):
        parts.append(_element("circle", _element("title", words), cx=x(place), cy=y(us), r=3, style=f"fill: {PEER}"))
    return _svg(f"Times of {title}, run by run", 190, parts)


def _outline(offsets: np.ndarray, scale: Scale, foot: float, style: str) -> Markup:
    """The outline of a histogram that stands on the height `foot`, 40 pixels high."""
    counts, edges = np.histogram(offsets, BINS, (scale.low, scale.high))
    tops = (foot - 40 * counts / max(int(counts.max()), 1)).round()
    last = np.flatnonzero(np.diff(tops, append=np.nan))  # of neighbours of one height
    steps = "".join(f"V{top:g}H{scale(right):.0f}" for top, right in zip(tops[last], edges[1:][last]))
    return _element("path", d=f"M{scale.start:g} {foot:g}{steps}V{foot:g}Z", style=style)
