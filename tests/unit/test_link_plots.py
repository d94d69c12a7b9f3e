"""The picture of links between GPUs, of made-up curves: where its points stand, and that it stands alone."""

import math
import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from test_report_plots import SVG, markers, styled, words

from common.python.peaks.store import Curve, Point
from common.python.report.link_plots import link_chart, standing_alone
from common.python.report.markup import Markup

KIB, GIB = 2**10, 2**30
HALF_A_LETTER = 3.4  # points


def curve(name: str = "all_reduce", latency_s: float = 1e-5, rate: float = 2e11, share: float = 1.0) -> Curve:
    """Latency plus bytes over a rate: what no machine measured."""
    points = []
    for size in (KIB, 32 * KIB, KIB**2, 32 * KIB**2, GIB):
        seconds = latency_s + share * size / rate
        points.append(Point(bytes=size, seconds=seconds, low=0.9 * seconds, high=1.1 * seconds))
    return Curve(name=name, ranks=2, share=share, method="made up", points=points)


def panels(chart: Markup, colour: str) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """Where a curve's markers stand: rates, then times. Between them is one in the legend."""
    found = markers(chart, f"stroke: {colour}")
    assert len(found) == 11
    return found[:5], found[6:]


def test_rates_and_times_stand_on_log_axes_over_the_size() -> None:
    made = curve(share=1.5)
    chart = link_chart([made])
    rates, times = panels(chart, "var(--peer)")
    for panel, values in ((rates, map(made.rate, made.points)), (times, [point.seconds for point in made.points])):
        known = [math.log10(value) for value in values]
        decade = (panel[0][1] - panel[-1][1]) / (known[-1] - known[0])
        assert decade > 0  # y grows downwards
        heights = [(panel[0][1] - y) / decade for _, y in panel]
        assert heights == pytest.approx([value - known[0] for value in known], abs=0.01)
        steps = [b[0] - a[0] for a, b in pairwise(panel)]
        assert max(steps) - min(steps) < 0.1  # each size is 32 times the one before
        label, value = ("1", 1e9) if panel is rates else ("1.00 ms", 1e-3)
        [foot] = [float(one.attrib["y"]) for one in styled(chart, "text") if "".join(one.itertext()) == label]
        height = (panel[0][1] - foot + HALF_A_LETTER) / decade
        assert height == pytest.approx(math.log10(value) - known[0], abs=0.03)
    texts = words(chart)
    ticks = ("1 KiB", "32 KiB", "1 MiB", "32 MiB", "1 GiB")
    assert [texts[tick] for tick in ticks] == pytest.approx([x for x, _ in times], abs=0.1)
    assert {"bus bandwidth, GB/s", "time of a message", "bytes of the message", "all-reduce", "100 us"} <= set(texts)


def test_bus_bandwidth_counts_what_a_rank_must_send() -> None:
    made = curve(share=1.5)
    assert made.rate(made.points[-1]) == pytest.approx(1.5 * GIB / made.points[-1].seconds)
    assert made.rate(made.points[-1]) == pytest.approx(2e11, rel=0.01)


def test_two_curves_are_told_apart_without_their_colours() -> None:
    chart = link_chart([curve(), curve("nvlink_copy", 2e-6, 4e11)])
    filled, hollow = (list(styled(chart, "use", f"stroke: {colour}")) for colour in ("var(--peer)", "currentColor"))
    assert (len(filled), len(hollow)) == (11, 11)
    assert {"fill-opacity: 0;" in one.attrib["style"] for one in filled} == {False}
    assert {"fill-opacity: 0;" in one.attrib["style"] for one in hollow} == {True}
    assert {"all-reduce", "peer copy"} <= set(words(chart))


def test_the_file_stands_alone_in_light_and_dark_and_fetches_nothing() -> None:
    text = standing_alone(link_chart([curve()]))
    root = ElementTree.fromstring(text)
    assert root.tag == f"{SVG}svg"
    style = root.find(f"{SVG}style")
    assert style is not None
    assert style.text is not None
    used = set(re.findall(r"var\((--\w+)\)", text))
    light, dark = style.text.split("@media (prefers-color-scheme: dark)")
    for name in used:
        assert f"{name}:" in light
        assert f"{name}:" in dark
    assert "background: var(--paper); color: var(--ink)" in style.text
    assert not re.search(r"https?://(?!www\.w3\.org/)|<script|@import|url\((?!#)", text)
    assert not list(styled(Markup(text), "path", "#00000"))  # no stand-in is left
