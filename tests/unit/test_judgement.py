"""From hand-made samples to a row: verdicts, what makes a pair invalid, and that all of it can be computed again."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from synthetic_run import variant

from common.python.base.results import CONTROL, Block, Cost, PairResult, Sample, Telemetry, Trio, VariantResult, Why
from common.python.performance_targets import Peaks, datasheet_peaks
from common.python.stats.verdict import enough, hint, judge, lacked_memory

BASE, OPT = "baseline_x", "optimized_x"
PEAKS = Peaks(values={"hbm": 1e12}, source="measured by hand")
TWO, DISTURBED = {BASE: 100.0, OPT: 50.0}, {BASE: 100.0, OPT: 50.0, CONTROL: 90.0}
ROUNDS = 4
# Factors of each round on every variant's time but the baseline's: about 0.1% of noise, and nought in the mean.
WOBBLE = (1.001, 0.999, 1.001, 0.999)

Us = float | Sequence[float]


def sample(name: str, us: float, clock: str = "device") -> Sample:
    return Sample(
        variant=name,
        device_us=us if clock == "device" else None,
        wall_us=us if clock == "end_to_end" else None,
        host_us=5.0,
    )


def blocks(us: Mapping[str, Us], clock: str = "device", rounds: int = ROUNDS, **facts: Any) -> list[Block]:
    """Two mirrored blocks a round; a variant has one time, or one for each round."""
    names = list(us)
    made = []
    for index in range(rounds):
        of = {name: (t if isinstance(t, float | int) else t[index]) for name, t in us.items()}
        of = {name: t * (1 if name == BASE else WOBBLE[index]) for name, t in of.items()}
        taken = [sample(name, of[name], clock) for name in [*names, *reversed(names)]]
        made += [Block(round=index, steps=1, samples=taken, **facts) for _ in range(2)]
    return made


def pair(us: Mapping[str, Us], clock: str = "device", rounds: int = ROUNDS, **facts: Any) -> PairResult:
    """A pair whose variants took these microseconds; its control takes the baseline's time, if none is given."""
    us = {**us, CONTROL: us.get(CONTROL, us[BASE])} if BASE in us else us
    stated: dict[str, Any] = {
        "status": "proven",
        "clock": clock,
        "goal": "speed",
        "cost": Cost(read=20e6),  # at 1 TB/s: 20 us
        "variants": [variant(name, why=None) for name in us if name != CONTROL],
        "blocks": blocks(us, clock, rounds),
    }
    return PairResult(chapter="ch07", name="x", **{**stated, **facts})


def still(us: Mapping[str, Sequence[float]]) -> list[Block]:
    """A block a round, of exactly these times."""
    rounds = list(zip(*us.values()))
    named = [[sample(name, time) for name, time in zip(us, times)] for times in rounds]
    return [Block(round=index, steps=1, samples=[*once, *reversed(once)]) for index, once in enumerate(named)]


def row(result: PairResult, name: str = OPT) -> VariantResult:
    return next(variant for variant in result.variants if variant.name == name)


def with_row(result: PairResult, name: str, **facts: Any) -> PairResult:
    rows = [v.model_copy(update=facts) if v.name == name else v for v in result.variants]
    return result.model_copy(update={"variants": rows})


@pytest.mark.parametrize(("rounds", "verdict"), [(1, "inconclusive"), (2, "inconclusive"), (3, "faster")])
def test_fewer_than_three_rounds_conclude_nothing(rounds: int, verdict: str) -> None:
    assert judge(pair(TWO, rounds=rounds), PEAKS).verdict == verdict


SESSIONS = (Path(__file__).parent / "judged_sessions.jsonl").read_text().splitlines()


@pytest.mark.parametrize("line", SESSIONS, ids=lambda line: PairResult.model_validate_json(line).key)
def test_a_stored_session_is_judged_as_it_was(line: str) -> None:
    """Sessions of an H200 and a CPU: medians, intervals, limits, verdicts and reasons come from the samples again."""
    stored = PairResult.model_validate_json(line)
    judged = judge(stored, datasheet_peaks(stored.device or ""))
    assert judged.model_copy(update={"notes": [], "hint": None}) == stored


