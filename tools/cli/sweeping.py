"""`run PAIR --sweep batch=1,2,4,...,512`: one pair at each value of a figure, and the last value that pays."""

import re
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

import typer

from common.python.base.interrupt import interrupts
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
TIMES = ("baseline_us", "optimized_us")


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
    if options.resume or options.shard or as_json:
        raise usage("--sweep goes without --resume, --shard and --json")
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
    with interrupts(told) as heard:
        for value in values:
            with ExitStack() as stack, exits(options.artifacts_dir):
                changed = replace(options, figure=f"{fixed}{figure}={value}")
                suite = open_suite(changed, lambda *news: None, lambda line: None, claims(stack, wait))
                suite.asked_to_stop = lambda: heard() > 0
                summary = suite.run()
            if not summary.pairs:
                break
            result = summary.pairs[0]
            points.append(_point(value, result))
            typer.echo(f"{figure}={value}: {points[-1]['verdict']}")
            code = FAILED if result.failed and not lacked_memory(result) else code
    if points:
        _publish(folder, f"{key} by {figure}", figure, unit, points)
    return INTERRUPTED if heard() else code


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


def _point(value: int, result: PairResult) -> dict[str, Any]:
    """One value: its outcome, and of each side that was timed the time in us and the rate in items a second."""
    own = result.headline
    if own is None or own.status != "measured" or result.verdict == "invalid":
        why = "out of memory" if lacked_memory(result) else f"{verdict_text(result, result)}: {blame(result)}"
        return {"value": value, "verdict": why}
    gain = gain_text(result, own) if result.trusted(own) else ""  # of a busy machine the times stay, as a hint
    point: dict[str, Any] = {"value": value, "verdict": f"{verdict_text(result, result)} {gain}".strip()}
    items = result.cost.items if result.cost and result.cost.items else 1.0
    for side, row in zip(SIDES, (result.baseline, own)):
        if us := result.us(row):
            point |= {f"{side}_us": us, side: items / us * 1e6}
    return point | {"percent_of_limit": own.percent_of_limit}


def best(points: list[dict[str, Any]]) -> int | None:
    """The first value whose successor has less than PAYS times its rate; None if every value pays."""
    rates = [(point["value"], point["optimized"]) for point in points if "optimized" in point]
    return next((value for (value, rate), (_, more) in pairwise(rates) if more < PAYS * rate), None)


def _publish(folder: Path, title: str, figure: str, unit: str, points: list[dict[str, Any]]) -> None:
    """The table, on the terminal and as CSV, and the chart: rates above, times below, over the values."""
    import pandas
    from matplotlib.figure import Figure

    folder.mkdir(parents=True)
    stops, lines = best(points), []
    for point in points:
        times = [time_text(point[name]) if name in point else "" for name in TIMES]
        rate = f"{point['optimized']:,.0f}" if "optimized" in point else ""
        mark = "  <- the next value gains less than 10%" if point["value"] == stops else ""
        share = f"{share:.3g}%" if (share := point.get("percent_of_limit")) else ""
        lines.append((str(point["value"]), *times, rate, share, point["verdict"] + mark))
    wide_console().print(text_table((figure, *SIDES, f"{unit}/s", "% of limit", "verdict"), lines, title))
    frame = pandas.DataFrame(points, columns=["value", "verdict", *TIMES, "percent_of_limit", *SIDES])
    frame = frame.rename(columns={"value": figure})
    frame.drop(columns=[*SIDES]).to_csv(folder / "sweep.csv", index=False)
    if frame[[*SIDES]].notna().any(axis=None):
        canvas = Figure(figsize=(7, 7), layout="constrained")
        canvas.suptitle(title)
        for axes, sides, label in zip(canvas.subplots(2), (SIDES, TIMES), (f"{unit} per second", "us")):
            frame.plot(x=figure, y=[*sides], ylabel=label, loglog=True, marker="o", ax=axes)
            if stops is not None:
                axes.axvline(stops, linestyle=":", color="grey", label=f"{stops}: the next gains less than 10%")
                axes.legend()
        canvas.savefig(folder / "sweep.svg")
    typer.echo(f"results: {folder}")
