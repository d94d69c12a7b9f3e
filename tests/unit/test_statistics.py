"""Intervals cover the truth as often as they claim on noise like a GPU's, and careless designs do not."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from fuzz import examples
from hypothesis import given
from hypothesis import strategies as st

from common.python.base.results import Block, Interval, Sample
from common.python.regress.run_comparison import welch
from common.python.stats.intervals import (
    compare,
    half_width,
    interval,
    round_log_ratios,
    spread,
    t_95,
    verdict,
    widened,
)

SESSIONS = 400


@dataclass(frozen=True)
class Machine:
    """Noise of simulated sessions of 8 rounds by 4 mirrored blocks. Standard deviations are relative."""

    noise: float = 0.002  # of a sample
    placement: float = 0.004  # of a round and variant: where its buffers landed
    drift: float = 0.0  # largest linear change over a session, either way
    wander: float = 0.0  # step of a random walk from sample to sample
    spikes: float = 0.0  # share of samples that take 2 to 10 times as long

    def sessions(self, log_ratio: float = 0.0, *, seed: int) -> Iterator[list[Block]]:
        random = np.random.default_rng(seed)
        shape = (SESSIONS, 8, 4, 4)
        total = math.prod(shape[1:])
        when = np.broadcast_to(np.arange(total).reshape(1, *shape[1:]), shape)
        which = np.array([0, 1, 1, 0]) ^ random.integers(0, 2, (*shape[:-1], 1))
        log_time = math.log(100.0) - log_ratio * which + random.normal(0, self.noise, shape)
        placed = random.normal(0, self.placement, (SESSIONS, 8, 1, 2))
        log_time += np.take_along_axis(np.broadcast_to(placed, (*shape[:-1], 2)), which, axis=3)
        log_time += np.log1p(random.uniform(-self.drift, self.drift, (SESSIONS, 1, 1, 1)) * when / total)
        log_time += random.normal(0, self.wander, (SESSIONS, total)).cumsum(axis=1).reshape(shape)
        log_time += np.where(random.random(shape) < self.spikes, np.log(random.uniform(2, 10, shape)), 0)
        for session, variants in zip(np.exp(log_time).tolist(), which.tolist()):
            yield [
                _block(*zip(("ba"[variant] for variant in order), block), round=index)
                for index, (blocks, orders) in enumerate(zip(session, variants))
                for block, order in zip(blocks, orders)
            ]


def _block(*samples: tuple[str, float | None], round: int = 0, discarded: str | None = None) -> Block:
    taken = [Sample.model_construct(variant=name, device_us=time, wall_us=None, host_us=1.0) for name, time in samples]
    return Block.model_construct(round=round, steps=1, samples=taken, discarded=discarded)


def _coverage(intervals: list[Interval | None], truth: float = 1.0) -> float:
    assert len(intervals) >= 400
    return float(np.mean([found is not None and found.low <= truth <= found.high for found in intervals]))


def _compared(sessions: Iterator[list[Block]]) -> list[Interval | None]:
    return [compare(blocks, "b", "a", "device") for blocks in sessions]


@pytest.mark.parametrize("noise", [Machine(), Machine(drift=0.05, wander=0.002)], ids=["placement", "drift"])
def test_the_interval_covers_the_truth_as_often_as_it_says(noise: Machine) -> None:
    truth = 1.3
    intervals = _compared(noise.sessions(math.log(truth), seed=1))
    assert 0.92 <= _coverage(intervals, truth) <= 0.98


def test_spikes_in_a_few_samples_do_not_spoil_the_interval() -> None:
    clean = _compared(Machine(drift=0.05).sessions(seed=2))
    spiky = _compared(Machine(drift=0.05, spikes=0.05).sessions(seed=2))
    assert _coverage(spiky) >= 0.92
    assert np.median([half_width(i) for i in spiky if i]) < 1.2 * np.median([half_width(i) for i in clean if i])


@examples(100)
@given(
    order=st.permutations(["a", "b", "control", "peer"]),
    times=st.lists(st.floats(1, 1e5), min_size=4, max_size=4),
    slope=st.floats(-0.01, 0.01),
)
def test_linear_drift_cancels_in_a_mirrored_block_of_any_variants(
    order: list[str], times: list[float], slope: float
) -> None:
    taken = [*order, *reversed(order)]
    drifted = [(name, times[order.index(name)] * math.exp(slope * i)) for i, name in enumerate(taken)]
    expected = math.log(times[order.index("a")] / times[order.index("b")])
    assert round_log_ratios([_block(*drifted)], "a", "b", "device") == [pytest.approx(expected, abs=1e-9)]


def test_a_rounds_ratio_is_the_median_over_those_of_each_sample_to_each() -> None:
    block = _block(("a", 16.0), ("b", 1.0), ("b", 4.0), ("a", 3.0))  # 16, 4, 3 and 3/4
    assert np.exp(round_log_ratios([block], "a", "b", "device")) == pytest.approx([math.sqrt(12)])
    assert np.exp(round_log_ratios([block], "b", "a", "device")) == pytest.approx([1 / math.sqrt(12)])


def test_a_block_without_a_variant_or_without_its_time_on_the_clock_does_not_count() -> None:
    block = _block(("a", 8.0), ("b", 1.0), ("b", 1.0), ("a", 2.0))
    assert round_log_ratios([block], "a", "c", "device") == []
    assert round_log_ratios([block], "a", "a", "end_to_end") == []
    assert np.exp(round_log_ratios([block], "a", "b", "device")) == pytest.approx([4.0])
    with pytest.raises(ValueError, match="a in round 0 took 0"):
        round_log_ratios([_block(("a", 0.0), ("b", 1.0))], "a", "b", "device")


def test_a_round_is_the_median_of_its_blocks_that_count() -> None:
    e = math.e
    blocks = [
        _block(("a", e**5), ("b", 1.0), round=3),
        *(_block(("a", e**power), ("b", 1.0), round=1) for power in (1, 2, 9)),
        _block(("a", e**7), ("b", 1.0), round=1, discarded="thermal slowdown"),
        _block(("a", e**7), ("b", 1.0), round=2, discarded="thermal slowdown"),
        _block(("a", 1.0), round=4),
    ]
    assert round_log_ratios(blocks, "a", "b", "device") == pytest.approx([2.0, 5.0])


def test_an_interval_is_the_t_interval_of_the_logs() -> None:
    found = interval([math.log(1.9), math.log(2.0), math.log(2.1)])
    logs = np.log([1.9, 2.0, 2.1])
    half = 4.30265273 * logs.std(ddof=1) / math.sqrt(3)
    assert found.rounds == 3
    assert found.ratio == pytest.approx(math.exp(logs.mean()))
    assert math.log(found.high) - logs.mean() == pytest.approx(half)
    assert logs.mean() - math.log(found.low) == pytest.approx(half)


def test_end_to_end_an_outlying_round_widens_the_interval_and_does_not_move_the_ratio() -> None:
    def taken(variant: str, log: float) -> Sample:
        time = 100 * math.exp(log)
        return Sample(variant=variant, device_us=time, wall_us=time, host_us=1.0)

    logs = 0.01, -0.02, 0.35
    blocks = [
        _block(round=index).model_copy(update={"samples": [taken("a", log), taken("b", 0.0)]})
        for index, log in enumerate(logs)
    ]
    host, device = compare(blocks, "a", "b", "end_to_end"), compare(blocks, "a", "b", "device")
    assert math.log(host.ratio) == pytest.approx(0.01)
    assert math.log(device.ratio) == pytest.approx(np.mean(logs))
    assert half_width(host) == pytest.approx(half_width(device))
    further = interval(list(logs), "end_to_end", 0.0)
    assert further.ratio == pytest.approx(host.ratio), "as another run would know it, too"


def test_two_runs_fall_into_each_others_intervals() -> None:
    """Runs err by themselves too, by 0.4 of the variance of their rounds, as eleven pairs did in the mean (121a6dd)."""
    rng, usual, runs = np.random.default_rng(12), 0.05, SESSIONS * 5
    own = rng.normal(0.0, usual * math.sqrt(0.4), (runs, 2))
    rounds = own[..., None] + rng.normal(0.0, usual, (runs, 2, 3))

    def agreeing(known: Callable[[list[float]], Interval | None]) -> tuple[float, float]:
        """The share of pairs of runs of which each has the other's ratio in its interval; the median half-width."""
        pairs = [[known(values.tolist()) for values in two] for two in rounds]
        inside = [a.low <= b.ratio <= a.high and b.low <= a.ratio <= b.high for a, b in pairs if a and b]
        return float(np.mean(inside)), float(np.median([half_width(i) for two in pairs for i in two if i]))

    alone, narrow = agreeing(lambda values: interval(values, "end_to_end"))
    twice, _ = agreeing(lambda values: widened(found, half_width(found)) if (found := interval(values)) else None)
    ours, wide = agreeing(lambda values: interval(values, "end_to_end", usual))
    assert alone < 0.75
    assert twice < 0.88
    assert ours > 0.92
    assert wide < 1.3 * narrow