def escaping() -> PairResult:
    result = pair(TWO)
    walls = [Sample(variant=OPT, device_us=50.0, wall_us=200.0, host_us=5.0)]
    walls += [Sample(variant=BASE, device_us=100.0, wall_us=110.0, host_us=5.0)]
    return result.model_copy(update={"blocks": [b.model_copy(update={"walls": walls}) for b in result.blocks]})


ESCAPES = [  # the slowest sample on the device's clock; by block, the span of the own stream, wall and host; escaped
    # As long as it took once on the device's clock, up to a quarter longer than usual, a step may take at any time.
    *((60.0, [[(45.0, 100.0, 5.0)]] * 8, False), (60.0, [[(45.0, 120.0, 5.0)]] * 8, True)),
    *((500.0, [[(45.0, 102.0, 5.0)]] * 8, False), (500.0, [[(45.0, 115.0, 5.0)]] * 8, True)),
    *((50.0, [[(45.0, 95.0, 5.0)]] * 8, True), (50.0, [[(60.0, 95.0, 5.0)]] * 8, False)),
    # 30 us and a tenth of the device's time more than that and than the host's part are allowed.
    *((50.0, [[(50.0, 84.0, 0.0)]] * 8, False), (50.0, [[(50.0, 86.0, 0.0)]] * 8, True)),
    *((50.0, [[(50.0, 184.0, 100.0)]] * 8, False), (50.0, [[(50.0, 186.0, 100.0)]] * 8, True)),
    # The host may come back late from a wait because it had other work, but not in every one of three samples.
    (50.0, [[(50.0, 999.0, 5.0)]] * 3 + [[(50.0, 60.0, 5.0)]] * 5, False),
    *(
        (50.0, [[(50.0, wall, 5.0) for wall in walls]], invalid)
        for walls, invalid in (([200.0] * 3, True), ([200.0, 60.0, 200.0], False), ([200.0], False))
    ),
]


@pytest.mark.parametrize(("slowest", "walls", "escaped"), ESCAPES)
def test_work_beyond_the_clock_escapes_it_where_no_sample_was_without(
    slowest: float, walls: list[list[tuple[float, float, float]]], escaped: bool
) -> None:
    result = pair(TWO)
    result.blocks[1].samples.append(sample(OPT, slowest))
    for block, taken in zip(result.blocks, walls):
        block.walls = [Sample(variant=OPT, device_us=span, wall_us=wall, host_us=host) for span, wall, host in taken]
    judged = judge(result, PEAKS)
    assert ("escaped the clock" in (row(judged).reason or "")) == (judged.verdict == "invalid") == escaped


def test_a_headline_that_failed_fails_the_pair_even_when_its_baseline_is_too_noisy() -> None:
    result = with_row(pair(DISTURBED), OPT, status="failed", verdict="invalid", reason="wrong at bench size")
    judged = judge(result, PEAKS)
    assert row(judged, BASE).verdict == "too noisy"
    assert (judged.status, judged.verdict) == ("failed", "invalid")


@pytest.mark.parametrize(
    ("result", "reason", "beside"),
    [
        # 20 MB in 10 us, where 20 are the least.
        (pair({BASE: 100.0, OPT: 10.0}), "hbm: 10 us would be 2.00 times the peak of 1 TB/s", "invalid"),
        (escaping(), "145 us of work went on after the step's own stream was done: it escaped the clock", None),
        (
            with_row(pair(TWO), OPT, why=Why(busy_us=110.0, peak_bytes=1.0)),
            "the device worked 110 us for a step that reads 50 us: work escaped the clock",
            None,
        ),
        (
            with_row(pair(TWO), OPT, trios=[Trio(untouched_us=50.0, same_us=50.0, new_us=100.0)] * 16),
            "2.0 times as long on inputs that it has not seen, in 16 of 16 trials",
            "invalid",
        ),
        # As a session leaves a variant that was wrong after the last round.
        (with_row(pair(TWO), OPT, verdict="invalid", status="failed", reason="it is wrong"), "it is wrong", "invalid"),
    ],
    ids=["rate", "escape", "busy time", "memory", "proof"],
)
def test_impossible_times_are_invalid_and_show_no_ratio_unless_another_process_may_have_done_that_work(
    result: PairResult, reason: str, beside: str | None
) -> None:
    """Processes take turns on a GPU: times are longer then, and never shorter."""
    blamed = judge(result, PEAKS)
    assert blamed.verdict == row(blamed).verdict == "invalid"
    assert reason in (blamed.reason or "")
    assert (row(blamed).speedup, row(blamed).memory_ratio) == (None, None)
    for block in result.blocks:
        block.telemetry = Telemetry(other_processes=1)
    judged = judge(result, PEAKS)
    assert (judged.verdict, row(judged).speedup) == (beside or "too noisy", None)
    doubt = f"{blamed.reason}, unless it was that of another process, 1 others on the GPU"
    assert judged.reason == (blamed.reason if beside else doubt)


