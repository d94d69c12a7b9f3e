"""Charts measured as they are drawn: where their points stand, what their words say, whose colours they take."""

import math
import re
from collections.abc import Iterator
from xml.etree import ElementTree

import pytest
from synthetic_run import HOSTILE_NAME, PEAKS, every_kind, pair, refused

from common.python.base.results import Interval, PairResult
from common.python.performance_targets import Peaks
from common.python.report.charts import gain_chart, roofline_chart, sample_chart
from common.python.report.markup import Markup

SVG = "{http://www.w3.org/2000/svg}"
TWO = {"baseline": 400.0, "optimized": 40.0}
Point = tuple[float, float]


def styled(chart: Markup | None, element: str, *parts: str) -> Iterator[ElementTree.Element]:
    """The elements whose style has all these parts."""
    assert chart is not None
    found = ElementTree.fromstring(chart.text).iter(f"{SVG}{element}")
    return (one for one in found if all(part in one.get("style", "") for part in parts))


def markers(chart: Markup | None, *parts: str) -> list[Point]:
    """Where markers of this style stand; y grows downwards."""
    return [(float(use.attrib["x"]), float(use.attrib["y"])) for use in styled(chart, "use", *parts)]


def corners(path: ElementTree.Element) -> list[Point]:
    return [(float(x), float(y)) for x, y in re.findall(r"[ML] (\S+) (\S+)", path.attrib["d"])]


def words(chart: Markup | None) -> dict[str, float]:
    """Each text with its x."""
    return {"".join(text.itertext()): float(text.get("x", "nan")) for text in styled(chart, "text")}


def every_chart(result: PairResult) -> list[Markup | None]:
    return [gain_chart([result]), roofline_chart([result], PEAKS), sample_chart(result)]


def test_names_are_text_whatever_is_in_them_and_cut_to_what_fits() -> None:
    hostile = next(result for result in every_kind() if result.name == HOSTILE_NAME)
    for chart in every_chart(hostile):
        named = [word for word in words(chart) if "<script>document" in word]
        assert len(named) == 1
        assert "…" in named[0]
        assert chart is not None
        assert "<script" not in chart.text


# Gains.


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
    two, four, sixteen = markers(chart, "var(--good)")
    octave = four[0] - two[0]
    assert (sixteen[0] - four[0]) / octave == pytest.approx(2.0, rel=1e-3)
    assert two[0] - words(chart)["1x"] == pytest.approx(octave, rel=1e-3)
    assert two[1] < four[1] < sixteen[1]
    lengths = []
    for line in styled(chart, "path", "var(--good)", "stroke-width: 2"):
        (left, y), (right, _) = corners(line)
        lengths.append((right - left) / octave)
        assert y in (two[1], four[1], sixteen[1])
    assert lengths == [pytest.approx(2 * math.log2(1.1), rel=1e-3)] * 3
    assert {"2.00x", "4.00x", "16.0x", "ch07:sixteen", "10x"} <= set(words(chart))


def test_rungs_and_peers_stand_in_their_pairs_line_and_what_was_not_measured_is_a_word() -> None:
    chart = gain_chart([*every_kind()[:1], refused("unsupported", "cluster", "needs sm_100")])
    rungs, peers = markers(chart, "var(--good)"), markers(chart, "var(--peer)")
    assert (len(rungs), len(peers)) == (2, 2)
    assert len({y for _, y in rungs + peers}) == 1
    assert "unsupported" in words(chart)


def test_a_pair_that_is_too_noisy_has_no_point() -> None:
    (result,) = (result for result in every_kind() if result.name == "disturbed")
    result.variants[1].speedup = Interval(ratio=2, low=2, high=2, rounds=4)
    chart = gain_chart([result])
    assert [markers(chart, f"var(--{name})") for name in ("good", "fair", "bad", "peer")] == [[]] * 4
    assert "too noisy" in words(chart)


