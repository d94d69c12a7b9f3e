"""What messages between GPUs take over their size, as a picture that stands alone."""

from collections.abc import Sequence
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from common.python.base.text import clean
from common.python.peaks.store import Curve
from common.python.peaks.text import MESSAGE_NAMES, size_text
from common.python.report.charts import INK, PEER, STYLE, WIDTH, as_svg
from common.python.report.markup import PALETTE, Markup
from common.python.report.rows import time_text

LOOKS: dict[str, dict[str, Any]] = {
    "all_reduce": {"color": PEER, "marker": "o"},
    "nvlink_copy": {"color": INK, "marker": "s", "markerfacecolor": "none"},
}
ALONE = "svg { background: var(--paper); color: var(--ink); } text { font-family: system-ui, sans-serif !important; }"
HEIGHT = 3.1  # inches
TICKS = [2**power for power in range(0, 61, 5)]  # bytes


def link_chart(curves: Sequence[Curve]) -> Markup:
    """Two panels over the size of a message, on log axes: the bandwidth of a link, and the time of a message."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, HEIGHT))
        rates, times = (figure.add_axes((left, 0.16, 0.39, 0.72)) for left in (0.08, 0.59))
        for curve in curves:
            sizes = [point.bytes for point in curve.points]
            look: dict[str, Any] = {
                "markersize": 3,
                "linewidth": 1,
                "label": MESSAGE_NAMES.get(curve.name, clean(curve.name)),
            }
            look |= LOOKS.get(curve.name, {"color": INK})
            rates.plot(sizes, [curve.rate(point) for point in curve.points], **look)
            times.plot(sizes, [point.seconds for point in curve.points], **look)
            spread = [point.low for point in curve.points], [point.high for point in curve.points]
            times.fill_between(sizes, *spread, color=look["color"], alpha=0.2, linewidth=0)
        for axes, title in ((rates, "bus bandwidth, GB/s"), (times, "time of a message")):
            axes.set_title(title, fontsize=9, loc="left")
            axes.set_xlabel("bytes of the message")
            _log_axes(axes)
        rates.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1e9:g}"))
        times.yaxis.set_major_formatter(FuncFormatter(lambda value, _: time_text(value * 1e6)))
        rates.legend(frameon=False, fontsize=8, loc="upper left")
        return as_svg(figure, "links", "Bus bandwidth and time of a message between GPUs over its size")


def _log_axes(axes: Any) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(FixedLocator([tick for tick in TICKS if low <= tick <= high]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: size_text(value)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(LogLocator())
    axes.yaxis.set_minor_locator(NullLocator())
    axes.grid()


def standing_alone(chart: Markup) -> str:
    """The chart as a file of its own, with a paper and colours for light and dark."""
    opening, inside = chart.text.split(">", 1)
    return f"{opening}><style>{PALETTE}{ALONE}</style>{inside}"