def test_a_control_off_one_makes_the_pair_too_noisy_and_not_failed() -> None:
    result = pair(DISTURBED)
    result.load = 9.25
    result.blocks[0].telemetry = Telemetry(other_processes=2)
    judged = judge(result, PEAKS)
    assert (judged.status, judged.verdict, row(judged).verdict) == ("measured", "too noisy", "too noisy")
    assert judged.reason == (
        "the control, baseline against itself, reads [1.109, 1.113], at a load of 9.2, 2 others on the GPU"
    )
    assert "without other work on this machine" in (judged.hint or "")
    assert not judged.failed


def test_a_gpu_on_which_another_process_takes_turns_gives_no_ratio() -> None:
    """Seen on an H200 beside compute-sanitizer: each wait for the GPU took 2.4 ms, and 1.1x read 9x."""
    result = pair({BASE: 168e3, OPT: 18e3}, "end_to_end", floor_us=2400.0)
    assert judge(result, None).verdict == "faster"
    result.blocks[0].telemetry = Telemetry(other_processes=2)
    judged = judge(result, None)
    assert (judged.verdict, row(judged).speedup) == ("too noisy", None)
    assert judged.reason == "an empty step reads 2400 us, as where processes take turns, 2 others on the GPU"
    result.floor_us = 60.0  # a slow host's
    assert judge(result, None).verdict == "faster"


@pytest.mark.parametrize(("control", "compared"), [(100.0, True), (90.0, False)])
def test_a_rung_is_compared_with_another_commits_unless_the_session_is_too_noisy(
    control: float, compared: bool
) -> None:
    wide = [400.0, 25.0] * 4
    result = pair({BASE: [100.0] * 8, OPT: wide, f"{OPT}@HEAD": [us * 1.1 for us in wide], CONTROL: control}, rounds=4)
    result.variants[-1].role = "ref"
    judged = judge(result, None)
    assert {variant.verdict for variant in judged.variants[1:]} == {"inconclusive" if compared else "too noisy"}
    assert (row(judged).against is not None) == compared


@pytest.mark.parametrize("crowded", [False, True])
def test_blocks_in_which_threads_waited_for_a_core_give_no_ratio(crowded: bool) -> None:
    """On a busy machine a step of several threads takes as long as the other work lets them wait."""
    result = pair({BASE: 200.0, OPT: 100.0}, clock="end_to_end", best_pace_us=20.0)
    for block in result.blocks[: 5 if crowded else 3]:
        block.samples = [s.model_copy(update={"wall_us": 600 * (s.wall_us or 0)}) for s in block.samples]
        block.waited_us = sum(s.wall_us or 0 for s in block.samples)
    judged = judge(result, None)
    told = "in 5 of 8 blocks the worker waited for a core over half of the time"
    assert (judged.verdict, judged.discarded_blocks) == ("too noisy", 0) if crowded else ("faster", 3)
    assert judged.reason == (told if crowded else None)


