"""Charts measured as they are drawn: where their points stand, what their words say, whose colours they take."""

import math
import re
from collections.abc import Iterator
from xml.etree import ElementTree

import pytest
from markupsafe import Markup
from synthetic_run import HOSTILE_NAME, PEAKS, every_kind, pair

from common.python.base.results import Interval, PairResult
from common.python.performance_targets import Peaks
from common.python.report.charts import (
    gain_chart,
    ladder_chart,
    ranked_chart,
    roofline_chart,
    sample_chart,
    standing_alone,
)

SVG = "{http://www.w3.org/2000/svg}"
TWO = {"baseline": 400.0, "optimized": 40.0}
Place = tuple[float, float]


def styled(chart: Markup | None, element: str, *parts: str) -> Iterator[ElementTree.Element]:
    """The elements whose style has all these parts."""
    assert chart is not None
    found = ElementTree.fromstring(chart).iter(element)
    return (one for one in found if all(part in one.get("style", "") for part in parts))


def circles(chart: Markup | None, *parts: str) -> list[Place]:
    """Where variants of this style stand; y grows downwards."""
    return [(float(one.attrib["cx"]), float(one.attrib["cy"])) for one in styled(chart, "circle", *parts)]


def squares(chart: Markup | None) -> list[Place]:
    return [(float(one.attrib["x"]) + 4, float(one.attrib["y"]) + 4) for one in styled(chart, "rect")]


def lines(chart: Markup | None, *parts: str) -> list[list[Place]]:
    found = [one.attrib["points"].split() for one in styled(chart, "polyline", *parts)]
    return [[(float(x), float(y)) for x, y in (point.split(",") for point in points)] for points in found]


def words(chart: Markup | None, *anchors: str) -> dict[str, float]:
    """Each text with its x, of these anchors or of all."""
    found = (text for text in styled(chart, "text") if not anchors or text.get("text-anchor") in anchors)
    return {"".join(text.itertext()): float(text.attrib["x"]) for text in found}


def test_names_are_text_whatever_is_in_them_and_cut_to_what_fits() -> None:
    hostile = next(result for result in every_kind() if result.name == HOSTILE_NAME)
    for chart in (gain_chart([hostile]), sample_chart(hostile)):
        (named,) = [word for word in words(chart) if "<script>document" in word]
        assert "…" in named
        assert chart is not None
        assert "<script" not in chart


def gains(**ratios: float) -> list[PairResult]:
    """Pairs with these ratios, each with an interval of 10% to either side."""
    results = []
    for name, ratio in ratios.items():
        result = pair(TWO, name=name)
        result.variants[1].speedup = Interval(ratio=ratio, low=ratio / 1.1, high=ratio * 1.1, rounds=4)
        results.append(result)
    return results


def test_gains_stand_on_a_log_axis_in_their_pairs_line_with_their_interval() -> None:
    chart = gain_chart(gains(two=2.0, four=4.0, sixteen=16.0))
    two, four, sixteen = circles(chart, "var(--good)")
    octave = four[0] - two[0]
    assert (sixteen[0] - four[0]) / octave == pytest.approx(2.0, rel=5e-3)
    assert two[0] - words(chart)["1x"] == pytest.approx(octave, rel=5e-3)
    assert two[1] < four[1] < sixteen[1]
    intervals = lines(chart, "var(--good)")
    assert [(right[0] - left[0]) / octave for left, right in intervals] == pytest.approx([2 * math.log2(1.1)] * 3, 0.01)
    assert [left[1] for left, _ in intervals] == [two[1], four[1], sixteen[1]]
    assert {"2.00x", "4.00x", "16.0x", "ch07:sixteen", "10x"} <= set(words(chart))


def test_a_pair_that_is_too_noisy_has_no_point() -> None:
    (result,) = (result for result in every_kind() if result.name == "disturbed")
    result.variants[1].speedup = Interval(ratio=2, low=2, high=2, rounds=4)
    chart = gain_chart([result])
    assert circles(chart) + squares(chart) == []
    assert "too noisy" in words(chart)


def test_a_memory_pair_gains_memory_though_it_be_slower() -> None:
    smaller = pair({"baseline": 100.0, "optimized": 130.0}, name="smaller", goal="memory")
    chart = gain_chart([*gains(three=3.0), smaller])
    time, memory = circles(chart, "var(--good)")
    assert memory[0] == pytest.approx(time[0])
    assert "3x less memory" in words(chart)