def test_fewer_than_two_rounds_give_no_interval_and_no_verdict() -> None:
    assert interval([0.5]) is None
    assert interval([0.5], "end_to_end", 1.0) is None
    assert interval([]) is None
    assert verdict(None) == "inconclusive"


# Two-sided quantiles of Student's t at 95%, from published tables.
PUBLISHED = {
    1: 12.706204736,
    2: 4.302652730,
    3: 3.182446305,
    4: 2.776445105,
    7: 2.364624252,
    10: 2.228138852,
    30: 2.042272456,
    120: 1.979930405,
}


@pytest.mark.parametrize("df", PUBLISHED)
def test_t_quantiles_are_those_of_the_tables(df: int) -> None:
    assert t_95(df) == pytest.approx(PUBLISHED[df], abs=1e-6, rel=0)


VERDICTS = {
    (1.011, 1.5): "faster",
    (1.0100, 1.5): "inconclusive",
    (0.5, 0.989): "slower",
    (0.5, 0.99): "inconclusive",
    (0.99, 1.01): "same",
    (0.995, 1.02): "inconclusive",
    (0.98, 1.005): "inconclusive",
    (0.5, 2.0): "inconclusive",
}


@pytest.mark.parametrize(("low", "high"), VERDICTS)
def test_the_verdict_follows_from_where_the_interval_lies(low: float, high: float) -> None:
    found = Interval(ratio=math.sqrt(low * high), low=low, high=high, rounds=8)
    assert verdict(found) == VERDICTS[low, high]