@pytest.mark.parametrize(
    ("clock", "busy_us", "stream_us", "verdict"),
    [
        *(("device", None, None, "faster"), ("device", 104.0, None, "faster"), ("device", 106.0, None, "invalid")),
        # Eight streams that a profile did not let overlap.
        *(("device", 400.0, 50.0, "faster"), ("device", 400.0, 106.0, "invalid")),
        ("end_to_end", 500.0, None, "faster"),  # which measures work outside the stream
    ],
)
def test_on_its_own_clock_a_stream_may_be_busy_for_half_as_long_again_and_30_us(
    clock: str, busy_us: float | None, stream_us: float | None, verdict: str
) -> None:
    result = with_row(pair(TWO, clock), OPT, why=Why(busy_us=busy_us, stream_us=stream_us))
    assert judge(result, PEAKS).verdict == verdict


@pytest.mark.parametrize(
    ("busy_us", "gpus", "verdict"), [(174.0, 2, "faster"), (176.0, 2, "invalid"), (174.0, 0, "invalid")]
)
def test_ranks_may_wait_for_each_other_in_a_profile(busy_us: float, gpus: int, verdict: str) -> None:
    """Seen on two H200s: 174 us in a profile for an all-reduce that reads 89 us."""
    result = with_row(pair(TWO), OPT, why=Why(busy_us=busy_us))
    for block in result.blocks:
        block.gpus = [Telemetry()] * gpus
        block.walls = [Sample(variant=OPT, device_us=50.0, wall_us=96.7, host_us=70.0)]
    assert judge(result, PEAKS).verdict == verdict


@pytest.mark.parametrize(
    ("peaks", "cost"), [(None, Cost(read=20e6)), (PEAKS, None), (PEAKS, Cost(flops=1e9)), (PEAKS, Cost())]
)
def test_without_a_peak_or_a_cost_there_is_no_limit_and_nothing_is_impossible(
    peaks: Peaks | None, cost: Cost | None
) -> None:
    judged = judge(pair({BASE: 100.0, OPT: 1.0}, cost=cost), peaks)
    assert (judged.limit, row(judged).percent_of_limit, judged.verdict) == (None, None, "faster")


def test_mfu_is_the_share_of_the_datasheet_rate() -> None:
    peaks = PEAKS.model_copy(update={"values": {"bf16": 800e12}})  # what was measured makes the limit alone
    cost = Cost(flops=989.4e12 * 20e-6, dtype="bf16", items=100, unit="tokens")  # 20 us by the datasheet of an H200
    judged = judge(pair({BASE: 100.0, OPT: 40.0}, cost=cost, device="NVIDIA H200"), peaks)
    assert row(judged, BASE).rates["MFU"] == pytest.approx(0.2)
    assert row(judged).rates["MFU"] == pytest.approx(0.5)
    assert row(judged).percent_of_limit == pytest.approx(100 * 989.4 / 800 * 0.5)
    unknown = judge(pair({BASE: 100.0, OPT: 40.0}, cost=cost, device="NVIDIA Nameless"), peaks)
    assert "MFU" not in row(unknown).rates


@pytest.mark.parametrize(
    ("peak_bytes", "verdict", "ratio"),
    [
        ({"baseline": 2e9, "optimized": 1e9}, "smaller", 2.0),
        ({"baseline": 1.011e9, "optimized": 1e9}, "smaller", 1.011),
        ({"baseline": 1.01e9, "optimized": 1e9}, "same", 1.01),
        ({"baseline": 0.99e9, "optimized": 1e9}, "same", 0.99),
        ({"baseline": 1e9, "optimized": 2e9}, "larger", 0.5),
        ({"baseline": 1e9}, "inconclusive", None),
        ({}, "inconclusive", None),
    ],
)
def test_a_memory_pair_is_judged_by_its_peaks_and_not_by_its_times(
    peak_bytes: dict[str, float], verdict: str, ratio: float | None
) -> None:
    result = pair({BASE: 100.0, OPT: 150.0}, goal="memory")
    for role, size in peak_bytes.items():
        result = with_row(result, f"{role}_x", why=Why(peak_bytes=size))
    judged = judge(result, PEAKS)
    assert (judged.verdict, row(judged).memory_ratio) == (verdict, ratio)


