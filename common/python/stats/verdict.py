"""From samples to a row: arithmetic over what a session recorded, so that anyone can do it again from the files."""

import re
from collections.abc import Sequence
from statistics import median
from typing import Any

from common.python.base.results import (
    CONTROL,
    Block,
    ClockName,
    Cost,
    Interval,
    PairResult,
    Spread,
    VariantResult,
    Verdict,
)
from common.python.performance_targets import Peaks, datasheet_peaks, impossible, limit, rates
from common.python.stats.hints import hint
from common.python.stats.host_pace import MOST_PACE, SLOW_HOST, discard_slow_host, pace_deviation, pace_reach
from common.python.stats.intervals import (
    another_run,
    compare,
    control_ok,
    half_width,
    memory_verdict,
    round_log_ratios,
    spread,
    verdict,
    widened,
)
from common.python.stats.memoization_check import undecided
from common.python.stats.sampling_plan import FEWEST_ROUNDS, MOST_ROUNDS, PRECISE, ROUNDS
from common.python.stats.timing_sanity import too_noisy, untrue

NEAR_FLOOR = 10.0
SHORT = re.compile(r"out of memory|OutOfMemory|MemoryError|ALLOC_FAILED|killed by SIGKILL")  # of memory, in a reason
LATE_SHARE = 0.05
BEYOND = 105.0  # % of limit, allowed where a sample of the peak was as fast, or a cache may hold what need not move
PACE_PART = 0.5  # of the deviation of the host's pace: that of ratios between rounds, where a side is the host's alone
CHANNEL_US = 0.13  # between two kernels, by which processes differ: on an H200 channels are of two kinds


def judge(result: PairResult, peaks: Peaks | None) -> PairResult:
    """The result with every derived number filled in: spreads, speedups, limit, peer ratio, verdicts, notes."""
    own: dict[str, list[Any]] = {"notes": [*result.notes]}  # what is written below; samples are not, and are many
    own |= {"blocks": [b.model_copy() for b in result.blocks], "variants": [v.model_copy() for v in result.variants]}
    result = result.model_copy(update=own)
    leave_out(result)
    result.discarded_blocks = sum(block.discarded is not None for block in result.blocks)
    result.limit = limit(_phases(result), peaks, result.floor_us if result.clock == "device" else None)
    for row in result.variants:
        _describe(row, result)
    _compare_all(result)
    for row in result.variants:
        row.verdict = _verdict(row, result, peaks)
    _compare_peers(result)
    _pair_row(result)
    return result


def leave_out(result: PairResult) -> None:
    """Discard the blocks during which the host ran slow, where the host has a part in the time that counts."""
    if result.clock == "end_to_end" and result.best_pace_us:
        discard_slow_host(result.blocks, result.best_pace_us, FEWEST_ROUNDS)


def enough(result: PairResult, names: Sequence[str], rounds: int, late: bool) -> bool:
    """Eight rounds and a narrow interval of each of `names`, or as many (at least three) as the time budgets allow.

    While the control speaks against the pair there are more, up to eight even where it is `late`: a few rounds of a
    noisy host may do that by chance, and what disturbs a session will do it again.
    """
    if rounds < FEWEST_ROUNDS or (rounds < ROUNDS and not late):
        return False
    leave_out(result)
    baseline, clock = f"baseline_{result.name}", result.clock or "device"
    control = _control(result)
    if control is not None and not control_ok(control) and rounds < (ROUNDS if late else MOST_ROUNDS):
        return False
    intervals = [compare(result.blocks, baseline, name, clock) for name in names]
    return late or all(found is not None and half_width(found) < PRECISE for found in intervals)


def times(blocks: list[Block], variant: str, clock: ClockName) -> list[float]:
    """Every time of a variant on a clock, in the order taken, discarded blocks left out; microseconds."""
    kept = [block for block in blocks if block.discarded is None]
    on_device = [s.device_us for block in kept for s in block.samples if s.variant == variant]
    on_wall = [s.wall_us for block in kept for s in [*block.samples, *block.walls] if s.variant == variant]
    return [time for time in (on_device if clock == "device" else on_wall) if time is not None]


def headline_row(result: PairResult) -> VariantResult | None:
    """The variant that speaks for the pair: `optimized_<name>`, or the last rung where that one cannot run."""
    rungs = [row for row in result.variants if row.role == "optimized"]
    own = [row for row in rungs if row.name == f"optimized_{result.name}"]
    able = [row for row in rungs if row.status in ("measured", "proven")]
    sure = [row for row in own if row in able or row.status == "failed"]  # a rung must not hide a headline that failed
    return next(iter(sure or able[-1:] or own or rungs[-1:] or result.variants[:1]), None)