def test_a_spread_has_the_usual_figures_and_counts_far_outliers_that_it_keeps() -> None:
    found = spread(list(range(101)))
    assert (found.p95, found.p99, found.mean) == (95.0, 99.0, 50.0)
    assert found.std == pytest.approx(math.sqrt(101 * 102 / 12))
    assert spread([7.0]).std == 0.0
    near, far = [-5.0, 33.4], [-5.1, 33.6, 99.0]  # of the quartiles 11.5 and 17, 3 ranges beyond is -5 and 33.5
    middle = [11.5, 11.5, 11.5, 17.0, 17.0, 17.0]
    assert spread(middle + near).outliers == 0
    assert spread(middle * 3 + far).outliers == 3
    assert spread(middle * 3 + far).n == 21
    assert spread(middle * 3 + far).mean == pytest.approx((9 * 28.5 + 127.5) / 21)


def test_two_unpaired_groups_have_the_interval_of_welch() -> None:
    above, below = [1.0, 1.2], [0.4, 0.5, 0.3]  # variances 0.02 and 0.01: 0.01 and 0.01 / 3 of the means
    found = welch(above, below)
    variance = 0.01 + 0.01 / 3
    df = int(variance**2 / (0.01**2 / 1 + (0.01 / 3) ** 2 / 2))
    assert df == 1
    half = 12.706205 * math.sqrt(variance)
    assert [math.log(x) for x in (found.low, found.ratio, found.high)] == pytest.approx([0.7 - half, 0.7, 0.7 + half])
    assert found.rounds == 2
    assert welch([1.0], below) is None
    same = welch([1.0, 1.0], [1.0, 1.0])
    assert same == Interval(ratio=1.0, low=1.0, high=1.0, rounds=2)
