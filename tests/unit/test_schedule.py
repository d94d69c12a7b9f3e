"""How many rounds and blocks a session takes, by hand-computed cases."""

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from common.python.stats.round_blocks import blocks_by, later_s

from common.python.base.results import CONTROL, Block, ClockName, PairResult, Sample
from common.python.stats.intervals import compare, round_log_ratios
from common.python.stats.sampling_plan import (
    blocks_in_round,
    due,
    enough_of_a_pass,
    enough_of_proofs,
    fixed_plan,
    has_control,
    out_of_time,
    put_off,
    warm_passes,
    worth,
)


@pytest.mark.parametrize(
    ("iterations", "plan"),
    [
        (None, None),
        (1, [1]),
        (2, [1]),
        (6, [1, 1, 1]),
        (20, [2, 2, 1, 1, 1, 1, 1, 1]),
        (64, [4] * 8),
    ],
)
def test_a_block_holds_two_samples_of_each_and_rounds_share_the_blocks(
    iterations: int | None, plan: list[int] | None
) -> None:
    assert fixed_plan(iterations) == plan


def test_the_control_is_in_a_rounds_first_block_and_on_the_devices_clock_in_no_other() -> None:
    assert [has_control(index, "device") for index in range(4)] == [True, False, False, False]
    assert all(has_control(index, "end_to_end") for index in range(5))


def test_end_to_end_a_block_is_not_mirrored_where_a_pass_of_each_round_spends_the_budget() -> None:
    assert enough_of_a_pass(0.6, "end_to_end", None) == pytest.approx(0.2)
    assert enough_of_a_pass(0.06, "end_to_end", None) == 0.05
    assert enough_of_a_pass(0.6, "device", None) is None
    assert enough_of_a_pass(0.6, "end_to_end", [1, 1]) is None, "the samples are counted"


def test_warm_up_steps_are_shared_out_over_the_rounds() -> None:
    assert warm_passes(None, 5) is None
    assert warm_passes([1, 1, 1], 5) == 2
    assert warm_passes([1, 1, 1], 0) == 0
    assert warm_passes([1, 1, 1], None) == 0


def test_a_round_takes_its_eighth_of_the_budget_but_a_block_at_least_and_not_hundreds() -> None:
    assert blocks_in_round(budget_s=4.0, first_s=0.1, later_s=0.1) == 5
    assert blocks_in_round(budget_s=4.0, first_s=3.0, later_s=3.0) == 1
    assert blocks_in_round(budget_s=4.0, first_s=1e-4, later_s=1e-4) == 32
    assert blocks_in_round(budget_s=4.0, first_s=0.0, later_s=0.0) == 32


def test_what_a_rounds_first_block_holds_beside_the_others_is_not_expected_of_them() -> None:
    assert blocks_in_round(budget_s=4.0, first_s=0.25, later_s=0.1) == 3
    assert blocks_in_round(budget_s=4.0, first_s=0.45, later_s=0.1) == 1
    assert blocks_in_round(budget_s=4.0, first_s=0.6, later_s=0.1) == 1


@pytest.mark.parametrize(("clock", "expected_s"), [("device", 0.4), ("end_to_end", 0.6)])
def test_what_only_a_first_block_holds_is_not_expected_of_later_ones(clock: ClockName, expected_s: float) -> None:
    samples = [SimpleNamespace(variant=name) for name in ("baseline_a", "optimized_a", CONTROL) * 2]
    first: Any = SimpleNamespace(samples=samples, walls=[None] * 3)
    assert later_s(first, 0.9, clock) == pytest.approx(expected_s)


@pytest.mark.parametrize(
    ("beside_s", "blocks"),
    [
        (0.01, 5),  # of 8 rounds
        (0.125, 8),  # half a budget of 1 s is spent beside 4 rounds, the first is not counted
        (0.25, 13),
        (0.3, 15),  # of three at least, whose share is a bit more than a third
        (9.0, 16),
    ],
)
def test_where_preparing_and_proving_leave_time_for_fewer_rounds_these_share_the_budget(
    beside_s: float, blocks: int
) -> None:
    assert blocks_in_round(1.0, first_s=0.024, later_s=0.024, beside_s=beside_s) == blocks


@pytest.mark.parametrize(
    ("noise", "placed", "round_s"), [(0.002, 0.001, 0.05), (0.002, 0.0005, 0.2), (0.001, 0.0008, 0.03)]
)
def test_so_many_blocks_are_worth_their_time_as_make_the_mean_of_rounds_surest(
    noise: float, placed: float, round_s: float
) -> None:
    """Of a session that lasts so long, the mean's variance is that of a round over their number."""
    block_s = 0.011

    def variance(blocks: float) -> float:
        return (placed**2 + noise**2 / blocks) * (round_s + blocks * block_s)

    best = min(range(1, 100), key=variance)
    assert best > 1
    assert worth(noise, placed, round_s, block_s) == pytest.approx(best, abs=0.5)
    assert worth(noise, 0.0, round_s, block_s) == math.inf


