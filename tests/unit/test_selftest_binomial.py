"""What a count says of a promised share."""

import pytest

from tools.selftest.binomial import clopper_pearson, promised_share


# From tables of the Clopper-Pearson interval: e.g. 0 of n has the upper end 1 - 0.025^(1/n).
@pytest.mark.parametrize(
    ("hits", "n", "low", "high"),
    [(0, 10, 0.0, 0.3085), (10, 10, 0.6915, 1.0), (5, 10, 0.1871, 0.8129), (190, 200, 0.9100, 0.9758)],
)
def test_the_interval_is_that_of_the_tables(hits: int, n: int, low: float, high: float) -> None:
    assert clopper_pearson(hits, n) == pytest.approx((low, high), abs=1e-4)


@pytest.mark.parametrize(
    ("hits", "n", "standing"),
    [
        (186, 200, "kept"),  # exactly 93%
        (185, 200, "undecided"),  # below, but 200 trials cannot tell
        (170, 200, "refuted"),
        (41, 41, "undecided"),  # one trial short of what a perfect record needs
        (42, 42, "kept"),
        (0, 0, "not run"),
    ],
)
def test_a_promised_share_is_kept_undecided_or_refuted(hits: int, n: int, standing: str) -> None:
    for found in (
        promised_share("aa", "it covers", hits, n, 0.93),
        promised_share("aa", "it errs", n - hits, n, 0.07, at_most=True),
    ):
        assert found.standing == standing
        assert (found.measured == "-") == (standing == "not run")
