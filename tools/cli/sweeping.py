"""`run PAIR --sweep batch=1,2,4,...,512`: one pair at each value of a figure, and the last value that pays."""

import csv
import re
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path

import typer

from common.python.base.interrupt import Interrupts
from common.python.base.results import PairResult
from common.python.base.text import text_table, wide_console
from common.python.report.rows import blame, gain_text, time_text, verdict_text
from common.python.run.options import Options
from common.python.run.suite import open_suite
from common.python.stats.verdict import lacked_memory
from tools.cli.exits import DONE, FAILED, INTERRUPTED, claims, exits, told, usage
from tools.cli.roofline import costs

PAYS = 1.1  # a larger value pays if its rate is at least this times the rate of the value before it
SIDES = ("baseline", "optimized")


@dataclass(frozen=True)
class Point:
    """One value. Times in us, rates in items a second, by side; a side that was not timed is not there."""

    value: int
    outcome: str  # the verdict and the gain, or why there is none
    us: dict[str, float]
    rate: dict[str, float]
    percent: float | None  # of the limit, of the optimized side


def figures(root: Path, targets: list[str], changes: list[str]) -> str | None:
    """What `--set` asks of a size, such as `n=4096,batch=2`. Raises the exit for what a pair has not."""
    if not changes:
        return None
    for change in changes:
        if not re.fullmatch(r"\w+=[1-9][0-9]*", change):
            raise usage(f"--set {change!r} is not of the form n=4096")
    with exits():
        for key, cost in costs(root, targets, ",".join(["bench", *changes])).items():
            if isinstance(cost, str):
                raise usage(f"--set {' '.join(changes)}: {key}: {cost}")
    return ",".join(changes)


def run_sweep(options: Options, text: str, wait: bool, as_json: bool) -> int:
    """Measure the pair at each value; the exit code. Raises the exit for what cannot be swept."""
    if options.resume or options.shard or as_json or options.size not in (None, "bench", "cpu", "test"):
        raise usage("--sweep goes with --size bench, cpu or test, and without --resume, --shard and --json")
    with exits():
        figure, values = read(text)
        fixed = f"{options.figure}," if options.figure else ""
        found = costs(options.root, options.targets, f"bench,{fixed}{figure}={values[0]}")
    if len(found) != 1:
        raise usage(f"--sweep measures one pair, and these targets are {len(found)}")
    (key, cost), code = *found.items(), DONE
    if isinstance(cost, str):
        raise usage(f"--sweep {text}: {cost}")
    points, unit = [], cost[0].unit or "steps"
    folder = options.artifacts_dir / f"sweep-{datetime.now(timezone.utc).strftime('%Y%m%dT%H%M%SZ')}"
    with Interrupts(told) as interrupts:
        for value in values:
            with ExitStack() as stack, exits(options.artifacts_dir):
                changed = replace(options, figure=f"{fixed}{figure}={value}")
                suite = open_suite(changed, lambda *news: None, lambda line: None, claims(stack, wait))
                suite.asked_to_stop = lambda: interrupts.asked
                summary = suite.run()
            if not summary.pairs:
                break
            result = summary.pairs[0]
            points.append(_point(value, result))
            typer.echo(f"{figure}={value}: {points[-1].outcome}")
            code = FAILED if result.failed and not lacked_memory(result) else code
    if points:
        _publish(folder, f"{key} by {figure}", figure, unit, points)
    return INTERRUPTED if interrupts.asked else code


