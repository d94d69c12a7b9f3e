"""The arithmetic of each experiment: an honest harness keeps its promise, one with a planted fault does not."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from synthetic_run import noisy_blocks, variant

from common.python.base.results import PairResult, Status, Verdict
from tools.selftest import aa, cheats, others, truth
from tools.selftest.models import Caught, Cheats, Others, Promise, Reading, Session, Sessions, Timing, Truth
from tools.selftest.sessions import outcomes
from tools.selftest.tree import Lane

TWINS = [Lane("a", "b"), Lane("c", "d")]
PLANTED = [Lane("a", "p1", 0.005), Lane("b", "p2", 0.01), Lane("c", "p3", 0.02), Lane("d", "p4", 0.05)]
LEVER = Lane("a", "lever", 0.2)
TRUE_TIMES = {"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0}
SLOWED = TRUE_TIMES | {lane.below: 1 + lane.planted for lane in (*PLANTED, LEVER)}


def many(
    count: int,
    lanes: Sequence[Lane],
    times: Mapping[str, float] = TRUE_TIMES,
    noise: float = 0.003,
    lever: Lane | None = None,
    placed: float = 0.001,
) -> list[Session]:
    """Sessions of a harness whose clock reads `times` with this noise."""
    rng, made = np.random.default_rng(5), []
    for number in range(count):
        blocks = noisy_blocks(rng, times, noise, placed)
        result = PairResult(chapter="ch01", name="x", status="measured", clock="device", blocks=blocks)
        made.append(Session(pair="ch01:x", number=number, outcomes=outcomes(result, list(lanes), lever)))
    return made


def standings(promises: Sequence[Promise]) -> list[str]:
    return [promise.standing for promise in promises]


# 1. A/A


def test_an_unbiased_sampler_keeps_promise_1() -> None:
    assert standings(aa.promises(Sessions(sessions=many(200, TWINS)))) == ["kept", "kept"]


def test_a_biased_sampler_breaks_promise_1() -> None:
    biased = many(200, TWINS, times=TRUE_TIMES | {"b": 1.02, "d": 1.02})
    assert standings(aa.promises(Sessions(sessions=biased))) == ["refuted", "refuted"]


def test_sessions_that_fail_or_are_called_invalid_count_as_false() -> None:
    good = many(170, TWINS)
    lost = [Session(pair="ch01:x", number=n, failed="it died") for n in range(40)]
    false, covered = aa.promises(Sessions(sessions=[*good, *lost]))
    assert (false.standing, covered.standing) == ("refuted", "refuted")
    assert "40 failed, such as ch01:x: it died" in (false.note or "")
    bad = [outcome.model_copy(update={"verdict": "invalid"}) for one in good[:60] for outcome in one.outcomes]
    invalid = [one.model_copy(update={"outcomes": bad[2 * i : 2 * i + 2]}) for i, one in enumerate(good[:60])]
    assert aa.promises(Sessions(sessions=[*good, *invalid]))[0].standing == "refuted"


# 2. Known truth


def reading(label: str, off: float) -> Reading:
    return Reading(label=label, known_us=1000.0, read_us=[1000.0 * (1 + off), 1000.0 * (1 + off), 1e6])


def known(*off: float, floor: float = 2.0, empty: float = 2.1, planted: Sequence[Session] = ()) -> Truth:
    readings = [reading(f"{delay} us before the launch", error) for delay, error in zip((0, 20, 200), off)]
    return Truth(readings=readings, floor_us=floor, empty_us=[empty] * 5, planted=list(planted))


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
    assert truth.promises(known(*off))[0].standing == standing


@pytest.mark.parametrize(("empty", "standing"), [(2.3, "kept"), (2.7, "refuted"), (1.3, "refuted")])
def test_an_empty_step_must_read_the_floor(empty: float, standing: str) -> None:
    assert truth.promises(known(empty=empty))[1].standing == standing


def planted(count: int, **how: object) -> list[Promise]:
    found = known(planted=many(count, [*PLANTED, *[PLANTED[-1]] * 2], **({"times": SLOWED, "lever": LEVER} | how)))
    return truth.promises(found)[2:]


def test_planted_slowdowns_are_found_by_a_sharp_clock_with_their_size() -> None:
    assert standings(planted(100, noise=0.002)) == ["kept"] * 5


def test_a_blunt_clock_misses_them() -> None:
    assert standings(planted(100, noise=0.1))[1:4] == ["refuted"] * 3


def test_the_truth_is_what_the_lever_says_a_share_adds() -> None:
    strong = TRUE_TIMES | {lane.below: 1 + 1.5 * lane.planted for lane in (*PLANTED, LEVER)}
    (quiet,) = many(1, PLANTED, strong, 1e-9, lever=LEVER, placed=0.0)
    assert [o.truth for o in quiet.outcomes] == pytest.approx([1 / (1 + 1.5 * lane.planted) for lane in PLANTED])
    assert [o.interval and o.interval.ratio for o in quiet.outcomes] == pytest.approx([o.truth for o in quiet.outcomes])


# 3. Against others


def timings(pair: str, method: str, spread: float, n: int = 20, bias: float = 0.0) -> list[Timing]:
    shape = np.linspace(-1, 1, n)
    ratios = np.exp(bias + spread * (shape / shape.std(ddof=1) if n > 1 else shape))
    return [
        Timing(pair=pair, method=method, repeat=i, a_us=float(r), b_us=1.0, ratio=float(r), seconds=0.3)
        for i, r in enumerate(ratios)
    ]


@pytest.mark.parametrize(
    ("ours", "n", "standing"),
    [(0.001, 20, "kept"), (0.011, 20, "undecided"), (0.03, 20, "refuted"), (0.001, 5, "undecided")],
)
def test_the_smallest_spread(ours: float, n: int, standing: str) -> None:
    found = Others(timings=[*timings("ch01:x", others.OURS, ours, n), *timings("ch01:x", "event loop", 0.01, n)])
    assert others.promises(found)[0].standing == standing


def test_a_harness_with_more_false_differences_than_an_event_loop_breaks_promise_4() -> None:
    ours, other = (timings("ch01:x", name, 0.001, bias=off) for name, off in ((others.OURS, 0.02), ("event loop", 0)))
    assert others.promises(Others(timings=[*ours, *other]))[-1].standing == "refuted"
    ours, other = (timings("ch01:x", name, 0.001, bias=off) for name, off in ((others.OURS, 0), ("event loop", 0.02)))
    assert standings(others.promises(Others(timings=[*ours, *other]))) == ["kept", "kept"]


# 4. Cheats


def caught(honest: bool, refused: bool) -> Caught:
    return Caught(pair="ch01:x", variant="optimized_x", honest=honest, refused=refused, reason="why" * refused)


@pytest.mark.parametrize(
    ("rows", "not_run", "expected"),
    [
        ([caught(False, True), caught(True, False)], [], ["kept", "kept"]),
        ([caught(False, False), caught(True, False)], [], ["refuted", "kept"]),
        ([caught(False, True), caught(True, True)], [], ["kept", "refuted"]),
        ([caught(False, True), caught(True, False)], ["ch01:y"], ["undecided", "undecided"]),
        ([], [], ["not run", "not run"]),
    ],
)
def test_cheats_are_refused_and_nobody_else(rows: list[Caught], not_run: list[str], expected: list[str]) -> None:
    found = Cheats(rows=rows, not_run=not_run, honest_pairs=10)
    assert standings(cheats.promises(found)) == expected


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
