"""Names beside the points of a crowded chart: none covers another, a point or other words, nor is led to through any.

The nearest free place wins, and a thin line leads from a point to a name that is not right beside it. Names for which
no place is free choose sooner in further tries. One that has none even in the best of them may stand on an arrow or a
roof; if that does not help either it is left out, and its point stays. All is measured in pixels of a chart whose axes
and marks are final. Boxes are rows of left, bottom, right, top; lines are rows of x, y, x, y.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from random import Random
from typing import Any, NamedTuple

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.text import Annotation
from matplotlib.transforms import IdentityTransform

Point = tuple[float, float]
Rows = np.ndarray[Any, np.dtype[Any]]
Asked = tuple[Rows, float, float]  # a point, and the width and height of its name
TRIES = 30  # the names of a crowd of twenty have their places after some ten
CHOICES = 200  # of a name: places where nothing is drawn yet
BESIDE = 5.0  # pixels from a point to a name right beside it; one that is farther gets a line that leads to it
DISTANCES = [BESIDE, *(10 * 1.2**step for step in range(20))]  # to 320
DIRECTIONS = [0, *(turn * angle for angle in (10, 20, 30, 40, 50, 60, 70, 75, 80, 85, 88) for turn in (1, -1))]
MARK = 2.7  # half of what a marker takes
CLEAR = 6.0  # pixels between a point and the line that leads to its name
GAP = 2.0  # pixels on either side of a name


class Ground(NamedTuple):
    """What is taken: names stay inside and off all of it; a line that leads to a name may cross these lines."""

    inside: Rows
    boxes: Rows
    lines: Rows


def name_points(axes: Any, names: Sequence[tuple[str, Point]], **look: Any) -> None:
    """Write each name beside its point, which is given in the units of the axes."""
    own = IdentityTransform()
    ground = _ground(axes)
    texts = [axes.text(0, 0, name, transform=own, va="center", **look) for name, _ in names]
    extents = [text.get_window_extent() for text in texts]
    points = [axes.transData.transform(point) for _, point in names]
    asked = [(point, extent.width + 2 * GAP, extent.height) for point, extent in zip(points, extents)]
    for text, place in zip(texts, places(asked, ground)):
        if place is None:
            text.remove()
            continue
        left, _, right, _, x0, y0, x, y = place
        text.set_position((left + GAP if x == left else right - GAP, y))
        text.set_horizontalalignment("left" if x == left else "right")
        if math.dist((x, y), (x0, y0)) > 1.5:
            axes.add_line(Line2D([x0, x], [y0, y], transform=own, color=text.get_color(), linewidth=0.4, clip_on=False))


def places(asked: Sequence[Asked], ground: Ground) -> list[Rows | None]:
    """For each point, width and height a box with the line to it, or None."""
    best = _tried([_free(*one, ground)[:CHOICES] for one in asked])
    left = [index for index, one in enumerate(best) if one is None]
    over_lines = ground._replace(lines=np.empty((0, 4)))
    _choose(best, {index: _free(*asked[index], over_lines) for index in left})
    return best


def _tried(free: Sequence[Rows]) -> list[Rows | None]:
    """Of some tries the one that leaves out fewest names; those that often found no place choose sooner."""
    order, failures, chance = list(range(len(free))), [0] * len(free), Random(0)
    best: list[Rows | None] = [None for _ in free]
    for _ in range(TRIES):
        found: list[Rows | None] = [None for _ in free]
        _choose(found, {index: free[index] for index in order})
        missing = [index for index, one in enumerate(found) if one is None]
        if len(missing) < sum(one is None for one in best):
            best = found
        if not missing:
            break
        for index in missing:
            failures[index] += 1
        chance.shuffle(order)
        order.sort(key=lambda index: -failures[index])
    return best


def _choose(found: list[Rows | None], free: Mapping[int, Rows]) -> None:
    """Each name in turn takes its nearest place that is still free."""
    taken = np.vstack([np.empty((0, 8)), *(one for one in found if one is not None)])
    for index, rows in free.items():
        left = rows[~_clash(rows, taken)]
        if len(left):
            found[index] = left[0]
            taken = np.vstack([taken, left[:1]])


def _around(point: Rows, width: float, height: float) -> Rows:
    """Places for a name, the nearest first: a box, and the line from its point to the middle of its near side."""
    steps = [(far, angle, side) for far in DISTANCES for angle in DIRECTIONS for side in (1, -1)]
    far, angle, side = np.array(steps).T
    across, up = side * np.cos(np.radians(angle)), np.sin(np.radians(angle))
    x, y = point[0] + far * across, point[1] + far * up
    clear = np.minimum(CLEAR, far - 1)
    start = point[0] + clear * across, point[1] + clear * up
    ends = x, x + side * width
    return np.stack([np.minimum(*ends), y - height / 2, np.maximum(*ends), y + height / 2, *start, x, y], axis=1)


def _free(point: Rows, width: float, height: float, ground: Ground) -> Rows:
    """The places of a name where nothing is drawn yet."""
    rows = _around(point, width, height)
    inside = (rows[:, :2] >= ground.inside[:2]).all(axis=1) & (rows[:, 2:4] <= ground.inside[2:]).all(axis=1)
    rows = rows[inside]
    boxes, leaders = rows[:, :4], rows[:, 4:]
    marked = _meet(boxes, ground.boxes) | _cut(leaders, ground.boxes)
    return rows[~(marked.any(axis=1) | _cut(ground.lines, boxes).any(axis=0))]


def _clash(rows: Rows, taken: Rows) -> Rows:
    """Which places would cover a taken one or its line, or be led to through one."""
    (boxes, leaders), (others, lines) = np.hsplit(rows, 2), np.hsplit(taken, 2)
    clashes = _meet(boxes, others) | _cut(leaders, others) | _cut(lines, boxes).T | _cross(leaders, lines)
    return np.asarray(clashes.any(axis=1))


def _meet(boxes: Rows, others: Rows) -> Rows:
    one, other = boxes[:, None], others[None]
    return np.asarray((one[..., :2] < other[..., 2:]).all(axis=2) & (other[..., :2] < one[..., 2:]).all(axis=2))


def _cut(lines: Rows, boxes: Rows) -> Rows:
    """Whether a line passes through a box: it comes near, and the corners are not all on one side of it."""
    sides = np.stack([_side(lines, boxes[:, [x, y]]) for x in (0, 2) for y in (1, 3)])
    return _meet(_reach(lines), boxes) & (sides.min(axis=0) <= 0) & (sides.max(axis=0) >= 0)


def _cross(lines: Rows, others: Rows) -> Rows:
    apart = _side(lines, others[:, :2]) * _side(lines, others[:, 2:]) > 0
    apart |= (_side(others, lines[:, :2]) * _side(others, lines[:, 2:])).T > 0
    return _meet(_reach(lines), _reach(others)) & ~apart


def _reach(lines: Rows) -> Rows:
    """The box around a line."""
    ends = lines[:, :2], lines[:, 2:]
    return np.hstack([np.minimum(*ends) - 0.5, np.maximum(*ends) + 0.5])


def _side(lines: Rows, points: Rows) -> Rows:
    """For each line and point: positive on the left of the line, negative on its right."""
    x0, y0, x1, y1 = lines.T[:, :, None]
    return np.asarray((x1 - x0) * (points[:, 1] - y0) - (y1 - y0) * (points[:, 0] - x0))


def _ground(axes: Any) -> Ground:
    """What is drawn already: markers and words, arrows and lines."""
    boxes, lines = [], []
    for line in axes.lines:
        corners = line.get_transform().transform(line.get_xydata())
        if line.get_marker() == "None":
            lines += [[*start, *end] for start, end in pairwise(corners)]
        else:
            boxes += [[x - MARK, y - MARK, x + MARK, y + MARK] for x, y in corners]
    for text in axes.texts:
        if isinstance(text, Annotation):
            lines.append(axes.transData.transform([text.xyann, text.xy]).ravel())
        if text.get_text():
            boxes.append(text.get_window_extent().padded(GAP).extents)
    left, bottom, _, top = axes.bbox.extents
    inside = np.array([left, bottom, axes.figure.bbox.x1, top])  # there is room on the right of the axes
    return Ground(inside, np.reshape(boxes, (-1, 4)), np.reshape(lines, (-1, 4)))