def read(text: str) -> tuple[str, list[int]]:
    """A figure and its values, of `batch=1,2,4,...,512`. Raises ValueError.

    Dots go on as the numbers before them do: by the ratio of the last two if it is whole, and by their difference if it
    is not, or if three numbers differ by the same.
    """
    figure, _, words = text.partition("=")
    wrong = ValueError(f"--sweep {text!r} is not of the form batch=1,2,4,...,512")
    before, dots, last = words.partition(",...,")
    try:
        values, end = [int(word) for word in before.split(",")], int(last) if dots else None
    except ValueError:
        raise wrong from None
    if end is not None:
        if len(values) < 2:
            raise wrong
        step, (ratio, rest) = values[-1] - values[-2], divmod(values[-1], max(values[-2], 1))
        even = rest or (len(values) > 2 and values[-2] - values[-3] == step)
        while step > 0 and (following := values[-1] + step if even else values[-1] * ratio) <= end:
            values.append(following)
    if not figure or values[0] < 1 or values != sorted(set(values)):
        raise wrong
    return figure, values


def _point(value: int, result: PairResult) -> Point:
    own = result.headline
    if own is None or own.status != "measured" or result.verdict == "invalid":
        why = "out of memory" if lacked_memory(result) else f"{verdict_text(result, result)}: {blame(result)}"
        return Point(value, why, {}, {}, None)
    us = {side: us for side, row in zip(SIDES, (result.baseline, own)) if (us := result.us(row))}
    items = result.cost.items if result.cost and result.cost.items else 1.0
    rate = {side: items / spent * 1e6 for side, spent in us.items()}
    gain = gain_text(result, own) if result.trusted(own) else ""  # of a busy machine the times stay, as a hint
    outcome = f"{verdict_text(result, result)} {gain}".strip()
    return Point(value, outcome, us, rate, own.percent_of_limit)


def best(points: list[Point]) -> int | None:
    """The first value whose successor has less than PAYS times its rate; None if every value pays."""
    rates = [(point.value, point.rate["optimized"]) for point in points if "optimized" in point.rate]
    return next((value for (value, rate), (_, more) in pairwise(rates) if more < PAYS * rate), None)


def _publish(folder: Path, title: str, figure: str, unit: str, points: list[Point]) -> None:
    """The table, on the terminal and as CSV, and the chart."""
    folder.mkdir(parents=True)
    stops, lines = best(points), []
    for point in points:
        times = [time_text(point.us[side]) if side in point.us else "" for side in SIDES]
        rate = f"{point.rate['optimized']:,.0f}" if point.rate else ""
        mark = "  <- the next value gains less than 10%" if point.value == stops else ""
        share = f"{point.percent:.3g}%" if point.percent else ""
        lines.append((str(point.value), *times, rate, share, point.outcome + mark))
    wide_console().print(text_table((figure, *SIDES, f"{unit}/s", "% of limit", "verdict"), lines, title))
    with open(folder / "sweep.csv", "w", newline="", encoding="utf-8") as file:
        written = csv.writer(file)
        written.writerow((figure, "verdict", "baseline_us", "optimized_us", "percent_of_limit"))
        written.writerows((p.value, p.outcome, *map(p.us.get, SIDES), p.percent) for p in points)
    if any(point.us for point in points):
        _draw(folder / "sweep.svg", title, figure, unit, points, stops)
    typer.echo(f"results: {folder}")


def _draw(file: Path, title: str, figure: str, unit: str, points: list[Point], stops: int | None) -> None:
    """Rates above, times below, over the values."""
    from matplotlib.figure import Figure

    canvas = Figure(figsize=(7, 7), layout="constrained")
    for axes, label, of in zip(
        canvas.subplots(2, sharex=True), (f"{unit} per second", "us"), (lambda p: p.rate, lambda p: p.us)
    ):
        for side in SIDES:
            timed = [point for point in points if side in of(point)]
            axes.plot([point.value for point in timed], [of(point)[side] for point in timed], marker="o", label=side)
        axes.set(xscale="log", yscale="log", ylabel=label)
        if stops is not None:
            axes.axvline(stops, linestyle=":", color="grey", label=f"{figure} = {stops}: the next gains less than 10%")
        axes.legend()
    axes.set(xlabel=figure)
    canvas.suptitle(title)
    canvas.savefig(file)