def test_a_memory_pair_gains_memory_though_it_be_slower() -> None:
    smaller = pair({"baseline": 100.0, "optimized": 130.0}, name="smaller", goal="memory")
    chart = gain_chart([*gains(three=3.0), smaller])
    time, memory = markers(chart, "var(--good)")
    assert memory[0] == pytest.approx(time[0])
    assert "3x less memory" in words(chart)


@pytest.mark.parametrize("ratio", [0.0, float("nan")])
def test_a_ratio_that_no_axis_can_show_is_left_out(ratio: float) -> None:
    odd, two = gains(odd=3.0, two=2.0)
    odd.variants[1].speedup = Interval(ratio=ratio, low=ratio, high=ratio, rounds=2)
    (alone,), (beside,) = (markers(gain_chart(results), "var(--good)") for results in ([two], [odd, two]))
    assert beside[0] == alone[0]  # and the axis is as it was


# The roofline.


def test_variants_stand_under_the_roof_at_what_they_achieved() -> None:
    chart = roofline_chart([pair({**TWO, "peer__lib": 80.0})], PEAKS)
    (base,) = markers(chart, "stroke: currentColor")
    (best,) = markers(chart, "fill: var(--good)")
    (peer,) = markers(chart, "var(--peer)")
    assert base[0] == best[0] == peer[0]  # of one problem, at one intensity
    decade = base[1] - best[1]  # 400 us and 40
    assert (base[1] - peer[1]) / decade == pytest.approx(math.log10(400 / 80), abs=2e-3)
    texts = [("".join(text.itertext()), float(text.attrib["x"])) for text in styled(chart, "text", "anchor: middle")]
    across = dict(texts)["10"] - dict(texts)["1"]
    paths = [path for path in styled(chart, "path", "stroke: currentColor") if "clip-path" in path.attrib]
    (roof,) = (path for path in paths if len(corners(path)) == 3)
    (x0, y0), (ridge, top), (_, end) = corners(roof)
    assert top == pytest.approx(end)
    assert (y0 - top) / (ridge - x0) == pytest.approx(decade / across, rel=1e-3)  # bandwidth: a slope of 1
    assert (ridge - base[0]) / across == pytest.approx(math.log10(50e12 / 4e12 / 2), rel=1e-3)  # 2 FLOPs a byte
    memory_roof = y0 - (base[0] - x0) * decade / across
    assert (best[1] - memory_roof) / decade == pytest.approx(math.log10(40 / 20), abs=2e-3)  # 20 us is the limit
    assert {"fp32 50 TFLOP/s", "HBM 4 TB/s", "copy"} <= set(words(chart))


@pytest.mark.parametrize("peaks", [Peaks(values={"hbm": 1e12}, source=""), Peaks(values={"fp32": 1e12}, source="")])
def test_without_a_roof_there_is_no_roofline(peaks: Peaks) -> None:
    assert roofline_chart(every_kind(), peaks) is None


def test_pairs_that_are_invalid_or_were_not_measured_are_not_on_the_roofline() -> None:
    untrusted = ("invalid", "too noisy")
    others = [result for result in every_kind() if result.verdict in untrusted or result.status != "measured"]
    assert len(others) == 5
    assert roofline_chart(others, PEAKS) is None


# Samples.


def test_samples_of_each_variant_are_counted() -> None:
    shown = words(sample_chart(pair({**TWO, "peer__lib": 55.0})))
    assert {"baseline 400 us", "optimized 40.0 us", "lib 55.0 us", "n 24"} <= set(shown)


def test_samples_all_alike_and_no_samples_at_all() -> None:
    result = pair(TWO)
    for sample in (sample for block in result.blocks for sample in block.samples):
        sample.device_us = 50.0
    assert {"baseline 50.0 us", "+0.1%"} <= set(words(sample_chart(result)))
    assert sample_chart(result.model_copy(update={"blocks": []})) is None


def test_a_chart_does_not_grow_with_its_samples() -> None:
    chart = sample_chart(pair(TWO, plan={"rounds": 8, "a_round": 64}))
    assert chart is not None
    assert len(chart.text) < 15_000