def failed(result: PairResult) -> bool:
    """Whether this row makes the suite fail: a pair or any variant of it that failed or is invalid."""
    statuses = [result.status, *(row.status for row in result.variants)]
    verdicts = [result.verdict, *(row.verdict for row in result.variants)]
    return "failed" in statuses or "invalid" in verdicts


def lacked_memory(result: PairResult) -> bool:
    """Whether a fault of it may be that others had the memory, of the device or its host."""
    return failed(result) and bool(SHORT.search(f"{result.reason} {[row.reason for row in result.variants]}"))


def _describe(row: VariantResult, result: PairResult) -> None:
    device, wall = (times(result.blocks, row.name, clock) for clock in ("device", "end_to_end"))
    row.device = spread(device) if device else None
    row.wall = spread(wall) if wall else None
    main = _main(row, result)
    if main is None:
        return
    if row.status not in ("failed", "unsupported"):
        row.status = "measured"
    if result.cost:
        row.rates = rates(result.cost, main.median, datasheet_peaks(result.device or ""))
    if result.limit:
        row.percent_of_limit = 100 * result.limit.us / main.median


def _phases(result: PairResult) -> list[Cost]:
    return result.phases or ([result.cost] if result.cost else [])


def _main(row: VariantResult, result: PairResult) -> Spread | None:
    return row.device if result.clock == "device" else row.wall


def _compare_all(result: PairResult) -> None:
    baseline = next((row for row in result.variants if row.role == "baseline"), None)
    if baseline is None or not result.blocks:
        return
    result.control = _control(result)
    for row in result.variants:
        if row.role != "baseline":
            row.speedup = _ratio(result, baseline, row)
            if baseline.why and row.why and baseline.why.peak_bytes and row.why.peak_bytes:
                row.memory_ratio = baseline.why.peak_bytes / row.why.peak_bytes


def _control(result: PairResult) -> Interval | None:
    """The baseline against itself: also in a slow host's blocks, which is slow for both, so that more rounds count.

    On new inputs whoever comes first may ask for memory that both then have: where a block has others, those count.
    """
    baseline = next((row for row in result.variants if row.role == "baseline"), None)
    blocks = [block.model_copy() for block in result.blocks]
    for block in blocks:
        seen = [sample for sample in block.samples if not sample.fresh]
        if {f"baseline_{result.name}", CONTROL} <= {sample.variant for sample in seen}:
            block.samples = seen
        block.discarded = None if block.discarded == SLOW_HOST else block.discarded
    return _ratio(result, baseline, baseline.model_copy(update={"name": CONTROL}), blocks) if baseline else None


def _ratio(
    result: PairResult, above: VariantResult, below: VariantResult, blocks: Sequence[Block] | None = None
) -> Interval | None:
    """Time over time; where the host has a part in it, as well as another run at its own pace would know it.

    And on the device's clock as well as another process, whose channel may be of the other kind.
    """
    blocks, clock = result.blocks if blocks is None else blocks, result.clock or "device"
    ratios = round_log_ratios(blocks, above.name, below.name, clock)
    if len(ratios) < 2:  # one that failed has no times
        return None
    shares = host_share(blocks, above, clock), host_share(blocks, below, clock)
    if clock == "device" and not any(shares):
        found = compare(blocks, above.name, below.name, clock)
        return found and widened(found, abs(channel_share(above) - channel_share(below)))
    deviation = pace_deviation([result]) if result.pace_deviation is None else result.pace_deviation
    found = another_run(ratios, PACE_PART * max(shares) * deviation)
    reach = pace_reach(blocks, result.best_pace_us, result.usual_pace_us)
    return found and widened(found, abs(shares[0] - shares[1]) * reach)


def host_share(blocks: Sequence[Block], row: VariantResult, clock: ClockName) -> float:
    """How much of a variant's time goes with the host's pace, from 0 to 1: until the call returns, the host's part.

    Where a step waits for the device inside the call, no more than what the device is idle of it, by its profile: but
    for copies of pageable memory, which the host makes as well. On the device's clock none, unless the host was late
    for most of its samples.
    """
    samples = [s for block in blocks if block.discarded is None for s in block.samples if s.variant == row.name]
    if clock == "device" and 2 * sum(s.late for s in samples) <= len(samples):
        return 0.0
    times_us = [(s.host_us, s.device_us if clock == "device" else s.wall_us) for s in samples]
    share = median([min(1.0, host_us / us) for host_us, us in times_us if us])
    main = row.device if clock == "device" else row.wall
    if row.why and row.why.syncs and row.why.busy_us and main:
        share = min(share, max(0.0, 1 - (row.why.busy_us - row.why.staged_us) / main.median))
    return share


def channel_share(row: VariantResult) -> float:
    """By how much of a variant's time on the device processes differ by their channel: for each of its kernels."""
    return CHANNEL_US * (row.why.kernels or 0) / row.device.median if row.why and row.device else 0.0