def taken(rounds: int, blocks: int, noise: float, placement: float, seed: int) -> list[Block]:
    """Rounds of so many blocks each of a baseline, its control and a variant that takes half as long, of log times."""
    random, found = np.random.default_rng(seed), []
    for index in range(rounds):
        places = random.normal(0, placement, 3)
        for nth in range(blocks):
            names = ["baseline_a", "optimized_a"] + [CONTROL] * (nth == 0)
            times = {name: places[which] - 0.7 * (which == 1) for which, name in enumerate(names)}
            samples = [
                Sample(
                    variant=name,
                    device_us=1e3 * math.exp(times[name] + random.normal(0, noise)),
                    wall_us=None,
                    host_us=1.0,
                )
                for name in [*names, *reversed(names)]
            ]
            found.append(Block(round=index, steps=1, samples=samples))
    return found


def result(blocks: list[Block], clock: ClockName = "device") -> PairResult:
    return PairResult(chapter="ch01", name="a", status="measured", clock=clock, blocks=blocks)


def test_where_addresses_tell_more_than_noise_a_round_has_one_block_and_else_its_share() -> None:
    def blocks(placement: float, rounds: int) -> list[int]:
        return [blocks_by(result(taken(rounds, 1, 0.001, placement, seed)), 1.0, 0.012, 0.02) for seed in range(200)]

    assert np.mean([count <= 2 for count in blocks(0.005, 1)]) > 0.4, "a single round may show little of it by chance"
    assert np.mean([count <= 2 for count in blocks(0.005, 3)]) > 0.85
    assert np.mean([count <= 2 for count in blocks(0.01, 1)]) > 0.6
    assert np.mean([count <= 2 for count in blocks(0.01, 3)]) > 0.9
    assert np.mean([count == 15 for count in blocks(0.0, 1)]) > 0.98
    assert np.mean([count == 15 for count in blocks(0.0, 3)]) > 0.98


def by_noise_and_addresses(kept: list[Block], later: list[Block]) -> int:
    return blocks_by(result([*kept]), 0.25, 0.028, 0.02) - 1


def by_what_looks_best(kept: list[Block], later: list[Block]) -> int:
    """What the rule must not be: it looks at the ratio that is asked for."""
    found = [round_log_ratios([kept[-1], *later[:more]], "optimized_a", "baseline_a", "device")[0] for more in range(5)]
    return int(np.argmax(found))


@pytest.mark.parametrize(
    ("rule", "placement", "least", "most"),
    [
        (by_noise_and_addresses, 0.0, 0.92, 0.98),
        (by_noise_and_addresses, 0.001, 0.92, 0.98),
        (by_noise_and_addresses, 0.003, 0.92, 0.98),
        (by_what_looks_best, 0.0, 0.0, 0.85),
    ],
)
def test_the_interval_covers_as_well_where_noise_and_addresses_say_how_many_blocks_there_are(
    rule: Callable[[list[Block], list[Block]], int], placement: float, least: float, most: float
) -> None:
    """Five rounds of up to five blocks, with a noise of 0.001; the variant takes half as long."""
    inside = 0
    for seed in range(400):
        whole, kept = taken(5, 5, 0.001, placement, seed), list[Block]()
        for index in range(5):
            first, *later = whole[5 * index : 5 * index + 5]
            kept.append(first)
            kept += later[: rule(kept, later)]
        found = compare(kept, "optimized_a", "baseline_a", "device")
        assert found is not None
        inside += found.low <= math.exp(-0.7) <= found.high
    assert least <= inside / 400 <= most


def test_what_goes_beside_a_rounds_blocks_is_what_the_first_one_has_beside_the_others_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Walls and a control: here 0.01 s, a third of what six samples take."""
    asked = list[tuple[float, float]]()

    def worth(noise: float, placed: float, round_s: float, block_s: float) -> float:
        asked.append((round_s, block_s))
        return math.inf

    monkeypatch.setattr("common.python.stats.sampling_plan.worth", worth)
    one = result(taken(1, 1, 0.001, 0.0, seed=1))
    assert blocks_by(one, 1.0, 0.03, 0.0) == 5
    assert blocks_by(one, 1.0, 0.03, 0.25) == 16, "of three rounds"
    assert asked == [pytest.approx((0.02, 0.02)), pytest.approx((0.26, 0.02))], "and a block's time at least"


def test_end_to_end_a_round_has_its_share_of_blocks_however_far_baseline_and_control_are_apart() -> None:
    """The two samples of whoever is in a block's middle follow each other: one stall of the host is in both."""
    blocks = [
        block.model_copy(update={"samples": [s.model_copy(update={"wall_us": s.device_us}) for s in block.samples]})
        for block in taken(1, 1, 0.001, 0.1, seed=2)
    ]
    assert blocks_by(result(blocks), 1.0, 0.006, 0.0) == 1
    assert blocks_by(result(blocks, "end_to_end"), 1.0, 0.006, 0.0) == 20


