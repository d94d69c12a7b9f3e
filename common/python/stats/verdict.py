"""From samples to a row: arithmetic on what a session recorded, which anyone can do again from its files."""

import math
import re
from collections.abc import Sequence
from statistics import median
from typing import Any

from common.python.base.results import CONTROL, Block, ClockName, Cost, Interval, PairResult, VariantResult, Verdict
from common.python.performance_targets import Peaks, datasheet_peaks, impossible, limit, rates
from common.python.stats import intervals
from common.python.stats.host_pace import MOST_PACE, SLOW_HOST, discard_slow_host, pace_deviation, pace_reach
from common.python.stats.sampling_plan import FEWEST_ROUNDS, MOST_ROUNDS, PRECISE, ROUNDS
from common.python.stats.timing_sanity import too_noisy, undecided, untrue

NEAR_FLOOR = 10.0
OUT_OF_MEMORY = re.compile(r"out of memory|OutOfMemory|MemoryError|ALLOC_FAILED|killed by SIGKILL")  # in a reason
LATE_SHARE = 0.05  # of device samples, beyond which late ones are noted
BEYOND = 105.0  # % of limit: the peak's best sample may be as fast, or a cache may hold what need not move
OF_MEMORY: dict[Verdict, Verdict] = {"faster": "smaller", "slower": "larger"}
WORSE = ("slower", "larger")
PACE_PART = 0.5  # deviation of ratios between rounds over that of the host's pace, for a side that is all host time

HINTS = {  # by a pattern in a reason that says what happened: what helps
    r"no answer within.*rank \d": (
        "all ranks must call the same collectives in the same order; their logs have the stacks"
    ),
    "no answer within": "its log ends with the stack; a step that needs longer needs --timeout-multiplier",
    "illegal memory access|misaligned address|device-side assert|unspecified launch failure": (
        "scripts/sanitize.sh on this pair names the kernel and the line"
    ),
    "out of memory|can't allocate memory|MemoryError": "declare what it needs: needs(memory_gib=, host_memory_gib=)",
    "killed by SIGKILL": "so ends a process when host memory runs out: see dmesg",
    "killed by SIG": "its log ends with the stack",
    "exited with code": "a step returns: it must not end its process",
    "ModuleNotFoundError": "declare what is not always there: requires = needs(modules=[...])",
    "Too many open files": "close in a step what it opens",
    "on inputs that it has not seen": "only what depends on Workload.frozen may be worked out once and kept",
    "against itself, reads|waited for a core|that of another process": (
        "run it again without other work on this machine, or with a larger --budget"
    ),
    "NaN or infinity": "outputs are filled with NaN before each proof: one that is not written keeps it",
}


def hint(reason: str | None) -> str | None:
    """What helps against this reason, if that is known."""
    return next((text for pattern, text in HINTS.items() if re.search(pattern, reason or "")), None)


def judge(result: PairResult, peaks: Peaks | None) -> PairResult:
    """The result with every derived number filled in: spreads, speedups, limit, peer ratio, verdicts, notes."""
    own: dict[str, list[Any]] = {"notes": [*result.notes]}  # what is written below; samples are not, and are many
    own |= {"blocks": [b.model_copy() for b in result.blocks], "variants": [v.model_copy() for v in result.variants]}
    result = result.model_copy(update=own)
    discard_slow_host(result)
    result.discarded_blocks = sum(block.discarded is not None for block in result.blocks)
    result.limit = limit(_phases(result), peaks, result.floor_us if result.clock == "device" else None)
    for row in result.variants:
        _describe(row, result)
    _compare_with_baseline(result)
    for row in result.variants:
        row.verdict = _verdict(row, result, peaks)
    _compare_with_peers(result)
    _compare_with_ref(result)
    _pair_row(result)
    return result


def enough(result: PairResult, names: Sequence[str], rounds: int, late: bool) -> bool:
    """Eight rounds and a narrow interval of each of `names`, or at least three rounds where time is up (`late`).

    While the control is off there are more, up to eight even where it is `late`: a few noisy rounds may do that by
    chance.
    """
    if rounds < FEWEST_ROUNDS or (rounds < ROUNDS and not late):
        return False
    discard_slow_host(result)
    baseline, clock = f"baseline_{result.name}", result.clock or "device"
    control = _control(result)
    if control is not None and not intervals.control_ok(control) and rounds < (ROUNDS if late else MOST_ROUNDS):
        return False
    found = [intervals.compare(result.blocks, baseline, name, clock) for name in names]
    return late or all(ratio is not None and intervals.half_width(ratio) < PRECISE for ratio in found)


def times(blocks: list[Block], variant: str, clock: ClockName) -> list[float]:
    """Every time of a variant on a clock, in the order taken, discarded blocks left out; microseconds."""
    return [us for block in blocks if block.discarded is None for us in block.times(variant, clock)]


