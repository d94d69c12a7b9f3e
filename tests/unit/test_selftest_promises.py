"""The arithmetic of each experiment: an honest harness keeps its promise, one with a planted fault does not."""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas
import pytest
from synthetic_run import noisy_blocks, variant

from common.python.base.results import CONTROL, PairResult, Status, Verdict
from common.python.corpus.discovery import find_pairs
from common.python.corpus.targets import pair_name
from tools.selftest import cheats, others, truth
from tools.selftest.cheats import Caught
from tools.selftest.promises import Promise, clopper_pearson, promised_share
from tools.selftest.sessions import Outcome, outcomes
from tools.selftest.tree import LEVER, OWN, SUBJECTS, Lane, lay_lanes
from tools.selftest.tree import PLANTED as PLANTED_STEP
from tools.selftest.truth import SPIN_US

TWINS = [Lane("a", "b", 0.0), Lane("c", "d", 0.0)]
PLANTED = [Lane("a", "p1", 0.005), Lane("b", "p2", 0.01), Lane("c", "p3", 0.02), Lane("d", "p4", 0.05)]
PULLED = [*PLANTED, Lane("a", "lever", LEVER)]
TRUE_TIMES = {"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0}
SLOWED = TRUE_TIMES | {lane.below: 1 + lane.planted for lane in PULLED}


def many(
    count: int,
    lanes: Sequence[Lane],
    times: Mapping[str, float] = TRUE_TIMES,
    noise: float = 0.003,
    placed: float = 0.001,
) -> list[Outcome]:
    """The comparisons of sessions of a harness whose clock reads `times` with this noise."""
    rng, found = np.random.default_rng(5), list[Outcome]()
    for _ in range(count):
        blocks = noisy_blocks(rng, times, noise, placed)
        result = PairResult(chapter="ch01", name="x", status="measured", clock="device", blocks=blocks)
        found += outcomes(result, lanes)
    return found


def standings(promises: Sequence[Promise]) -> list[str]:
    return [promise.standing for promise in promises]


# Shares


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


# 1. A/A


@pytest.mark.parametrize(
    ("bias", "count", "standing"), [(1.0, 200, "kept"), (1.02, 200, "refuted"), (1.0, 199, "undecided")]
)
def test_enough_sessions_of_an_unbiased_sampler_keep_promise_1(bias: float, count: int, standing: str) -> None:
    found = many(count, TWINS, times=TRUE_TIMES | {"b": bias, "d": bias})
    assert standings(truth.no_difference(found)) == [standing] * 2


def test_sessions_that_fail_or_are_called_invalid_count_as_false() -> None:
    good = many(170, TWINS)
    died = outcomes(PairResult(chapter="ch01", name="x", status="failed", reason="it died"), TWINS)
    false, covered = truth.no_difference([*good, *died * 40])
    assert (false.standing, covered.standing) == ("refuted", "refuted")
    assert "80 failed, such as ch01:x: it died" in (covered.note or "")
    invalid = [replace(one, verdict="invalid") for one in good[:120]]
    assert truth.no_difference([*good, *invalid])[0].standing == "refuted"


# 2. Known truth


@pytest.mark.parametrize(
    ("off", "standing"),
    [
        ((0.003, 0.004, 0.005), "kept"),
        ((0.003, 0.003, 0.2), "refuted"),  # the host's 200 us are in the reading
        ((-0.03, -0.03, -0.03), "refuted"),  # a clock that runs slow
        ((-0.03, 0.001, 0.002), "refuted"),  # and one that does so only at times
        ((0.003, 0.003), "undecided"),
        ((), "not run"),
    ],
)
def test_a_wrong_clock_breaks_promise_2(off: tuple[float, ...], standing: str) -> None:
    reads = {f"{delay} us before": [1000 * (1 + error)] * 2 + [1e6] for delay, error in zip((0, 20, 200), off)}
    assert truth.spin(reads).standing == standing


@pytest.mark.parametrize(("empty", "standing"), [(2.3, "kept"), (2.7, "refuted"), (1.3, "refuted")])
def test_an_empty_step_must_read_the_floor(empty: float, standing: str) -> None:
    assert truth.empty(2.0, [empty] * 5).standing == standing


@pytest.mark.parametrize(("noise", "standing"), [(0.002, "kept"), (0.1, "refuted")])
def test_a_sharp_clock_finds_planted_slowdowns_and_a_blunt_one_misses_them(noise: float, standing: str) -> None:
    found = truth.planted(many(100, [*PULLED, *[PLANTED[-1]] * 2], SLOWED, noise))
    assert standings(found)[1:4] == [standing] * 3
    assert standing == "refuted" or standings(found) == ["kept"] * 5


def test_the_truth_is_what_the_lever_says_a_share_adds() -> None:
    strong = TRUE_TIMES | {lane.below: 1 + 1.5 * lane.planted for lane in PULLED}
    quiet = many(1, PULLED, strong, 1e-9, placed=0.0)
    assert [o.truth for o in quiet] == pytest.approx([1 / (1 + 1.5 * lane.planted) for lane in PLANTED])
    assert [o.interval and o.interval.ratio for o in quiet] == pytest.approx([o.truth for o in quiet])


# 3. Against others


def timings(ours: tuple[float, float], other: tuple[float, float], n: int = 20) -> pandas.DataFrame:
    """Those of this harness and of an event loop on one pair, each of a spread and a bias."""
    shape = np.linspace(-1, 1, n)
    frames = []
    for method, (spread, bias) in ((others.OURS, ours), ("event loop", other)):
        ratios = np.exp(bias + spread * shape / shape.std(ddof=1))
        frames.append(pandas.DataFrame({"pair": "ch01:x", "method": method, "ratio": ratios}))
    return pandas.concat(frames)


@pytest.mark.parametrize(
    ("percent", "n", "standing"),
    [(0.1, 20, "kept"), (1.1, 20, "undecided"), (3, 20, "refuted"), (0.1, 5, "undecided"), (10, 2, "undecided")],
)
def test_the_smallest_spread(percent: float, n: int, standing: str) -> None:
    assert others.promises(timings((percent / 100, 0), (0.01, 0), n), {})[0].standing == standing


def test_a_harness_with_more_false_differences_than_an_event_loop_breaks_promise_4() -> None:
    assert others.promises(timings((0.001, 0.02), (0.001, 0)), {})[-1].standing == "refuted"
    assert standings(others.promises(timings((0.001, 0), (0.001, 0.02)), {})) == ["kept", "kept"]


def test_without_a_pair_to_time_nothing_is_said_of_other_methods() -> None:
    (found,) = others.promises(pandas.DataFrame(columns=others.COLUMNS), {"ch01:x": "it died"})
    assert (found.standing, found.note) == ("not run", "ch01:x: it died")


# 4. Cheats


def caught(honest: bool, refused: bool) -> Caught:
    return Caught("ch01:x optimized", honest, refused, "why" * refused)


@pytest.mark.parametrize(
    ("rows", "late", "expected"),
    [
        ([caught(False, True), caught(True, False)], "", ["kept", "kept"]),
        ([caught(False, False), caught(True, False)], "", ["refuted", "kept"]),
        ([caught(False, True), caught(True, True)], "", ["kept", "refuted"]),
        ([caught(False, True), caught(True, False)], "no time", ["undecided", "undecided"]),
        ([], "", ["not run", "not run"]),
    ],
)
def test_cheats_are_refused_and_nobody_else(rows: list[Caught], late: str, expected: list[str]) -> None:
    assert standings(cheats.promises(rows, late, honest_pairs=10, honest_late=0)) == expected


@pytest.mark.parametrize(
    ("label", "status", "verdict", "cheating", "told"),
    [  # told: whether it counts as honest, and as refused; None where it could not run
        ("optimized", "failed", None, True, (False, True)),
        ("optimized", "measured", "invalid", True, (False, True)),
        ("optimized", "measured", "faster", True, (False, False)),
        ("honest", "measured", "same", True, (True, False)),
        ("optimized", "measured", "invalid", False, (True, True)),
        ("optimized", "unsupported", None, True, None),
        ("optimized", "proven", None, False, None),
    ],
)
def test_who_cheats_and_who_was_refused(
    label: str, status: Status, verdict: Verdict | None, cheating: bool, told: tuple[bool, bool] | None
) -> None:
    row = variant("optimized_x", label=label, status=status, verdict=verdict)
    result = PairResult(chapter="ch01", name="x", status="measured", device="cpu", variants=[row])
    assert [(one.honest, one.refused) for one in cheats.caught(result, cheating)] == ([told] if told else [])


# The trees that it lays out: ordinary pairs, whose comparisons share no variant.

ALL = [*SUBJECTS, PLANTED_STEP]
ENDS = (("baseline", ""), ("optimized", ""), ("optimized", "__lane1"))


@pytest.mark.parametrize("baseline", ALL, ids=lambda path: path.stem)
def test_every_subject_exists_and_is_laid_out_as_a_sound_pair(baseline: Path, tmp_path: Path) -> None:
    laid = lay_lanes(tmp_path, baseline, [0.0, 0.0])
    names = [variant.name for variant in laid.pair.variants]
    assert names == [f"{start}_{pair_name(baseline.stem)}{end}" for start, end in ENDS]
    assert [variant.problem for variant in laid.pair.variants] == [None] * 3
    assert len({variant.required.sm for variant in laid.pair.variants}) == 1, "a twin needs what its baseline needs"
    assert find_pairs(tmp_path) == [laid.pair]


def test_no_variant_is_in_two_lanes_and_the_control_is_in_one(tmp_path: Path) -> None:
    laid = lay_lanes(tmp_path, PLANTED_STEP, [0.005, 0.01, 0.02, 0.05, LEVER])
    *lanes, lever = laid.lanes
    sides = [side for lane in lanes for side in (lane.above, lane.below)]
    assert len(sides) == len(set(sides)) == 8
    assert laid.lanes[0].above == "baseline_planted"
    assert laid.lanes[1].above == CONTROL
    assert lever == Lane("baseline_planted", "optimized_planted__lane4", LEVER)
    assert {*sides, lever.below} == {v.name for v in laid.pair.variants} | {CONTROL}


def test_the_spin_that_is_promised_is_the_one_that_its_kernel_does() -> None:
    statements = ast.parse((OWN / "ch01" / "baseline_spin.py").read_text()).body
    assert f"SPIN_US = {SPIN_US:.0f}" in map(ast.unparse, statements)