def test_the_fastest_peer_is_the_one_compared_with() -> None:
    us = {BASE: 100.0, OPT: 50.0, f"{OPT}__wide": 40.0, "peer_x__slow": 80.0, "peer_x__quick": 45.0}
    judged = judge(pair(us), PEAKS)
    assert judged.best_peer == "quick"
    assert judged.peer_ratio.ratio == pytest.approx(0.9, rel=1e-5)
    assert row(judged, "peer_x__quick").verdict == "faster"


@pytest.mark.parametrize(("goal", "verdict"), [("speed", "slower"), ("memory", "larger")])
def test_a_peer_that_is_worse_than_the_baseline_is_not_compared_with_and_a_note_says_so(
    goal: str, verdict: str
) -> None:
    us = {BASE: 100.0, OPT: 50.0, "peer_x__bad": 125.0, "peer_x__even": 100.0}
    made = pair(us, goal=goal)
    for name, time in us.items():
        made = with_row(made, name, why=Why(peak_bytes=time * 1e7))
    judged = judge(made, PEAKS)
    assert (judged.best_peer, row(judged, "peer_x__bad").verdict) == ("even", verdict)
    alone = judge(made.model_copy(update={"variants": made.variants[:3]}), PEAKS)
    assert (alone.best_peer, alone.peer_ratio) == (None, None)
    assert "no peer to compare with, as each is worse than the baseline: bad 0.8x" in alone.notes


def test_where_memory_is_the_goal_the_smallest_peer_is_compared_with_in_bytes() -> None:
    slow, quick = "peer_x__slow", "peer_x__quick"
    judged = pair({BASE: 100.0, OPT: 50.0, slow: 80.0, quick: 45.0}, goal="memory")
    for name, peak_bytes in {BASE: 4e9, OPT: 2e9, slow: 1e9, quick: 3e9}.items():
        judged = with_row(judged, name, why=Why(peak_bytes=peak_bytes))
    judged = judge(judged, PEAKS)
    assert (judged.best_peer, judged.peer_ratio and judged.peer_ratio.ratio) == ("slow", 0.5)


@pytest.mark.parametrize(
    ("optimized", "quick", "status", "best"),
    [
        (50.0, 45.0, "failed", "slow"),
        (50.0, 45.0, "unsupported", "slow"),
        (50.0, 5.0, "proven", "slow"),  # impossibly fast
        (5.0, 45.0, "proven", None),  # the headline itself is
    ],
)
def test_only_a_sound_peer_is_compared_with_a_sound_headline(
    optimized: float, quick: float, status: str, best: str | None
) -> None:
    us = {BASE: 100.0, OPT: optimized, "peer_x__quick": quick, "peer_x__slow": 80.0}
    judged = judge(with_row(pair(us), "peer_x__quick", status=status), PEAKS)
    assert (judged.best_peer, judged.peer_ratio is None) == (best, best is None)


@pytest.mark.parametrize(
    ("optimized", "speaks"),
    [
        ({OPT: "proven", f"{OPT}__wide": "proven"}, OPT),
        ({f"{OPT}__a": "proven", f"{OPT}__b": "proven"}, f"{OPT}__b"),
        ({OPT: "unsupported", f"{OPT}__a": "proven", f"{OPT}__b": "built"}, f"{OPT}__a"),
        ({OPT: "unsupported", f"{OPT}__b": "built"}, OPT),
        ({OPT: "proven", f"{OPT}__a": "measured", f"{OPT}__b": "proven"}, f"{OPT}__a"),
        ({OPT: "failed", f"{OPT}__a": "measured"}, OPT),
        ({}, BASE),
    ],
)
def test_the_headline_or_the_last_rung_that_can_run_speaks_for_the_pair(optimized: dict[str, str], speaks: str) -> None:
    variants = [variant(BASE), *(variant(name, status=status) for name, status in optimized.items())]
    own = PairResult(chapter="ch07", name="x", status="proven", variants=[*variants, variant("peer_x__l")]).headline
    assert own.name == speaks
    assert PairResult(chapter="ch07", name="x", status="proven").headline is None