def lacked_memory(result: PairResult) -> bool:
    """Whether it may have failed because others had the memory, of the device or its host."""
    return result.failed and bool(OUT_OF_MEMORY.search(f"{result.reason} {[row.reason for row in result.variants]}"))


def _phases(result: PairResult) -> list[Cost]:
    return result.phases or ([result.cost] if result.cost else [])


def _describe(row: VariantResult, result: PairResult) -> None:
    row.device = intervals.spread(times(result.blocks, row.name, "device"))
    row.wall = intervals.spread(times(result.blocks, row.name, "end_to_end"))
    main = result.spread(row)
    if main is None:
        return
    if row.status not in ("failed", "unsupported"):
        row.status = "measured"
    if result.cost:
        row.rates = rates(result.cost, main.median, datasheet_peaks(result.device or ""))
    if result.limit:
        row.percent_of_limit = 100 * result.limit.us / main.median


def _compare_with_baseline(result: PairResult) -> None:
    baseline = result.baseline
    if baseline is None or not result.blocks:
        return
    result.control = _control(result)
    for row in result.variants:
        if row.role != "baseline":
            row.speedup = _ratio(result, baseline, row)
            if baseline.why and row.why and baseline.why.peak_bytes and row.why.peak_bytes:
                row.memory_ratio = baseline.why.peak_bytes / row.why.peak_bytes


def _control(result: PairResult) -> Interval | None:
    """The baseline against itself. Blocks of a slow host count, which is slow for both.

    Samples on new inputs do not, where a block has others: the first to run may ask for memory that both then have.
    """
    baseline = result.baseline
    if baseline is None:
        return None
    blocks = [block.model_copy() for block in result.blocks]
    for block in blocks:
        seen = [sample for sample in block.samples if not sample.fresh]
        if {f"baseline_{result.name}", CONTROL} <= {sample.variant for sample in seen}:
            block.samples = seen
        block.discarded = None if block.discarded == SLOW_HOST else block.discarded
    return _ratio(result, baseline, baseline.model_copy(update={"name": CONTROL}), blocks)


def _ratio(
    result: PairResult, above: VariantResult, below: VariantResult, blocks: Sequence[Block] | None = None
) -> Interval | None:
    """Time over time; where the host has a part in the times, with an interval that another run would fall into too."""
    blocks, clock = result.blocks if blocks is None else blocks, result.clock or "device"
    ratios = intervals.round_log_ratios(blocks, above.name, below.name, clock)
    if len(ratios) < 2:  # one that failed has no times
        return None
    if clock == "device":
        return intervals.interval(ratios)
    shares = host_share(blocks, above), host_share(blocks, below)
    spares = [spare(result, row) for row in (above, below)]

    def moved(pace: float) -> list[float]:
        return [min(share * pace, most) for share, most in zip(shares, spares)]

    deviation = pace_deviation([result]) if result.pace_deviation is None else result.pace_deviation
    found = intervals.interval(ratios, clock, PACE_PART * max(moved(deviation)))
    one, other = moved(pace_reach(blocks, result.best_pace_us))
    return found and intervals.widened(found, abs(one - other))


def spare(result: PairResult, row: VariantResult) -> float:
    """How far a faster host can lower the log of a variant's time: by the device's idle time. Infinite if unknown."""
    main = result.spread(row)
    return max(0.0, math.log(main.median / row.why.busy_us)) if main and row.why and row.why.busy_us else math.inf


def host_share(blocks: Sequence[Block], row: VariantResult) -> float:
    """The share of a variant's end-to-end time, from 0 to 1, that goes with the host's pace: until the call returns.

    Where a step waits for the device inside the call, it is at most the time that the profile shows the device idle.
    """
    samples = [s for block in blocks if block.discarded is None for s in block.samples if s.variant == row.name]
    share = median([min(1.0, s.host_us / s.wall_us) for s in samples if s.wall_us])
    if row.why and row.why.syncs and row.why.busy_us and row.wall:
        share = min(share, max(0.0, 1 - row.why.busy_us / row.wall.median))
    return share


def _compare_with_peers(result: PairResult) -> None:
    """The best sound peer against a sound headline, in time or in bytes; one worse than the baseline is no peer."""
    own, rows = result.headline, [row for row in result.variants if row.role == "peer" and row.sound]
    gains = [(gain, row) for row in rows if row.verdict not in WORSE and (gain := result.gain(row))]
    result.best_peer, result.peer_ratio = None, None
    if own is not None and own.sound and result.gain(own) and gains:
        best = max(gains, key=lambda peer: peer[0].ratio)[1]
        result.best_peer, result.peer_ratio = best.label, _gain_over(result, best, own)


def _compare_with_ref(result: PairResult) -> None:
    """Compare each rung with what it was at the commit of --against."""
    refs = [row for row in result.variants if row.role == "ref" and row.sound]
    for row in result.variants:
        own = [ref for ref in refs if ref.name.startswith(f"{row.name}@")]
        row.against = _gain_over(result, own[0], row) if own and row.sound else None