def _compare_peers(result: PairResult) -> None:
    """The best of the sound peers against the headline variant, where that is sound too."""
    own = headline_row(result)
    sound = [row for row in result.variants if row.status == "measured" and row.verdict != "invalid" and row.speedup]
    peers = [row for row in sound if row.role == "peer"]
    result.best_peer, result.peer_ratio = None, None
    if peers and own in sound and own is not None:
        best = max(peers, key=lambda row: row.speedup.ratio if row.speedup else 0.0)
        result.best_peer = best.label
        result.peer_ratio = _ratio(result, best, own)


def _verdict(row: VariantResult, result: PairResult, peaks: Peaks | None) -> Verdict | None:
    if row.verdict == "invalid" or row.status != "measured":
        row.speedup, row.memory_ratio = None, None  # times of what is not proven compare with nothing
        return row.verdict
    invalid, noisy = _impossible(row, result, peaks), too_noisy(row, result)
    if reason := invalid or noisy:
        row.reason, row.speedup, row.memory_ratio = reason, None, None
        return "invalid" if invalid else "too noisy"
    if row.role == "baseline" or not any(other.role == "baseline" for other in result.variants):
        return None
    if row.speedup is None:
        return "inconclusive"
    if result.goal == "memory":
        return memory_verdict(row.memory_ratio) if row.memory_ratio else "inconclusive"
    return verdict(row.speedup) if row.speedup.rounds >= FEWEST_ROUNDS else "inconclusive"


def _impossible(row: VariantResult, result: PairResult, peaks: Peaks | None) -> str | None:
    """Why these times cannot be those of the work: a rate beyond physics, or they are untrue."""
    main = _main(row, result)
    if main is None:
        return None
    if reason := impossible(_phases(result), main.median, peaks):
        return reason
    return untrue(row, result)


def _pair_row(result: PairResult) -> None:
    own = headline_row(result)
    if own is None:
        return
    failed = [row for row in result.variants if row.status == "failed" or row.verdict == "invalid"]
    baseline = next((row for row in failed if row.role == "baseline"), None)
    speaks = baseline or own
    if result.status != "failed":
        result.status = "failed" if own.status == "failed" else speaks.status
        result.verdict = "invalid" if baseline is not None and baseline.verdict == "invalid" else own.verdict
        result.reason = result.reason or speaks.reason
    result.hint = hint(result.reason)
    result.notes += [note for note in _notes(result) if note not in result.notes]


def _notes(result: PairResult) -> list[str]:
    notes = undecided(result)
    own = headline_row(result)
    if own is not None and own.role == "optimized" and own.name != f"optimized_{result.name}":
        notes.append(f"the rung {own.label} speaks for the pair: optimized_{result.name} cannot run here")
    fastest = [spread.median for row in result.variants if (spread := _main(row, result)) is not None]
    if result.floor_us and fastest and min(fastest) < NEAR_FLOOR * result.floor_us:
        notes.append(f"within 10x of the floor: an empty step reads {result.floor_us:.1f} us")
    rounds = len({block.round for block in result.blocks})
    if 0 < rounds < FEWEST_ROUNDS:
        notes.append(
            f"{rounds} round{'s' * (rounds > 1)} of samples: a verdict needs {FEWEST_ROUNDS}, more iterations give them"
        )
    samples = sum(len(block.samples) for block in result.blocks)
    late = sum(block.late for block in result.blocks)
    if samples and late > LATE_SHARE * samples:
        notes.append(f"in {late} of {samples} device samples the host was late: its time is in them")
    retaken = sum(block.retaken for block in result.blocks)
    if retaken > LATE_SHARE * samples:
        notes.append(
            f"{retaken} device samples for which the host was late were taken again or left out, beside {samples} kept"
        )
    beyond = [row for row in result.variants if (row.percent_of_limit or 0.0) > BEYOND and row.verdict != "invalid"]
    if beyond and result.limit:
        told = " and ".join(f"{row.name} {row.percent_of_limit:.0f}%" for row in beyond)
        notes.append(f"beyond the limit: {told}: doubt the peak of {result.limit.resource}, or the cache held the data")
    if result.discarded_blocks:
        why = sorted({block.discarded for block in result.blocks if block.discarded})
        notes.append(f"{result.discarded_blocks} of {len(result.blocks)} blocks discarded: {', '.join(why)}")
    kept = [block for block in result.blocks if block.paces and block.discarded is None]
    if result.clock == "end_to_end" and kept and result.best_pace_us:
        pace = median(max(block.paces) for block in kept) / result.best_pace_us
        if pace > MOST_PACE:
            notes.append(
                f"the host took {pace:.1f} times as long as at its best: its share of these times is too large"
            )
    if any("sw_power_cap" in block.telemetry.throttle for block in result.blocks if block.telemetry):
        notes.append("the power cap held the clocks down during some blocks")
    return notes
