"""Experiment 3: the harness against what people use today, on the same closures, in one process, at equal time.

Both sides of every pair are the same code, so that a ratio that is not 1 is an error of the method.
"""

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tools.selftest.aa import subjects
from tools.selftest.binomial import clopper_pearson
from tools.selftest.models import Others, Promise, Standing, Timing
from tools.selftest.sessions import Bench, runnable
from tools.selftest.tree import CHAPTERS, lay_lanes

OURS = "this harness"
START_S, GRACE_S = 60.0, 30.0  # a fresh interpreter imports torch; what it is at when its time is up may take a while
FIRST = ("ch07:transpose", "ch01:cuda_graph", "ch01:gemm", "ch01:attention")  # where there is no time for all ten
FEWEST_REPEATS = 10  # of each method on each pair, for a promise
DIFFERENT = 0.01  # what a reader would take for a difference
CLEARLY = 1.645  # standard errors: 95% on one side
FLOOR_S = 30.0
LOOK_S = 5.0  # between two looks at what the process has written


def experiment(bench: Bench, scratch: Path) -> Others:
    """Every method on every pair, as often as the form says or the time allows."""
    found = Others(timings=[])
    keys = []
    for subject in sorted(subjects(bench.gpu), key=lambda s: s.key not in FIRST)[: bench.form.others_pairs]:
        laid = lay_lanes(scratch, subject, [0.0])
        if reason := runnable(bench, laid):
            found.skipped[subject.key] = reason
        else:
            keys.append(subject.key)
    if not bench.gpu:
        found.skipped["triton do_bench"] = "it times GPUs only"
    bench.say(f"others: {len(keys)} pairs, {bench.form.repeats} repeats of each method")
    seconds = bench.deadline - time.monotonic()
    asked = {"task": "others", "pairs": keys, "repeats": bench.form.repeats, "seconds": seconds}
    unable = dict(found.skipped)

    def keep(lines: list[dict[str, Any]]) -> None:
        found.skipped = unable | {line["failed"]: line["reason"] for line in lines if "failed" in line}
        found.timings = [Timing(**line) for line in lines if "failed" not in line]
        bench.keep(found)

    lines, error = ask(bench, scratch, asked, seconds + START_S + GRACE_S, keep)
    keep(lines)
    if error is not None:
        found.skipped["process"] = error
    return found


def floors(bench: Bench, scratch: Path) -> tuple[float, list[float]]:
    """The floor as a session prints it, and what an empty step reads in blocks. Raises RuntimeError if there is none.

    The pair that lends its closures is the short one, which is timed on the device where there is one.
    """
    subject = next(subject for subject in subjects(True) if subject.key == "ch01:short")
    lay_lanes(scratch, subject, [0.0])
    lines, error = ask(bench, scratch, {"task": "floors", "pairs": [subject.key]}, START_S + FLOOR_S)
    if error is not None or not lines:
        raise RuntimeError(f"the floor could not be measured: {error or 'the process said nothing'}")
    return lines[-1]["floor_us"], lines[-1]["empty_us"]


Lines = list[dict[str, Any]]


def ask(
    bench: Bench, root: Path, asked: dict[str, Any], limit_s: float, meanwhile: Callable[[Lines], None] = lambda _: None
) -> tuple[Lines, str | None]:
    """Have a process of its own do a task over the tree at `root`; its lines, and how it failed if it did.

    `meanwhile` hears now and then what lines there are so far.
    """
    folder = bench.folder / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    task, scratch = asked["task"], root / "scratch"
    scratch.mkdir(exist_ok=True)
    spec = {
        "root": str(root),
        "scratch": str(scratch),
        "device": bench.device,
        "uuid": bench.uuid,
        "size": bench.size,
        "seed": bench.seed,
        "samples": bench.form.others_samples,
    }
    (root / f"{task}.json").write_text(json.dumps(spec | asked))
    out, log = root / f"{task}.jsonl", folder / f"{task}.log"
    out.write_text("")
    command = [sys.executable, "-m", "tools.selftest.rival_process", str(root / f"{task}.json"), str(out)]
    with log.open("w") as output, subprocess.Popen(command, cwd=CHAPTERS, stdout=output, stderr=output) as process:
        try:
            error = _wait(process, limit_s, lambda: meanwhile(_lines(out)))
        finally:
            process.kill()
    return _lines(out), error and f"{error}; see {log}"