@pytest.mark.parametrize(
    ("reason", "short"),
    [
        ("OutOfMemoryError at optimized_x.py:7: CUDA out of memory. Tried to allocate 2 GiB", True),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate", True),
        ("the worker was killed by SIGKILL during prepare", True),
        ("the worker was killed by SIGSEGV during prepare", False),
    ],
)
def test_a_lack_of_memory_is_recognised(reason: str, short: bool) -> None:
    result = with_row(pair(TWO), OPT, status="failed", reason=reason)
    assert lacked_memory(result) is short
    assert not lacked_memory(with_row(result, OPT, status="unsupported"))


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        ("no answer within 3 s during prepare: rank 0 is at x.py:3, rank 1 has done its part", "same collectives"),
        ("AcceleratorError: CUDA error: misaligned address", "sanitize.sh"),
        ("the worker was killed by SIGKILL during prepare", "dmesg"),
        ("it takes 6.0 times as long on inputs that it has not seen: it remembers answers", "Workload.frozen"),
        ("relative error 1.00e-03, the tolerance is 1.0e-06", None),
        (None, None),
    ],
)
def test_a_known_reason_has_its_hint(reason: str | None, says: str | None) -> None:
    assert (says or "None") in str(hint(reason))


@pytest.mark.parametrize(("peak", "noted"), [(0.97e12, False), (0.93e12, True)])
def test_a_time_beyond_the_limit_is_noted(peak: float, noted: bool) -> None:
    peaks = PEAKS.model_copy(update={"values": {"hbm": peak}, "fastest": {"hbm": 2e12}})
    result = judge(pair({BASE: 100.0, OPT: 20.4}), peaks)  # 20 MB
    told = f"beyond the limit: {OPT} 105%: doubt the peak of hbm, or the cache held the data"
    assert (result.verdict, result.notes) == ("faster", [told] if noted else [])


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({"floor_us": 4.9}, None),
        ({"floor_us": 5.1}, "within 10x of the floor: an empty step reads 5.1 us"),
        ({"late": 2}, None),
        ({"late": 3}, "3 of 48 device samples include CPU launch latency"),
        ({"retaken": 2}, None),
        ({"retaken": 3}, "3 device samples that include CPU launch latency were left out, 48 kept"),
        ({"telemetry": Telemetry(throttle=["sw_power_cap"])}, "the power cap held the clocks down during some blocks"),
    ],
)
def test_what_a_reader_should_know_is_noted(change: dict[str, Any], note: str | None) -> None:
    result = pair(TWO)  # 8 blocks of 6 samples
    of_block = {key: value for key, value in change.items() if key != "floor_us"}
    result.floor_us = change.get("floor_us")
    result.blocks[3] = result.blocks[3].model_copy(update=of_block)
    judged = judge(result, PEAKS)
    assert (judged.notes, judged.discarded_blocks) == ([note] if note else [], 0)


def test_discarded_blocks_are_counted_noted_and_left_out() -> None:
    result = pair(TWO)
    spoilt = blocks({BASE: 100.0, OPT: 900.0, CONTROL: 100.0}, discarded="thermal slowdown")
    result.blocks = [block for both in zip(result.blocks, spoilt[:3]) for block in both] + result.blocks[3:]
    judged = judge(result, PEAKS)
    assert judged.discarded_blocks == 3
    assert judged.notes == ["3 of 11 blocks discarded: thermal slowdown"]
    assert judged.verdict == "faster"
    device = row(judged).device
    assert (device.n, device.outliers) == (2 * 8, 0)


def contended(fast_rounds: int, clock: str) -> PairResult:
    """Blocks in which a neighbour halves the host's pace and doubles the baseline, and some in which it does not."""
    result = pair({BASE: 100.0, OPT: 50.0, CONTROL: 100.0}, clock, best_pace_us=20.0)
    slow = blocks({BASE: 200.0, OPT: 50.0, CONTROL: 200.0}, clock, paces=[21.0, 40.0])
    fast = [block.model_copy(update={"paces": [20.0, 25.0]}) for block in result.blocks]
    result.blocks = [*slow, *(block for block in fast if block.round < fast_rounds)]
    return result


