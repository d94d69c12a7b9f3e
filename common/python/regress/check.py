"""A run held against what is expected of it: a row a pair, with a status that says whether anybody has to look.

A ratio is what is held, since drift cancels in it: an interval wholly below the expectation's by more than the margin
of 1% is a regression, if runs of the same code do not differ by as much. How small a loss would have shown is told
beside it: hosts that differ hide one of 3%. A ratio hides what slows both sides alike, so the optimized variant's own
time is held too, but loosely: clocks and heat of another day are in it.
"""

from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from common.python.base.results import Interval, Manifest, PairResult, VariantResult
from common.python.base.text import clean
from common.python.corpus.targets import parse
from common.python.regress import environment
from common.python.regress.expectations import FEWEST_RUNS, Expectation, Time
from common.python.regress.runs import blame, own_time, where_further
from common.python.report.artifacts import Run
from common.python.report.rows import headline_spread, interval_text, memory_text, time_text, trusted
from common.python.stats.host_pace import MOST_PACE
from common.python.stats.intervals import MARGIN
from common.python.stats.verdict import failed, headline_row

Status = Literal["met", "improved", "regressed", "inconclusive", "failed", "new", "missing", "unsupported"]
STATUSES: tuple[Status, ...] = get_args(Status)
LOSS = 0.03  # an expectation is met where the intervals exclude a loss of so much
UNSURE = f"a loss of {LOSS:.0%} is not excluded"
TIME_MARGIN = 0.05  # a bf16 GEMM wanders by 5-6% at the power cap of an H200


@dataclass(frozen=True)
class Held:
    """One pair, as found and as expected; None is the side that there is not."""

    key: str
    status: Status
    reason: str = ""
    differences: list[str] = field(default_factory=list)  # in what the two measurements depend on
    found: PairResult | None = None
    expected: Expectation | None = None
    time: Time | None = None  # found, of the variant that speaks, with its interval over rounds
    smallest_loss: float | None = None  # of its gain that would have been called regressed, 0 to 1; None if none would


def hold_run(run: Run, expected: dict[str, Expectation]) -> list[Held]:
    """A row for each pair of the run, and for each that its targets name, that is expected, and that it lacks."""
    about = run.summary.manifest
    rows = [hold(pair, expected.get(pair.key), about) for pair in run.summary.pairs]
    asked = [target for text in about.targets for target in parse(text)]
    there = {row.key for row in rows}
    for key, one in expected.items():
        chapter, name = key.split(":", 1)
        if key not in there and any(target.chapter == chapter and target.pair in (None, name) for target in asked):
            rows.append(Held(key, "missing", "expected, and the run has no result of it", expected=one))
    return rows


def hold(found: PairResult, expected: Expectation | None, about: Manifest) -> Held:
    """One pair's row. What changed around it turns `regressed` and `improved` into `inconclusive`, with its name.

    So does a ratio that fell because the baseline gained, and an expectation of fewer than three runs: it does not know
    what differs from run to run.
    """
    row = Held(found.key, "new", "nothing is expected of it on this GPU", found=found, expected=expected)
    if failed(found):
        return replace(row, status="failed", reason=clean(blame(found)))
    if found.status != "measured":
        return replace(row, status="unsupported", reason=clean(found.reason or f"it was {found.status}, not measured"))
    if found.verdict == "too noisy":
        return replace(row, status="inconclusive", reason=clean(f"it is too noisy: {found.reason}"))
    time = own_time(found)
    if expected is None:
        return replace(row, time=time)
    decisive, shown = _changes(found, expected, about)
    status, reason, smallest = _gain(found, expected)
    if status == "regressed" and found.goal != "memory":
        decisive += _baseline_gained(found, expected)
    slow = _slower(time, expected) if found.goal != "memory" and status != "regressed" else None
    if slow is not None:
        status, reason = "regressed", slow
        decisive += _clock(found, expected, TIME_MARGIN)  # a time moves with the clock, a ratio hardly
    if other := _another_problem(found, expected):
        status, reason = "inconclusive", f"not comparable: {', '.join(other)}"
    elif decisive and status in ("regressed", "improved"):
        status, reason = "inconclusive", f"{reason}; perhaps by what changed: {', '.join(decisive)}"
    if status != "met" and expected.runs < FEWEST_RUNS:
        of = f"{expected.runs} run{'s' * (expected.runs != 1)}"
        told = f"the expectation is provisional, of {of} where {FEWEST_RUNS} are needed"
        status, reason = "inconclusive", f"{reason}; {told}"
    if other or decisive or expected.runs < FEWEST_RUNS:
        smallest = None
    elif status == "inconclusive" and smallest is not None:
        reason = f"{reason}; the smallest that would show is {smallest:.1%}"
    differences = list(dict.fromkeys([*decisive, *shown]))
    return replace(row, status=status, reason=clean(reason), differences=differences, time=time, smallest_loss=smallest)