def _wait(process: "subprocess.Popen[bytes]", limit_s: float, meanwhile: Callable[[], None]) -> str | None:
    """Wait for its end; how it failed, if it did."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        try:
            code = process.wait(timeout=min(LOOK_S, max(0.0, until - time.monotonic())))
        except subprocess.TimeoutExpired:
            meanwhile()
        else:
            return f"the process ended with code {code}" if code else None
    return f"the process was not done after {limit_s:.0f} s and was ended"


def _lines(path: Path) -> Lines:
    """Those that are written whole."""
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


@dataclass(frozen=True)
class Row:
    """One method on one pair. Bias and spread are of the log ratio, so 0.01 is 1%."""

    pair: str
    method: str
    n: int
    bias: float
    spread: float | None  # none for a single comparison
    different: int  # ratios more than 1% from 1
    seconds: float  # mean of one comparison


def table(timings: Sequence[Timing]) -> list[Row]:
    """A row for each method on each pair, in the order in which they were first met."""
    groups: dict[tuple[str, str], list[Timing]] = {}
    for timing in timings:
        groups.setdefault((timing.pair, timing.method), []).append(timing)
    rows = []
    for (pair, method), taken in groups.items():
        logs = np.log([timing.ratio for timing in taken])
        rows.append(
            Row(
                pair=pair,
                method=method,
                n=len(taken),
                bias=float(logs.mean()),
                spread=float(logs.std(ddof=1)) if len(taken) > 1 else None,
                different=sum(abs(timing.ratio - 1) > DIFFERENT for timing in taken),
                seconds=float(np.mean([timing.seconds for timing in taken])),
            )
        )
    return rows


def _clearly_less(one: Row, other: Row) -> bool:
    """Whether the first spreads less, by more than chance would have it.

    The log ratio of two standard deviations, of n and m values, has an error of sqrt(1/(2(n-1)) + 1/(2(m-1))). A single
    comparison has no spread and tells nothing.
    """
    if one.spread is None or other.spread is None or one.spread >= other.spread:
        return False
    error = math.sqrt(0.5 / (one.n - 1) + 0.5 / (other.n - 1))
    return one.spread == 0 or math.log(other.spread / one.spread) > CLEARLY * error


def promises(found: Others) -> list[Promise]:
    """Ours has the smallest spread of the ratio on every kind, and the fewest false differences."""
    rows = table(found.timings)
    note = "; ".join(f"{what}: {why}" for what, why in found.skipped.items()) or None
    said = [_spread(pair, [row for row in rows if row.pair == pair]) for pair in dict.fromkeys(r.pair for r in rows)]
    return [*said, _differences(rows).model_copy(update={"note": note})]


def _differences(rows: Sequence[Row]) -> Promise:
    """Kept where no method has a smaller share of false differences; refuted where ours is clearly larger."""
    methods = dict.fromkeys(row.method for row in rows)
    counts = {m: sum(row.different for row in rows if row.method == m) for m in methods}
    trials = {m: sum(row.n for row in rows if row.method == m) for m in methods}
    others = [counts[m] / trials[m] for m in methods if m != OURS]
    standing: Standing = "not run"
    if OURS in counts and others:
        standing = "kept" if min(row.n for row in rows) >= FEWEST_REPEATS else "undecided"
        if counts[OURS] / trials[OURS] > min(others):
            clear = clopper_pearson(counts[OURS], trials[OURS])[0] > min(others)
            standing = "refuted" if clear else "undecided"
    return Promise(
        experiment="others",
        promise="fewest ratios of equal sides that are over 1% from 1",
        measured=", ".join(f"{method} {counts[method]} of {trials[method]}" for method in methods) or "-",
        bound="no method has fewer",
        standing=standing,
    )


def _spread(pair: str, rows: Sequence[Row]) -> Promise:
    """Kept where no method spreads less; refuted where one clearly does; else undecided."""
    ours = next((row for row in rows if row.method == OURS), None)
    others = [row for row in rows if row.method != OURS and row.spread is not None]
    standing: Standing = "not run"
    if ours is not None and ours.spread is not None and others:
        best, least = min(((row, row.spread or 0.0) for row in others), key=lambda item: item[1])
        standing = "kept" if min(ours.n, best.n) >= FEWEST_REPEATS else "undecided"
        if ours.spread > least:
            standing = "refuted" if _clearly_less(best, ours) else "undecided"
    cells = (
        f"{row.method} {'-' if row.spread is None else f'{row.spread:.2%}'} (bias {row.bias:+.2%}, "
        f"{row.different} of {row.n} over 1%, {row.seconds:.2f} s)"
        for row in rows
    )
    return Promise(
        experiment="others",
        promise=f"{pair}: the smallest spread of the ratio at equal time",
        measured="; ".join(cells) or "-",
        bound="no method spreads less",
        standing=standing,
    )