def test_variants_stand_under_the_roof_at_what_they_achieved() -> None:
    chart = roofline_chart([pair({**TWO, "peer__lib": 80.0})], PEAKS)
    (base,), (best,), (peer,) = circles(chart, "fill: none"), circles(chart, "var(--good)"), squares(chart)
    assert base[0] == best[0] == peer[0]  # of one problem, at one intensity
    decade = base[1] - best[1]  # 400 us and 40
    assert (base[1] - peer[1]) / decade == pytest.approx(math.log10(400 / 80), abs=3e-3)
    (roof,) = (line for line in lines(chart) if len(line) == 3)
    (x0, y0), (ridge, top), (_, end) = roof
    assert top == end
    across = words(chart, "middle")["10"] - words(chart, "middle")["1"]
    assert (y0 - top) / (ridge - x0) == pytest.approx(decade / across, rel=5e-3)  # bandwidth: a slope of 1
    assert (ridge - base[0]) / across == pytest.approx(math.log10(50e12 / 4e12 / 2), rel=5e-3)  # 2 FLOPs a byte
    memory_roof = y0 - (base[0] - x0) * decade / across
    assert (best[1] - memory_roof) / decade == pytest.approx(math.log10(40 / 20), abs=5e-3)  # 20 us is the limit
    assert {"fp32 50 TFLOP/s", "HBM 4 TB/s"} <= set(words(chart))


def test_without_a_roof_or_a_time_that_holds_there_is_no_roofline() -> None:
    for values in ({"hbm": 1e12}, {"fp32": 1e12}):
        assert roofline_chart(every_kind(), Peaks(values=values, source="")) is None
    untrusted = ("invalid", "too noisy")
    others = [result for result in every_kind() if result.verdict in untrusted or result.status != "measured"]
    assert len(others) == 5
    assert roofline_chart(others, PEAKS) is None


def test_the_ladder_has_a_bar_for_each_variant_in_learning_order_and_the_limit() -> None:
    us = {"baseline": 300.0, "optimized": 30.0, "optimized__wide": 60.0, "optimized__pad": 150.0, "peer__lib": 75.0}
    chart = ladder_chart(pair(us))
    bars = [(float(bar.attrib["y"]), float(bar.attrib["width"])) for bar in styled(chart, "rect")]
    assert [y for y, _ in bars] == sorted(y for y, _ in bars)
    widths = [width for _, width in bars]
    assert [round(300 * width / widths[0]) for width in widths] == [300, 60, 150, 30, 75]
    [[(limit, _), _]] = lines(chart, "var(--bad)")
    start = min(float(bar.attrib["x"]) for bar in styled(chart, "rect"))
    assert (limit - start) / widths[0] == pytest.approx(20 / 300, abs=2e-3)
    told = words(chart)
    assert list(told)[::2] == ["baseline", "wide", "pad", "optimized", "peer lib", "limit 20.0 us"]
    assert any(word.startswith("30.0 us, 10.0x") for word in told)
    assert "limit 20.0 us, log scale" in words(ladder_chart(pair({"baseline": 4000.0, "optimized": 40.0})))
    held = ladder_chart(pair(TWO, goal="memory"))
    assert {"3.0 GB", "1.0 GB, 3.00x"} <= set(words(held))
    assert ladder_chart(pair(TWO, control_us=4000.0)) is None


def test_a_long_suite_is_ranked_from_the_smallest_gain_to_the_largest() -> None:
    chart = ranked_chart([*gains(four=4.0, two=2.0, sixteen=16.0), *every_kind()[5:9]])
    assert chart is not None
    marks = circles(chart, "fill: var")
    assert marks == sorted(marks, key=lambda mark: (mark[0], -mark[1]))
    titles = [title.text or "" for title in ElementTree.fromstring(chart).iter("title")]
    assert [title.split(":")[1] for title in titles] == ["two", "four", "sixteen"]
    assert (marks[0][1] - marks[2][1]) / (marks[0][1] - marks[1][1]) == pytest.approx(3, abs=0.02)


def test_samples_of_each_variant_are_counted_also_where_they_are_all_alike() -> None:
    result = pair({**TWO, "peer__lib": 55.0})
    shown = words(sample_chart(result))
    assert {"baseline 400 us", "optimized 40.0 us", "lib 55.0 us", "n 24"} <= set(shown)
    for sample in (sample for block in result.blocks for sample in block.samples):
        sample.device_us = 50.0
    assert {"baseline 50.0 us", "+0.08%"} <= set(words(sample_chart(result)))
    assert sample_chart(result.model_copy(update={"blocks": []})) is None


def test_a_file_stands_alone_in_light_and_dark_and_fetches_nothing() -> None:
    text = standing_alone(gain_chart([pair(TWO)]))
    style = ElementTree.fromstring(text).findtext(f"{SVG}style") or ""
    light, dark = style.split("@media (prefers-color-scheme: dark)")
    for name in set(re.findall(r"var\((--\w+)\)", text)):
        assert f"{name}:" in light
        assert f"{name}:" in dark
    assert not re.search(r"https?://(?!www\.w3\.org/)|<script|@import|url\(", text)
