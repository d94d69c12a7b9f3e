"""Names on a crowded chart, measured as they are drawn."""

import math
import random
from itertools import combinations

import numpy as np
import pytest
from matplotlib.font_manager import FontProperties, findfont, get_font
from synthetic_run import PEAKS, pair
from test_report_plots import TWO, corners, markers, styled

from common.python.base.results import Cost
from common.python.report.charts import roofline_chart
from common.python.report.markup import Markup
from common.python.report.plot_labels import Ground, places

Box = tuple[float, float, float, float]  # left, top, right, bottom


def crowd(count: int) -> Markup | None:
    """That many pairs, half of them near one corner of the roof, some at one and the same intensity."""
    chance, results = random.Random(1), []
    for index in range(count):
        intensity = 10 ** (chance.uniform(-1, 2.5) if index % 2 else round(chance.gauss(2, 0.4), 1))
        us = max(20, 1.6 * intensity) * 10 ** chance.uniform(0.05, 1.2)  # over the limit of these peaks
        results.append(
            pair(
                {"baseline": us * chance.uniform(1, 9), "optimized": us, "peer__lib": us * chance.uniform(0.9, 2)},
                name=f"some_long_name_{index}",
                cost=Cost(hbm_bytes=80e6, flops=80e6 * intensity),
            )
        )
    return roofline_chart(results, PEAKS)


def boxes(chart: Markup | None) -> dict[str, Box]:
    """Where the letters of each name stand, and of each roof's."""
    found = {}
    font = get_font(findfont(FontProperties(family="DejaVu Sans")))
    for text in styled(chart, "text"):
        word, x, base = "".join(text.itertext()), float(text.attrib["x"]), float(text.attrib["y"])
        if not ("some" in word or word.startswith(("HBM", "fp32"))):
            continue
        font.set_size(8 if "font-size: 8" in text.attrib["style"] else 9, 72)
        font.set_text(word)
        width = font.get_width_height()[0] / 64
        left = x - width if "anchor: end" in text.attrib["style"] else x
        found[word] = (left, base - 6, left + width, base + 1.5)
    return found


def overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def marks(chart: Markup | None) -> list[Box]:
    """What the points take."""
    points = [point for colour in ("currentColor", "var(--good)", "var(--peer)", "var(--fair)", "var(--bad)")
              for point in markers(chart, colour)]  # fmt: skip
    return [(x - 2.5, y - 2.5, x + 2.5, y + 2.5) for x, y in points]


def test_in_a_crowd_no_name_covers_another_or_a_roofs_or_a_point() -> None:
    chart = crowd(45)
    named, points = boxes(chart), marks(chart)
    assert len([name for name in named if "some" in name]) >= 30  # the others have no room
    assert len(points) >= 3 * 45
    assert [(one, other) for one, other in combinations(named, 2) if overlap(named[one], named[other])] == []
    assert [name for name, box in named.items() if any(overlap(box, point) for point in points)] == []


def test_a_line_leads_from_a_point_to_a_name_that_is_not_beside_it_and_through_no_other_name() -> None:
    chart = crowd(20)
    named = boxes(chart)
    leaders = [
        corners(path) for path in styled(chart, "path", "stroke-width: 0.4") if "currentColor" in path.attrib["style"]
    ]
    assert len(leaders) > 5
    for (x0, y0), (x1, y1) in leaders:
        near = [
            name for name, box in named.items() if min(abs(box[0] - x1), abs(box[2] - x1)) < 3 and box[1] < y1 < box[3]
        ]
        assert len(near) == 1
        on_the_way = [(x0 + (x1 - x0) * step / 50, y0 + (y1 - y0) * step / 50) for step in range(51)]
        for name, (left, top, right, bottom) in named.items():
            assert not any(left < x < right and top < y < bottom for x, y in on_the_way), name


def test_a_name_for_which_there_is_no_room_is_left_out_and_its_point_stays() -> None:
    point = np.array([50.0, 50.0])
    ground = Ground(np.array([0, 0, 100, 100]), np.array([[47, 47, 53, 53]]), np.empty((0, 4)))
    assert places([(point, 99.0, 10.0)], ground) == [None]
    beside = places([(point, 40.0, 10.0)] * 2, ground)
    assert all(place is not None for place in beside)


def test_whoever_found_no_place_chooses_sooner_in_the_next_try() -> None:
    """Both may stand on the right of the point, but only the first on its left."""
    ground = Ground(np.array([20, 40, 100, 60]), np.array([[47, 47, 53, 53]]), np.empty((0, 4)))
    point = np.array([50.0, 50.0])
    first, second = places([(point, 24.0, 20.0), (point, 44.0, 20.0)], ground)
    assert first is not None
    assert second is not None
    assert first[2] < 50 < second[0]


@pytest.mark.parametrize("count", [1, 3])
def test_a_name_with_room_stands_right_beside_its_point(count: int) -> None:
    chart = roofline_chart(
        [
            pair(TWO, name=f"some{10**index}", cost=Cost(hbm_bytes=80e6, flops=8e6 * 10**index))
            for index in range(count)
        ],
        PEAKS,
    )
    points = markers(chart, "fill: var(--good)")
    for name, (left, top, right, bottom) in boxes(chart).items():
        if "some" in name:
            middle = (top + bottom) / 2
            assert min(math.dist((side, middle), point) for side in (left, right) for point in points) < 10