def _gain(found: PairResult, expected: Expectation) -> tuple[Status, str, float | None]:
    """The gain that the pair is about, against the one expected; and the smallest loss of it that would show."""
    now, then = headline_row(found), headline_row(expected.result)
    if found.goal == "memory":
        ratios = [row.memory_ratio if row else None for row in (now, then)]
        return _memory(ratios[0], ratios[1], expected.memory_ratio)
    if now is None or now.speedup is None or expected.gain is None:
        return "inconclusive", "one side has no interval: a run of both variants in two rounds or more has one", None
    further = where_further(expected.speedup) if expected.speedup else expected.gain
    status = compare_intervals(now.speedup, expected.gain, further)
    smallest = smallest_loss(now.speedup, expected.gain, further)
    told = f"{interval_text(now.speedup)}, expected {interval_text(expected.gain)}"
    if status == "inconclusive":
        return status, f"{told}: {UNSURE}", smallest
    return status, "" if status == "met" else f"{told}: {_moves(found, expected)}", smallest


def compare_intervals(found: Interval, expected: Interval, further: Interval) -> Status:
    """The rule: apart by more than the margin, or so close that a loss of 3% is excluded, or neither.

    `further` is where one more run of the same code lies. A run's interval knows of its rounds, the expectation's of
    the mean of its runs: by these two alone, where runs differ by more than their rounds do, one unchanged pair in ten
    would be called regressed, and the more of them the more runs the expectation is of.

    With expectations of three runs of eight rounds, where the rounds' log ratios have a standard deviation of 0.3%, it
    sees 99% of losses of 3% and calls fewer than 1 in 1,000 unchanged pairs regressed; however far runs differ, it
    calls at most 3% of them so (the tests hold it to that).
    """
    if found.high < expected.low * (1 - MARGIN) and found.ratio < further.low:
        return "regressed"
    if found.low > expected.high * (1 + MARGIN) and found.ratio > further.high:
        return "improved"
    near = found.low >= expected.high * (1 - LOSS) and found.ratio >= further.high * (1 - LOSS)
    return "met" if near else "inconclusive"


def smallest_loss(found: Interval, expected: Interval, further: Interval) -> float:
    """The loss of the expected ratio beyond which a run whose interval is as wide as this one's is called regressed."""
    return 1 - min(expected.low * (1 - MARGIN) * found.ratio / found.high, further.low) / expected.ratio


def _memory(now: float | None, then: float | None, over: Interval | None) -> tuple[Status, str, float | None]:
    """A run has one peak of memory a side, so only runs say how far their ratio wanders: most repeat exactly."""
    if now is None or then is None:
        return "inconclusive", "there is no peak memory on both sides", None
    found, expected = _point(now), over or _point(then)
    status, smallest = compare_intervals(found, expected, expected), smallest_loss(found, expected, expected)
    told = f"{memory_text(now)}, expected {interval_text(over) if over else memory_text(then)}"
    if status == "inconclusive":
        return status, f"{told}: {UNSURE}", smallest
    return status, "" if status == "met" else told, smallest