def _gain_over(result: PairResult, other: VariantResult, own: VariantResult) -> Interval | None:
    """Another variant's time over a variant's; bytes over bytes where they are the goal."""
    if result.goal != "memory":
        return _ratio(result, other, own)
    return Interval.point(own.memory_ratio / other.memory_ratio) if own.memory_ratio and other.memory_ratio else None


def _verdict(row: VariantResult, result: PairResult, peaks: Peaks | None) -> Verdict | None:
    if row.verdict == "invalid" or row.status != "measured":
        row.speedup, row.memory_ratio = None, None  # times that are not proven compare with nothing
        return row.verdict
    main = result.spread(row)
    invalid = impossible(_phases(result), main.median, peaks) or untrue(row, result) if main else None
    if reason := invalid or too_noisy(row, result):
        row.reason, row.speedup, row.memory_ratio = reason, None, None
        return "invalid" if invalid else "too noisy"
    if row.role == "baseline" or result.baseline is None:
        return None
    if row.speedup is None:
        return "inconclusive"
    if result.goal == "memory":
        gain = result.gain(row)
        return OF_MEMORY.get(said := intervals.verdict(gain), said)
    return intervals.verdict(row.speedup) if row.speedup.rounds >= FEWEST_ROUNDS else "inconclusive"


def _pair_row(result: PairResult) -> None:
    own = result.headline
    if own is None:
        return
    baseline = result.baseline
    speaks = baseline if baseline and (baseline.status == "failed" or baseline.verdict == "invalid") else own
    if result.status != "failed":
        result.status = "failed" if own.status == "failed" else speaks.status
        result.verdict = "invalid" if speaks.verdict == "invalid" else own.verdict
        result.reason = result.reason or speaks.reason
    result.hint = hint(result.reason)
    result.notes += [note for note in (*undecided(result), *_notes(result)) if note not in result.notes]


def _notes(result: PairResult) -> list[str]:
    notes = []
    own = result.headline
    if own is not None and own.role == "optimized" and own.name != f"optimized_{result.name}":
        notes.append(f"the rung {own.label} speaks for the pair: optimized_{result.name} is not timed here")
    peers = [row for row in result.variants if row.role == "peer" and row.sound]
    if peers and all(row.verdict in WORSE for row in peers):
        told = ", ".join(f"{row.label} {gain.ratio:.3g}x" for row in peers if (gain := result.gain(row)))
        notes.append(f"no peer to compare with, as each is worse than the baseline: {told}")
    fastest = [spread.median for row in result.variants if (spread := result.spread(row)) is not None]
    if result.floor_us and fastest and min(fastest) < NEAR_FLOOR * result.floor_us:
        notes.append(f"within 10x of the floor: an empty step reads {result.floor_us:.1f} us")
    rounds = len({block.round for block in result.blocks})
    if 0 < rounds < FEWEST_ROUNDS:
        some = f"{rounds} round{'s' * (rounds > 1)} of samples"
        notes.append(f"{some}: a verdict needs {FEWEST_ROUNDS}, more iterations give them")
    beyond = [row for row in result.variants if (row.percent_of_limit or 0.0) > BEYOND and row.verdict != "invalid"]
    told = " and ".join(f"{row.name} {row.percent_of_limit:.0f}%" for row in beyond)
    if beyond and result.limit:
        notes.append(f"beyond the limit: {told}: doubt the peak of {result.limit.resource}, or the cache held the data")
    return notes + _disturbances(result)


def _disturbances(result: PairResult) -> list[str]:
    """Notes on what host and GPU did while blocks were taken."""
    notes = []
    samples = sum(len(block.samples) for block in result.blocks)
    late, retaken = sum(block.late for block in result.blocks), sum(block.retaken for block in result.blocks)
    if late > LATE_SHARE * samples:
        notes.append(f"{late} of {samples} device samples include CPU launch latency")
    if retaken > LATE_SHARE * samples:
        notes.append(f"{retaken} device samples that include CPU launch latency were left out, {samples} kept")
    if result.discarded_blocks:
        why = sorted({block.discarded for block in result.blocks if block.discarded})
        notes.append(f"{result.discarded_blocks} of {len(result.blocks)} blocks discarded: {', '.join(why)}")
    kept = [block for block in result.blocks if block.paces and block.discarded is None]
    if result.clock == "end_to_end" and kept and result.best_pace_us:
        pace = median(max(block.paces) for block in kept) / result.best_pace_us
        if pace > MOST_PACE:
            notes.append(f"CPU overhead inflates these times: the host took {pace:.1f} times as long as at its best")
    if any("sw_power_cap" in block.telemetry.throttle for block in result.blocks if block.telemetry):
        notes.append("the power cap held the clocks down during some blocks")
    return notes