@pytest.mark.parametrize("first_s", [0.006, 0.0566, 0.1738, 0.0])
def test_where_a_first_block_has_nothing_that_others_have_not_the_round_costs_a_block_all_the_same(
    first_s: float,
) -> None:
    """Without walls or a control; and 0.006 * 6 / 6 is more than 0.006, by a rounding."""
    [block] = taken(1, 1, 0.001, 0.1, seed=2)
    more = [s.model_copy(update={"variant": f"{s.variant}2"}) for s in block.samples if s.variant == CONTROL]
    assert len(block.samples) == 6
    alike = block.model_copy(update={"samples": [s for s in block.samples if s.variant != CONTROL] + more})
    assert blocks_by(result([block, alike]), 1.0, first_s, 0.0) == 1


@pytest.mark.parametrize(("block_s", "blocks"), [(0.001, 20), (0.01, 4), (0.0124, 4), (0.015, 3), (0.03, 1), (0.2, 1)])
def test_a_round_of_a_small_budget_takes_a_few_blocks_for_no_longer_than_a_twentieth_of_a_second(
    block_s: float, blocks: int
) -> None:
    assert blocks_in_round(budget_s=0.05, first_s=block_s, later_s=block_s) == blocks


@pytest.mark.parametrize(("budget_s", "blocks", "rounds"), [(0.2, 16, 3), (0.5, 25, 4), (1.0, 25, 8), (4.0, 32, 8)])
def test_a_smaller_budget_has_fewer_rounds_of_which_three_use_it_up(budget_s: float, blocks: int, rounds: int) -> None:
    """Each round prepares, warms up and proves anew."""
    assert blocks_in_round(budget_s, first_s=0.005, later_s=0.005) == blocks
    assert rounds == 8 or rounds * blocks * 0.005 >= budget_s


@pytest.mark.parametrize(
    ("budget_s", "company", "enough_s"), [(1.0, 1, 0.25), (0.2, 1, 0.05), (1.0, 2, 0.5), (0.2, 9, 0.15)]
)
def test_proofs_before_timing_have_a_quarter_of_the_budget_and_more_beside_others(
    budget_s: float, company: int, enough_s: float
) -> None:
    assert enough_of_proofs(budget_s, company) == pytest.approx(enough_s)


def test_a_probe_is_due_in_the_block_that_lies_as_far_into_its_round_or_in_the_next_that_there_is() -> None:
    probes = [(1, 0.0), (1, 0.6), (2, 0.0)]
    assert due(probes, 0, 3, 4) == []
    assert due(probes, 1, 0, 4) == [(1, 0.0)]
    assert due(probes, 1, 1, 4) == [(1, 0.0)]
    assert due(probes, 1, 2, 4) == [(1, 0.0), (1, 0.6)]
    assert due(probes, 1, 1, 1) == [(1, 0.0), (1, 0.6)]


def test_a_probe_for_which_a_round_has_no_block_left_is_made_in_the_next_round_that_has_none() -> None:
    assert put_off([(0, 0.7), (1, 0.2)], 0) == [(2, 0.7), (1, 0.2)]
    assert put_off([(2, 0.2), (0, 0.7)], 0) == [(2, 0.2), (1, 0.7)]
    assert put_off([(0, 0.7)], 0) == [(1, 0.7)]
    assert put_off([(1, 0.2), (2, 0.7)], 0) == [(1, 0.2), (2, 0.7)]
    assert put_off([], 0) == []


@pytest.mark.parametrize(
    ("seconds", "late"),
    [
        ({"prepare": 0.5, "warm-up": 0.5, "proof": 0.4, "samples": 2.9}, False),
        ({"samples": 3.0}, True),
        ({"prepare": 0.5, "warm-up": 0.5, "proof": 0.5, "samples": 1.0}, True),
        ({"start": 9.0, "why": 9.0, "writing": 9.0, "samples": 1.0}, False),
    ],
)
def test_time_is_up_after_a_budget_of_samples_or_half_as_much_beside_them(
    seconds: dict[str, float], late: bool
) -> None:
    assert out_of_time(seconds, 3.0) is late


def test_what_was_spent_until_the_first_round_had_ended_takes_no_time_from_sampling() -> None:
    seconds = {"prepare": 40.0, "warm-up": 3.0, "proof": 2.0, "samples": 1.0}
    assert out_of_time(seconds, 3.0)
    assert not out_of_time(seconds, 3.0, opened_s=44.0)
    assert out_of_time(seconds, 3.0, opened_s=43.5)