def _point(ratio: float) -> Interval:
    return Interval(ratio=ratio, low=ratio, high=ratio, rounds=1)


def _moves(found: PairResult, expected: Expectation) -> str:
    """`optimized time +3.1%, baseline time +0.0%`: a ratio alone does not say which side moved."""
    named = zip(("optimized", "baseline"), _moved(found, expected))
    return ", ".join(f"{role} time {moved - 1:+.1%}" for role, moved in named if moved)


def _moved(found: PairResult, expected: Expectation) -> list[float | None]:
    """The time of the variant that speaks over the expected one, and the baseline's; None where one has none."""
    moved: list[float | None] = []
    for now, then in zip(sides(found), sides(expected.result)):
        times = [median_us(result, row) for result, row in ((found, now), (expected.result, then))]
        moved.append(times[0] / times[1] if times[0] and times[1] else None)
    return moved


def _baseline_gained(found: PairResult, expected: Expectation) -> list[str]:
    """That a ratio fell because the baseline gained and the variant lost nothing, as on a host that is quicker."""
    own, base = _moved(found, expected)
    gained = own is not None and base is not None and own <= 1 and base < 1 - TIME_MARGIN
    return ["the baseline is faster and the variant no slower"] if gained else []


def _slower(time: Time | None, expected: Expectation) -> str | None:
    """Why the variant's own time is beyond what is expected of it, whatever the ratio says."""
    then = expected.time
    if time is None or then is None or time.low <= then.high * (1 + TIME_MARGIN):
        return None
    return (
        f"its own time, {time_text(time.us)}, is over {time_text(then.us)} [{time_text(then.low)}, "
        f"{time_text(then.high)}] by more than {TIME_MARGIN:.0%}, whatever the baseline did"
    )


def _changes(found: PairResult, expected: Expectation, about: Manifest) -> tuple[list[str], list[str]]:
    """What may explain another result, and what only goes with it. What an old file does not hold has not changed."""
    then = {name: fact for name, fact in expected.facts().items() if fact is not None}
    now = environment.facts_of_run(about, found.device)
    decisive = environment.differences(*({name: side[name] for name in then if name != "CPU"} for side in (then, now)))
    if environment.mode(about) != "usual":
        decisive.append(f"mode usual -> {environment.mode(about)}")
    host = environment.differences({"CPU": then["CPU"]}, {"CPU": now["CPU"]}) if "CPU" in then else []
    host += environment.moved("host pace", expected.pace_us, environment.pace_us(found.blocks), MOST_PACE, "us")
    shown = _clock(found, expected, MARGIN)
    return (decisive + host, shown) if found.clock == "end_to_end" else (decisive, host + shown)


def _clock(found: PairResult, expected: Expectation, margin: float) -> list[str]:
    return environment.moved("SM clock", expected.sm_mhz, environment.sm_mhz(found.blocks), 1 + margin, "MHz")


def _another_problem(found: PairResult, expected: Expectation) -> list[str]:
    """What makes the two the answers to different questions: another size, clock or goal, or another variant."""
    problems = []
    for pair in (expected.result, found):
        row, shape = headline_row(pair), " ".join(f"{name}={value}" for name, value in pair.shape.items())
        name = row.name if row else None
        problems.append({"size": pair.size, "shape": shape, "clock": pair.clock, "goal": pair.goal, "variant": name})
    return environment.differences(*problems)


def sides(result: PairResult) -> tuple[VariantResult | None, VariantResult | None]:
    """The variant that speaks, and the baseline."""
    return headline_row(result), next((row for row in result.variants if row.role == "baseline"), None)


def median_us(result: PairResult, row: VariantResult | None) -> float | None:
    """A variant's time on the headline clock, where it may be shown."""
    spread = headline_spread(result, row) if row and trusted(result, row) else None
    return spread.median if spread else None