def test_end_to_end_blocks_of_a_slow_host_are_discarded_unless_too_few_rounds_would_remain() -> None:
    judged = judge(contended(3, "end_to_end"), PEAKS)
    speedup = row(judged).speedup
    assert (speedup.ratio, speedup.rounds) == (pytest.approx(2.0, rel=0.002), 3)
    assert judged.notes == ["8 of 14 blocks discarded: the host ran slow"]
    assert judge(judged, PEAKS) == judged  # marks are made anew from the paces, not piled up
    kept = judge(contended(2, "end_to_end"), PEAKS)
    told = "CPU overhead inflates these times: the host took 2.0 times as long as at its best"
    assert (kept.discarded_blocks, kept.notes) == (0, [told])


def test_the_control_keeps_the_blocks_of_a_slow_host() -> None:
    """Of eight rounds of `kv_cache` on an H200's host three counted, at [0.970, 0.989]; all read [0.981, 0.999]."""
    off = contended(3, "end_to_end")
    for block in off.blocks:
        if block.paces == [20.0, 25.0]:  # the three rounds that count, each by as much off
            block.samples = [
                s.model_copy(update={"wall_us": 102.5 * WOBBLE[block.round]}) if s.variant == CONTROL else s
                for s in block.samples
            ]
    off.blocks = [
        block.model_copy(update={"round": block.round + 3 * (block.paces == [21.0, 40.0])}) for block in off.blocks
    ]
    assert enough(off, [OPT], 7, late=True), "which is no reason to take more rounds"
    judged = judge(off, PEAKS)
    assert judged.control.rounds == 7
    assert judged.verdict == "faster"
    assert row(judged).speedup is not None
    for block in off.blocks[:8]:
        block.discarded = "GPU slowed by hw_slowdown"
    judged = judge(off, PEAKS)
    assert (judged.control.rounds, judged.verdict) == (3, "too noisy")


def test_the_control_leaves_out_samples_on_new_inputs() -> None:
    """Where sizes follow from the data, whoever that is may take longer: ms of `moe_grouped_gemm`, on an H200."""
    result = pair(TWO)
    result.blocks = []
    for index, taken in enumerate(
        [
            [(OPT, 2.7), (CONTROL, 13.6), (BASE, 23.7), (BASE, 16.0), (CONTROL, 16.4), (OPT, 2.7)],
            [(BASE, 28.9), (CONTROL, 12.8), (OPT, 2.7), (OPT, 2.7), (CONTROL, 13.4), (BASE, 13.1)],
            [(BASE, 54.6), (OPT, 2.7), (CONTROL, 18.5), (CONTROL, 18.4), (OPT, 2.7), (BASE, 18.6)],
        ]
    ):
        samples = [sample(name, us) for name, us in taken]
        for first in samples[:3]:
            first.fresh = True  # on inputs that no call had seen
        result.blocks.append(Block(round=index, steps=1, samples=samples))
    result.cost = None
    judged = judge(result, None)
    assert judged.control.ratio == pytest.approx(math.prod([16.0 / 16.4, 13.1 / 13.4, 18.6 / 18.4]) ** (1 / 3))
    gain = row(judged).speedup
    assert gain.high > 3 * gain.low, "the time that it took counts all the same"


PACES = (20.0, 21.0, 30.0, 32.0)  # of the host, in each round
WAITS, LAUNCHES = Why(operators=1, syncs=2, busy_us=45.0), Why(operators=1, syncs=0, busy_us=45.0)


