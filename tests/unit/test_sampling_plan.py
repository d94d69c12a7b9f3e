"""How many rounds and blocks a session takes, by hand-computed cases."""

import pytest

from common.python.stats.sampling_plan import blocks_in_round, fixed_plan, has_control, out_of_time, warm_passes


@pytest.mark.parametrize(
    ("iterations", "plan"),
    [(None, None), (1, [1]), (2, [1]), (6, [1, 1, 1]), (20, [2, 2, 1, 1, 1, 1, 1, 1]), (64, [4] * 8)],
)
def test_a_block_holds_two_samples_of_each_and_rounds_share_the_blocks(
    iterations: int | None, plan: list[int] | None
) -> None:
    assert fixed_plan(iterations) == plan


def test_the_control_is_in_a_rounds_first_block_and_on_the_devices_clock_in_no_other() -> None:
    assert [has_control(index, "device") for index in range(4)] == [True, False, False, False]
    assert all(has_control(index, "end_to_end") for index in range(5))


def test_warm_up_steps_are_shared_out_over_the_rounds() -> None:
    assert warm_passes(None, 5) is None
    assert warm_passes([1, 1, 1], 5) == 2
    assert warm_passes([1, 1, 1], 0) == 0
    assert warm_passes([1, 1, 1], None) == 0


@pytest.mark.parametrize(
    ("budget_s", "first_s", "later_s", "beside_s", "blocks"),
    [
        # An eighth of the budget, a block at least, not hundreds; a round's first block may hold more than the others.
        *((4.0, 0.1, 0.1, 0.0, 5), (4.0, 3.0, 3.0, 0.0, 1), (4.0, 1e-4, 1e-4, 0.0, 32), (4.0, 0.0, 0.0, 0.0, 32)),
        *((4.0, 0.25, 0.1, 0.0, 3), (4.0, 0.45, 0.1, 0.0, 1), (4.0, 0.6, 0.1, 0.0, 1)),
        # Where preparing and proving leave time for fewer of the 8 rounds, three at least, these share the budget.
        *(
            (1.0, 0.024, 0.024, beside_s, n)
            for beside_s, n in ((0.01, 5), (0.125, 8), (0.25, 13), (0.3, 15), (9.0, 16))
        ),
        # Of a small budget a few blocks, for no longer than a twentieth of a second.
        *((0.05, s, s, 0.0, n) for s, n in ((0.001, 20), (0.01, 4), (0.0124, 4), (0.015, 3), (0.03, 1), (0.2, 1))),
        # A smaller budget has fewer rounds, each of which prepares, warms up and proves anew: three use it up.
        *((budget_s, 0.005, 0.005, 0.0, n) for budget_s, n in ((0.2, 16), (0.5, 25), (1.0, 25), (4.0, 32))),
    ],
)
def test_blocks_of_a_round_share_the_budget(
    budget_s: float, first_s: float, later_s: float, beside_s: float, blocks: int
) -> None:
    assert blocks_in_round(budget_s, first_s=first_s, later_s=later_s, beside_s=beside_s) == blocks


@pytest.mark.parametrize(
    ("seconds", "opened_s", "late"),
    [
        ({"prepare": 0.5, "warm-up": 0.5, "proof": 0.4, "samples": 2.9}, 0.0, False),
        ({"samples": 3.0}, 0.0, True),
        ({"prepare": 0.5, "warm-up": 0.5, "proof": 0.5, "samples": 1.0}, 0.0, True),
        ({"start": 9.0, "why": 9.0, "writing": 9.0, "samples": 1.0}, 0.0, False),
        # What was spent until the first round had ended takes no time from sampling.
        *(({"prepare": 40.0, "warm-up": 3.0, "proof": 2.0, "samples": 1.0}, s, s < 44.0) for s in (0.0, 43.5, 44.0)),
    ],
)
def test_time_is_up_after_a_budget_of_samples_or_half_as_much_beside_them(
    seconds: dict[str, float], opened_s: float, late: bool
) -> None:
    assert out_of_time(seconds, 3.0, opened_s=opened_s) is late
