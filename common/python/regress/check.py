"""A run held against what is expected of it: a row a pair, with a status that says whether anybody has to look.

A ratio is what is held, since drift cancels in it. It hides what slows both sides alike, so the optimized variant's own
time is held too, but loosely: clocks and heat of another day are in it.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

from common.python.base.results import STANDS_APART, Interval, Manifest, PairResult, VariantResult
from common.python.base.text import clean, counted
from common.python.corpus.targets import parse
from common.python.regress import environment
from common.python.regress.expectations import FEWEST_RUNS, Expectation, Time, over_runs
from common.python.regress.expectations import expected as read_expected
from common.python.regress.runs import own_time, where_further
from common.python.report.artifacts import Run
from common.python.report.markdown import interval_fields, variant_fields
from common.python.report.rows import blame, gain_text, interval_text, time_text
from common.python.stats.host_pace import MOST_PACE
from common.python.stats.intervals import MARGIN

Status = Literal["met", "improved", "regressed", "inconclusive", "failed", "new", "missing", "unsupported"]
STATUSES: tuple[Status, ...] = get_args(Status)
HELD_AGAINST = ("met", "improved", "regressed", "inconclusive")  # the statuses of what was measured and expected
LOSS = 0.03  # an expectation is met where the intervals exclude a loss of so much
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
    time: Time | None = None  # found, of the headline variant, with its interval over rounds

    def beside(self) -> list[str]:
        """The differences that its reason does not name already."""
        return [difference for difference in self.differences if difference not in self.reason]


def hold_run(run: Run, expected: dict[str, Expectation]) -> list[Held]:
    """A row for each pair of the run, and for each that its targets name, that is expected, and that it lacks."""
    found = {pair.key: hold(pair, expected.get(pair.key), run.about(pair)) for pair in run.summary.pairs}
    asked = [parse(word, Path()) for word in run.summary.manifest.targets]
    for key, one in expected.items():
        chapter, name = key.split(":", 1)
        if key not in found and any(target.is_in(chapter) and target.pair in (None, name) for target in asked):
            found[key] = Held(key, "missing", "expected, and the run has no result of it", expected=one)
    return list(found.values())


def statuses(run: Run, root: Path) -> dict[str, str] | None:
    """The status of each pair of a run that is held against an expectation, by key; None where nothing is expected.

    Raises ValueError naming a file of expectations that cannot be read.
    """
    device = environment.device_of(run.summary)
    known = read_expected(root, device) if device else {}
    rows = hold_run(run, known) if known else []
    return {row.key: row.status for row in rows if row.status in HELD_AGAINST} or None


def hold(found: PairResult, expected: Expectation | None, about: Manifest) -> Held:
    """One pair's row. What changed around it turns `regressed` and `improved` into `inconclusive`, with its name.

    So does a ratio that fell because the baseline gained, and an expectation of fewer than three runs: it does not know
    what differs from run to run.
    """
    row = Held(found.key, "new", "nothing is expected of it on this GPU", found=found, expected=expected)
    if found.failed:
        return replace(row, status="failed", reason=blame(found))
    if found.status != "measured":
        return replace(row, status="unsupported", reason=clean(found.reason or f"it was {found.status}, not measured"))
    if found.verdict == "too noisy":
        return replace(row, status="inconclusive", reason=clean(f"it is too noisy: {found.reason}"))
    row = replace(row, time=own_time(found))
    if expected is None:
        return row
    decisive, shown = _changes(found, expected, about)
    status, reason = _gain(found, expected)
    if status == "regressed":
        own, base = _moved(found, expected)
        if found.goal != "memory" and own and base and own <= 1 and base < 1 - TIME_MARGIN:  # as on a quicker host
            decisive.append("the baseline is faster and the variant no slower")
    elif (slower := _slower(row.time, expected)) and found.goal != "memory":
        status, reason = "regressed", slower
        decisive += _clock(found, expected, TIME_MARGIN)  # a time moves with the clock, a ratio hardly
    other = environment.differences(*map(environment.problem, (expected.result, found)))
    if other:
        status, reason = "inconclusive", f"not comparable: {', '.join(other)}"
    elif decisive and status in ("regressed", "improved"):
        status, reason = "inconclusive", f"{reason}; perhaps by what changed: {', '.join(decisive)}"
    if status != "met" and expected.runs < FEWEST_RUNS:
        runs = counted(expected.runs, "run")
        told = f"the expectation is provisional, of {runs} where {FEWEST_RUNS} are needed"
        status, reason = "inconclusive", f"{reason}; {told}"
    differences = list(dict.fromkeys([*decisive, *shown]))
    return replace(row, status=status, reason=clean(reason), differences=differences)


def _gain(found: PairResult, expected: Expectation) -> tuple[Status, str]:
    """The gain that the pair is about, against the one expected."""
    now, held = found.headline, expected.gain
    gain = found.gain(now) if now else None
    if now is None or gain is None or held is None:
        return "inconclusive", "one side has no interval: a run of both variants in two rounds or more has one"
    # The interval of a memory ratio is where a further run's lies: a run has one ratio, and most repeat exactly.
    further = where_further(expected.speedup) if expected.speedup and found.goal != "memory" else held
    told = f"{gain_text(found, now)}, expected {interval_text(held)}"
    status = compare_intervals(gain, held, further)
    if status == "inconclusive":
        return status, f"{told}: a loss of {LOSS:.0%} is not excluded"
    if status != "met" and found.goal != "memory":
        named = zip(("optimized", "baseline"), _moved(found, expected))  # a ratio does not say which side moved
        told += ": " + ", ".join(f"{role} time {moved - 1:+.1%}" for role, moved in named if moved)
    return status, "" if status == "met" else told


def compare_intervals(found: Interval, expected: Interval, further: Interval) -> Status:
    """The rule: apart by more than the margin, or so close that a loss of 3% is excluded, or neither.

    `further` is where one more run of the same code lies. Without it, where runs differ by more than their rounds do,
    one unchanged pair in ten would be called regressed; with it at most 3% are, as the tests hold it to.
    """
    if found.high < expected.low * (1 - MARGIN) and found.ratio < further.low:
        return "regressed"
    if found.low > expected.high * (1 + MARGIN) and found.ratio > further.high:
        return "improved"
    near = found.low >= expected.high * (1 - LOSS) and found.ratio >= further.high * (1 - LOSS)
    return "met" if near else "inconclusive"


def _moved(found: PairResult, expected: Expectation) -> list[float | None]:
    """The headline variant's time over the expected one, and the baseline's; None where one has none."""
    now, then = ([median_us(one, row) for row in (one.headline, one.baseline)] for one in (found, expected.result))
    return [a / b if a and b else None for a, b in zip(now, then)]


def _slower(time: Time | None, expected: Expectation) -> str | None:
    """Why the variant's own time is beyond what is expected of it, whatever the ratio says."""
    then = expected.time
    if time is None or then is None or time.low <= then.high * (1 + TIME_MARGIN):
        return None
    own, held = time_text(time.us), f"{time_text(then.us)} [{time_text(then.low)}, {time_text(then.high)}]"
    return f"its own time, {own}, is over {held} by more than {TIME_MARGIN:.0%}, whatever the baseline did"