@pytest.mark.parametrize(
    ("clock", "host_us", "why", "percent"),
    [
        ("end_to_end", {BASE: 100.0, OPT: 5.0}, {}, 25.44),  # launches against a graph of them
        ("end_to_end", {BASE: 10.0, OPT: 50.0}, {}, 25.44),  # and the other way round
        ("end_to_end", {BASE: 90.0, OPT: 45.0}, {}, 15.62),  # both go with the pace
        ("end_to_end", {BASE: 5.0, OPT: 2.5}, {}, 0.90),  # neither does
        ("end_to_end", {BASE: 300.0, OPT: 5.0}, {}, 25.44),  # no more than all of it
        ("end_to_end", {BASE: 100.0, OPT: 50.0}, {}, 17.36),
        ("end_to_end", {BASE: 100.0, OPT: 50.0}, {OPT: WAITS}, 25.44),  # for a device that is busy
        ("end_to_end", {BASE: 100.0, OPT: 50.0}, {OPT: LAUNCHES}, 20.10),  # of which a faster host saves the idle time
        ("device", {BASE: 300.0, OPT: 5.0}, {}, 0.18),
    ],
)
def test_the_host_pace_widens_an_interval_as_far_as_times_are_the_hosts(
    clock: str, host_us: Mapping[str, float], why: Mapping[str, Why], percent: float
) -> None:
    """With one pace throughout the half-width is 0.22%, on the device's clock 0.18%."""
    made = pair(TWO, clock, best_pace_us=min(PACES))
    for block in made.blocks:
        block.paces = [PACES[block.round]] * 2
        block.samples = [s.model_copy(update={"host_us": host_us.get(s.variant, 5.0)}) for s in block.samples]
    for name, told in why.items():
        made = with_row(made, name, why=told)
    judged = judge(made, PEAKS)
    found = row(judged).speedup
    assert found.ratio == pytest.approx(2.0, rel=1e-5)
    assert found.high / found.ratio == pytest.approx(found.ratio / found.low)
    assert 100 * math.log(found.high / found.ratio) == pytest.approx(percent, rel=0.01, abs=0.005)


@pytest.mark.parametrize(
    ("busy_us", "half"),
    [
        ({BASE: 98.0, OPT: 49.5}, 0.0104),
        ({BASE: 98.0, OPT: 60.0}, 0.0203),  # busy for longer than the step: nothing is idle
        ({BASE: 98.0}, 0.0492),  # the other's is not known
        ({BASE: 20.0, OPT: 10.0}, 0.347),
    ],
)
def test_a_faster_host_saves_at_most_the_devices_idle_time(busy_us: Mapping[str, float], half: float) -> None:
    made = pair(TWO, "end_to_end", best_pace_us=20.0)
    for block in made.blocks:
        block.paces = [40.0]
        block.samples = [s.model_copy(update={"host_us": {BASE: 60.0}.get(s.variant, 5.0)}) for s in block.samples]
    for name, us in busy_us.items():
        made = with_row(made, name, why=Why(kernels=1, busy_us=us))
    found = row(judge(made, PEAKS)).speedup
    assert math.log(found.high / found.low) / 2 == pytest.approx(half, rel=0.04)


NOISY = [1.056, 1.065, 1.075]  # three rounds on a noisy host, all off by chance: seen on an H200


@pytest.mark.parametrize(
    ("control", "late", "wanted"),
    [
        ([1.0] * 3, True, True),
        (NOISY, True, False),
        ([*NOISY, 0.97, 0.94], True, True),
        ([1.06] * 7, True, False),
        ([1.06] * 8, True, True),
        ([1.06] * 8, False, False),
        ([1.06] * 16, False, True),
        ([1.0] * 7, False, False),
        ([1.0] * 8, False, True),
        ([1.0] * 2, True, False),
    ],
)
def test_a_session_takes_more_rounds_while_the_control_is_off(control: list[float], late: bool, wanted: bool) -> None:
    rounds = len(control)
    us = {BASE: [100.0] * rounds, OPT: [50.0] * rounds, CONTROL: [100.0 / ratio for ratio in control]}
    assert enough(pair(TWO, blocks=still(us)), [OPT], rounds, late) is wanted


def test_a_wide_interval_takes_more_rounds_while_there_is_time() -> None:
    us = {BASE: [100.0] * 8, OPT: [49.0, 51.0] * 4}
    result = pair(TWO, blocks=still(us))
    assert (enough(result, [OPT], 8, late=False), enough(result, [OPT], 8, late=True)) == (False, True)
    assert enough(result, [], 8, late=False), "of what prepares slowly nobody waits for the precision"
