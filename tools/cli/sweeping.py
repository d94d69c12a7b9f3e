"""`run PAIR --sweep batch=1,2,4,...,512`: one pair at each value of a figure, and the last value that pays."""

import json
import re
import sys
import time
from contextlib import redirect_stdout
from dataclasses import replace
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

import typer

from common.python.base.interrupt import SuiteTimeUp, interrupts
from common.python.base.results import PairResult
from common.python.report.rows import blame, gain_text, if_known, time_text, verdict_text
from common.python.report.tables import text_table, wide_console
from common.python.run.options import Options
from common.python.run.suite import open_suite
from common.python.stats.verdict import lacked_memory
from tools.cli.exits import DONE, FAILED, INTERRUPTED, age_s, claims, told
from tools.cli.roofline import costs

WORD = r"[^,=\s.][^,=\s]*"
PAYS = 1.1  # a larger value pays if its rate is at least this times the rate of the value before it
Value = int | float | str
SIDES = ("baseline", "optimized")
TIMES = ("baseline_us", "optimized_us")
COLUMNS = ("value", "verdict", *TIMES, "percent_of_limit")


def figures(root: Path, targets: list[str], changes: list[str], sweep: str | None = None) -> str | None:
    """What `--set` asks of a size, such as `n=4096,batch=2`. Raises ValueError for what a pair has not or has twice."""
    if not changes:
        return None
    for change in changes:
        if not re.fullmatch(r"\w+=[^,=\s]+", change):
            raise ValueError(f"--set {change!r} is not of the form n=4096 or dtype=fp16")
    asked = [change.partition("=")[0] for change in (*changes, sweep or "")]
    if twice := next((name for name in asked if asked.count(name) > 1), None):
        raise ValueError(f"{twice} is given {asked.count(twice)} times: give each figure once, by --set or --sweep")
    for key, cost in costs(root, targets, ",".join(["bench", *changes])).items():
        if isinstance(cost, str):
            raise ValueError(f"--set {' '.join(changes)}: {key}: {cost}")
    return ",".join(changes)


def run_sweep(options: Options, text: str, wait: bool, as_json: bool) -> int:
    """Measure the pair at each value; the exit code. Raises ValueError for what cannot be swept.

    The first failure ends it with --fail-fast, and the time of the suite is that of all values together.
    With `as_json` stdout gets the points and what they are of as one JSON object, and stderr all else.
    """
    figure, values = read(text)
    fixed = f"{options.figure}," if options.figure else ""
    each = [f"{figure}={value}" for value in reversed(values)]  # all are read, and the last one that is read stands
    found = costs(options.root, options.targets, f"bench,{fixed}{','.join(each)}")
    if len(found) != 1:
        raise ValueError(f"--sweep measures one pair, and these targets are {len(found)}")
    (key, cost), code = *found.items(), DONE
    if isinstance(cost, str):
        raise ValueError(f"--sweep {text}: {cost}")
    points, left, unit, began = [], [*values], cost[0].unit or "steps", time.monotonic() - age_s()
    folder = options.artifacts_dir / f"sweep-{datetime.now(timezone.utc).strftime('%Y%m%dT%H%M%SZ')}"
    with interrupts(told) as heard, redirect_stdout(sys.stderr if as_json else sys.stdout):
        try:
            while left and not (options.fail_fast and code == FAILED):
                with claims(wait) as claim:
                    changed = replace(options, figure=f"{fixed}{figure}={left[0]}")
                    suite = open_suite(changed, lambda *news: None, lambda line: None, claim, began)
                    suite.asked_to_stop = lambda: heard() > 0
                    summary = suite.run()
                if not summary.pairs:
                    break
                value, result = left.pop(0), summary.pairs[0]
                points.append(_point(value, result))
                typer.echo(f"{figure}={value}: {points[-1]['verdict']}")
                code = FAILED if result.failed and not lacked_memory(result) else code
        except SuiteTimeUp as error:
            told(str(error))
        if points:
            _publish(folder, f"{key} by {figure}", figure, unit, points)
    if as_json:
        of = {"key": key, "figure": figure, "unit": unit, "folder": str(folder) if points else None}
        lines = [{name: point.get(name) for name in COLUMNS} for point in points]
        print(json.dumps(of | {"points": lines}, indent=1))
    if left:
        told(f"not measured: {figure}={','.join(map(str, left))}")
    return INTERRUPTED if heard() else FAILED if left else code