def _changes(found: PairResult, expected: Expectation, about: Manifest) -> tuple[list[str], list[str]]:
    """What may explain another result, and what only goes with it. What an old file does not hold has not changed."""
    then = {name: fact for name, fact in expected.facts().items() if fact is not None}
    now = environment.facts_of_run(about, found.device)
    decisive = environment.differences(*({name: side[name] for name in then if name != "CPU"} for side in (then, now)))
    if environment.mode(about) != "usual":
        decisive.append(f"mode usual -> {environment.mode(about)}")
    decisive += [note for note in found.notes if note.startswith(STANDS_APART)]
    host = environment.differences({"CPU": then["CPU"]}, {"CPU": now["CPU"]}) if "CPU" in then else []
    host += environment.moved("host pace", expected.pace_us, environment.pace_us(found.blocks), MOST_PACE, "us")
    shown = _clock(found, expected, MARGIN)
    return (decisive + host, shown) if found.clock == "end_to_end" else (decisive, host + shown)


def _clock(found: PairResult, expected: Expectation, margin: float) -> list[str]:
    return environment.moved("SM clock", expected.sm_mhz, environment.sm_mhz(found.blocks), 1 + margin, "MHz")


def median_us(result: PairResult, row: VariantResult | None) -> float | None:
    """A variant's time on the headline clock, where it may be shown."""
    return result.us(row) if row and result.trusted(row) else None


def counts(rows: Sequence[Held]) -> str:
    """`40 met, 2 regressed, 14 inconclusive`."""
    found = Counter(row.status for row in rows)
    return ", ".join(f"{found[status]} {status}" for status in STATUSES if found[status]) or "no pairs"


SIDE = (
    *("speedup", "speedup_low", "speedup_high", "memory_ratio", "baseline_us", "optimized_us", "time_low", "time_high"),
    *("limit_us", "limit_by", "limit_source", "baseline_percent_of_limit", "percent_of_limit"),
    *("peer", "peer_ratio", "peer_ratio_low", "peer_ratio_high", "sm_mhz", "commit", "measured"),
)
FIELDS = (
    *("chapter", "pair", "status", "reason", "gpu", "size", "clock", "goal", "variant"),
    *("differences", "expected_runs"),
    *SIDE,
    *(f"expected_{name}" for name in SIDE),
    *("expected_memory_ratio_low", "expected_memory_ratio_high"),  # one run has no interval of memory
)


def proof_csv(rows: Sequence[Held], about: Manifest) -> str:
    """A line a pair: its status, both intervals, both times, both limits, and what differs around them."""
    import pandas  # slow to load

    lines = [_fields(row, about) for row in rows]
    return str(pandas.DataFrame(lines, columns=list(FIELDS), dtype=object).to_csv(index=False, lineterminator="\n"))


def _fields(row: Held, about: Manifest) -> dict[str, object]:
    chapter, name = row.key.split(":", 1)
    fields = dict[str, object]()
    if row.found:
        fields |= _side(row.found, row.time, environment.sm_mhz(row.found.blocks))
        fields |= {"commit": about.git_commit, "measured": about.started}
    if then := row.expected:
        side = _side(over_runs(then), then.time, then.sm_mhz)
        side |= interval_fields("memory_ratio", then.memory_ratio) | {"commit": then.commit, "measured": then.measured}
        fields |= {"expected_runs": then.runs} | {f"expected_{name}": value for name, value in side.items()}
    if either := row.found or (row.expected.result if row.expected else None):
        fields |= environment.problem(either) | {"gpu": either.device}
    fields |= {"chapter": chapter, "pair": name, "status": row.status, "reason": row.reason}
    fields["differences"] = "; ".join(row.differences)
    return {name: clean(value) if isinstance(value, str) else value for name, value in fields.items()}


def _side(result: PairResult, time: Time | None, sm_mhz: float | None) -> dict[str, object]:
    own, baseline = result.headline, result.baseline
    if own is None or not result.trusted(own):
        return {}
    return variant_fields(result, own) | {
        "baseline_us": median_us(result, baseline),
        "optimized_us": median_us(result, own),
        "time_low": time and time.low,
        "time_high": time and time.high,
        "baseline_percent_of_limit": baseline and baseline.percent_of_limit,
        "sm_mhz": sm_mhz,
    }
