"""How many rounds and blocks a session takes, by hand-computed cases."""

import pytest

from common.python.schedule import blocks_in_round, fixed_plan, has_control, out_of_time, warm_passes


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


def test_the_control_is_in_a_rounds_first_block_and_on_the_devices_clock_in_every_other() -> None:
    assert [has_control(index, "device") for index in range(5)] == [True, False, True, False, True]
    assert all(has_control(index, "end_to_end") for index in range(5))


def test_warm_up_steps_are_shared_out_over_the_rounds() -> None:
    assert warm_passes(None, 5) is None
    assert warm_passes([1, 1, 1], 5) == 2
    assert warm_passes([1, 1, 1], 0) == 0
    assert warm_passes([1, 1, 1], None) == 0


def test_a_round_takes_its_eighth_of_the_budget_but_a_block_at_least_and_not_hundreds() -> None:
    assert blocks_in_round(budget_s=4.0, block_s=0.1) == 5
    assert blocks_in_round(budget_s=4.0, block_s=3.0) == 1
    assert blocks_in_round(budget_s=4.0, block_s=1e-4) == 32
    assert blocks_in_round(budget_s=4.0, block_s=0.0) == 32


@pytest.mark.parametrize(("block_s", "blocks"), [(0.001, 6), (0.01, 4), (0.025, 4), (0.03, 3), (0.06, 1), (0.2, 1)])
def test_a_round_of_a_small_budget_takes_a_few_blocks_for_no_longer_than_a_tenth_of_a_second(
    block_s: float, blocks: int
) -> None:
    assert blocks_in_round(budget_s=0.05, block_s=block_s) == blocks


@pytest.mark.parametrize(
    ("seconds", "late"),
    [
        ({"prepare": 2.0, "warm-up": 1.0, "proof": 1.4, "samples": 2.9}, False),
        ({"samples": 3.0}, True),
        ({"prepare": 2.0, "warm-up": 1.0, "proof": 1.5, "samples": 1.0}, True),
        ({"start": 9.0, "why": 9.0, "end": 9.0, "samples": 1.0}, False),
    ],
)
def test_time_is_up_after_a_budget_of_samples_or_half_as_much_again_beside_them(
    seconds: dict[str, float], late: bool
) -> None:
    assert out_of_time(seconds, 3.0) is late


def test_what_was_spent_until_the_first_round_had_ended_takes_no_time_from_sampling() -> None:
    seconds = {"prepare": 40.0, "warm-up": 3.0, "proof": 2.0, "samples": 1.0}
    assert out_of_time(seconds, 3.0)
    assert not out_of_time(seconds, 3.0, opened_s=41.0)
    assert out_of_time(seconds, 3.0, opened_s=40.5)