def read(text: str) -> tuple[str, list[Value]]:
    """A figure and its values, of `batch=1,2,4,...,512` or `dtype=bf16,fp16`. Raises ValueError.

    Dots go on by the ratio of the two numbers before them.
    """
    wrong = ValueError(f"--sweep {text!r} is not of the form batch=1,2,4,...,512 (rising) or dtype=bf16,fp16")
    if not (form := re.fullmatch(rf"(\w+)=({WORD}(?:,{WORD})*)(?:,\.\.\.,(\d+))?", text)):
        raise wrong
    figure, words, end = form[1], form[2].split(","), form[3]
    try:
        values = [int(word) if word.isdecimal() else float(word) for word in words]
    except ValueError as error:  # words, of which no order is known
        if end or len(set(words)) < len(words):
            raise wrong from error
        return figure, [*words]
    if values != sorted(set(values)):
        raise wrong
    if end:
        ratio, rest = divmod(values[-1], values[-2]) if len(values) > 1 and values[-2] else (0, 0)
        if ratio < 2 or rest:
            raise ValueError(f"--sweep {text}: dots go on by a whole ratio of two numbers, such as 4,8,...,64")
        while values[-1] < int(end):
            values.append(values[-1] * int(ratio))
        if values[-1] != int(end):
            near = f"{values[-2]} or {values[-1]}"
            raise ValueError(f"--sweep {text}: each is {ratio} times the one before, so end with {near}")
    return figure, [*values]


def _point(value: Value, result: PairResult) -> dict[str, Any]:
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
    sure = point.get("optimized") if result.trusted(own) else None
    return point | {"percent_of_limit": own.percent_of_limit, "sure": sure}


def best(points: list[dict[str, Any]]) -> int | float | None:
    """The first number whose successor has less than PAYS times its rate; None if none. One too noisy tells nothing."""
    rates = [(point["value"], point.get("sure")) for point in points if not isinstance(point["value"], str)]
    return next((value for (value, rate), (_, more) in pairwise(rates) if rate and more and more < PAYS * rate), None)


def _publish(folder: Path, title: str, figure: str, unit: str, points: list[dict[str, Any]]) -> None:
    """The table, on the terminal and as CSV, and the chart: rates above, times below, over the values."""
    import pandas
    from matplotlib.figure import Figure

    folder.mkdir(parents=True)
    stops, lines = best(points), []
    for point in points:
        times = [if_known(point.get(name), time_text) for name in TIMES]
        rate = if_known(point.get("optimized"), "{:,.0f}".format)
        share = if_known(point.get("percent_of_limit"), "{:.3g}%".format)
        mark = "  <- the next value gains less than 10%" if point["value"] == stops else ""
        lines.append((str(point["value"]), *times, rate, share, point["verdict"] + mark))
    wide_console().print(text_table((figure, *SIDES, f"{unit}/s", "% of limit", "verdict"), lines, title))
    frame = pandas.DataFrame(points, columns=[*COLUMNS, *SIDES]).rename(columns={"value": figure})
    frame.drop(columns=[*SIDES]).to_csv(folder / "sweep.csv", index=False)
    if frame[[*SIDES]].notna().any(axis=None):
        canvas = Figure(figsize=(7, 7), layout="constrained")
        canvas.suptitle(title)
        how = {"kind": "bar", "rot": 0} if isinstance(points[0]["value"], str) else {"loglog": True, "marker": "o"}
        for axes, sides, label in zip(canvas.subplots(2), (SIDES, TIMES), (f"{unit} per second", "us")):
            frame.plot(x=figure, y=[*sides], ylabel=label, ax=axes, **how)
            if stops is not None:
                axes.axvline(stops, linestyle=":", color="grey", label=f"{stops}: the next gains less than 10%")
                axes.legend()
        canvas.savefig(folder / "sweep.svg")
    typer.echo(f"results: {folder}")
