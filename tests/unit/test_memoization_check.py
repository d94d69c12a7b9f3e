"""The test for remembered answers: what it takes to be tested, what convicts, and what the arms of a trio are."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from small_workload import each_call, preparer, workload
from torch import Tensor

from common.python.base.results import Block, PairResult, Sample, Trio, VariantResult
from common.python.proof.preparation import Preparation
from common.python.proof.ranks import Ranks
from common.python.stats.timing_sanity import accusation, is_suspect, remembers, undecided
from common.python.timing import memoization_trials as memoization_check
from common.python.timing.memoization_trials import run_trios
from common.python.workload import Step

AGAINST, FOR = Trio(untouched_us=1.0, same_us=1.0, new_us=1.2), Trio(untouched_us=1.0, same_us=1.0, new_us=1.19)


def result(*samples: tuple[float, bool], steps: int = 1, trios: list[Trio] | None = None, **block: Any) -> PairResult:
    taken = [Sample(variant="a", device_us=us, wall_us=None, host_us=1.0, fresh=fresh) for us, fresh in samples]
    other = Sample(variant="b", device_us=9.0, wall_us=None, host_us=1.0, fresh=True)
    blocks = [Block(round=0, steps=steps, samples=[*taken, other], **block)]
    told = {"label": "a", "file": "a.py", "sentence": "It works.", "kinds": []}
    row = VariantResult(name="a", role="baseline", status="measured", trios=trios or [], **told)
    return PairResult(chapter="ch01", name="x", status="measured", clock="device", variants=[row], blocks=blocks)


@pytest.mark.parametrize(
    ("samples", "steps", "tested"),
    [
        ([(1.2, True), (1.0, False)], 1, True),
        ([(1.05, True), (1.0, False)], 1, False),
        ([(1.05, True), (1.0, False)], 10, True),  # of ten steps the first took 1.5 times as long
        ([(1.2, True)], 1, False),
        ([(1.0, False), (1.2, False)], 1, False),
        ([(1.2, True), (1.0, True), (1.0, True), (1.0, False)], 1, False),
    ],
)
def test_a_variant_is_tested_where_its_samples_on_new_inputs_took_a_tenth_longer(
    samples: list[tuple[float, bool]], steps: int, tested: bool
) -> None:
    found = result(*samples, steps=steps)
    assert (is_suspect(found, "a"), is_suspect(found, "b")) == (tested, False)


def test_a_discarded_block_makes_nobody_a_suspect() -> None:
    assert not is_suspect(result((9.0, True), (1.0, False), discarded="the host was slow"), "a")


@pytest.mark.parametrize(
    ("trios", "remembered"),
    [
        ([FOR] * 4, False),
        ([FOR] * 3, None),
        ([AGAINST] * 15, None),
        ([AGAINST] * 16, True),
        ([AGAINST] * 8 + [FOR] + [AGAINST] * 11, True),
        ([AGAINST, FOR] * 7, False),
        ([FOR] * 4 + [AGAINST] * 99, False),  # what comes after the decision is not heard
        ([], None),
    ],
)
def test_the_sequential_test_convicts_acquits_or_leaves_it_open(trios: list[Trio], remembered: bool | None) -> None:
    assert remembers(trios) is remembered


@pytest.mark.parametrize(("odds", "runs", "least", "most"), [((1, 1), 4000, 0, 2), ((9, 1), 1000, 991, 1000)])
def test_a_fair_coin_is_hardly_ever_convicted_and_nine_votes_in_ten_nearly_always(
    odds: tuple[int, int], runs: int, least: int, most: int
) -> None:
    rng = random.Random(1)
    verdicts = [remembers(rng.choices([AGAINST, FOR], odds, k=300)) for _ in range(runs)]
    assert least <= verdicts.count(True) <= most
    assert verdicts.count(None) == 0


def test_the_reason_says_by_what_answers_are_found_again() -> None:
    by_value, by_version = Trio(untouched_us=1.0, same_us=3.1, new_us=9.0), Trio(untouched_us=1, same_us=9, new_us=9)
    assert accusation([by_value] * 16) == (
        "it takes 9.0 times as long on inputs that it has not seen, in 16 of 16 trials: "
        "it remembers answers by the values of its inputs"
    )
    assert "by where inputs lie or how often they were written" in (accusation([by_version] * 16) or "")
    assert accusation([FOR] * 3) is None
    assert accusation([AGAINST] * 15) is None


def test_what_was_left_open_is_a_note() -> None:
    samples = [(2.0, True), (1.0, False)]
    assert undecided(result(*samples, trios=[AGAINST] * 4)) == [
        "a took longer on new inputs; whether it remembers answers: 4 trials could not tell"
    ]
    assert "could not be tested here" in undecided(result(*samples))[0]
    assert undecided(result(*samples, trios=[FOR] * 4)) == undecided(result(*samples, trios=[AGAINST] * 16)) == []
    assert undecided(result((1.0, True), (1.0, False))) == []


def prepared(prepare: Callable[..., Step], folder: Path, **fields: Any) -> Preparation:
    """One variant, on two small inputs."""
    return preparer(folder)(workload(**{"frozen": [], **fields}), x=prepare)


def plain(calls: list[tuple[Any, ...]]) -> Callable[..., Step]:
    """A step that notes what it was called on: versions and values."""

    def step(call: int, x: Tensor, w: Tensor) -> Tensor:
        calls.append((x._version, x.tolist(), w._version, w.tolist()))
        return x + w

    return each_call(step)


@pytest.fixture(autouse=True)
def small_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memoization_check, "CACHES", tmp_path)
    monkeypatch.setattr(memoization_check, "FLUSH_BYTES", 4)


def test_the_large_flush_is_twice_the_largest_cache(tmp_path: Path) -> None:
    assert memoization_check._large_flush() == 8
    for index, size in enumerate(["48K", "307200K"]):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}/size").write_text(f"{size}\n")
    assert memoization_check._large_flush() == 600 << 20


@pytest.mark.parametrize(("behind_large", "convicted"), [(FOR, False), (AGAINST, True)])
def test_whom_a_small_flush_convicts_is_tried_anew_behind_a_large_one(
    behind_large: Trio, convicted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trio = lambda arms, name, timed_us, flush: AGAINST if len(flush) == 1 else behind_large  # noqa: E731
    monkeypatch.setattr(memoization_check.Arms, "trio", trio)
    trios = run_trios(prepared(plain([]), tmp_path), ["x"], lambda name: 1.0, limit_s=60.0)["x"]
    assert (remembers(trios), trios[0]) == (convicted, behind_large)


def timed(prep: Preparation, times: Callable[[], float]) -> Callable[[str], float]:
    """A clock that calls the step, and reads what `times` says."""

    def timed_us(name: str) -> float:
        prep.variants[name].step()
        return times()

    return timed_us


def test_each_arm_calls_the_step_on_what_its_name_says(tmp_path: Path) -> None:
    calls: list[tuple[Any, ...]] = []
    prep = prepared(plain(calls), tmp_path)
    calls.clear()
    arms = memoization_check.Arms(prep)
    for _ in range(8):
        calls.clear()
        trio = arms.trio("x", timed(prep, lambda: float(len(calls))), torch.ones(1))
        for us in (trio.untouched_us, trio.same_us, trio.new_us):
            (version, *before), (counted, *after) = calls[int(us) - 2 : int(us)]
            assert (version == counted) == (us == trio.untouched_us)
            assert (before[0] != after[0] and before[-1] != after[-1]) == (us == trio.new_us)


def test_frozen_inputs_are_not_touched_and_what_a_step_writes_is_restored(tmp_path: Path) -> None:
    seen: list[tuple[list[float], int]] = []

    def step(call: int, x: Tensor, w: Tensor) -> Tensor:
        seen.append((x.tolist(), w._version))
        return x.add_(w)

    prep = prepared(each_call(step), tmp_path, mutates=["x"], frozen=["w"])
    arms = memoization_check.Arms(prep)
    version = seen[0][1]
    for _ in range(4):
        seen.clear()
        trio = arms.trio("x", timed(prep, lambda: float(len(seen))), torch.ones(1))
        for us in (trio.untouched_us, trio.same_us, trio.new_us):
            before, after = seen[int(us) - 2 : int(us)]
            assert (before[0] == after[0]) == (us != trio.new_us), "the same work, but on new values"
    assert seen[-1][1] == version


def test_a_step_that_is_slow_on_new_integers_alone_is_acquitted(tmp_path: Path) -> None:
    took = dict[str, float]()

    def remembering(key: Callable[[Tensor, Tensor], object]) -> Callable[..., Step]:
        def prepare(x: Tensor, w: Tensor) -> Step:
            known = set[object]()

            def step() -> Tensor:
                took["us"] = 1.0 if key(x, w) in known else 2.0
                known.add(key(x, w))
                return x @ w.double().float()

            return step

        return prepare

    drawn = {"inputs": lambda draw, n: {"x": draw.normal(n, n), "w": draw.integers(n, n, high=9)}, "frozen": []}
    answers = {"plan": lambda x, w: str(w.tolist()), "memory": lambda x, w: str([x.tolist(), w.tolist()])}
    prep = preparer(tmp_path)(
        workload(**drawn, reference=lambda x, w: x @ w.double()),
        **{name: remembering(key) for name, key in answers.items()},
    )
    found = {name: run_trios(prep, [name], timed(prep, lambda: took["us"]), limit_s=60.0)[name] for name in answers}
    assert {name: remembers(trios) for name, trios in found.items()} == {"plan": False, "memory": True}


def test_what_has_no_time_no_memory_files_or_ranks_is_left_open(tmp_path: Path) -> None:
    prep = prepared(plain([]), tmp_path)
    full, never = Mock(side_effect=torch.OutOfMemoryError("no room")), Mock(side_effect=AssertionError("it was called"))
    assert run_trios(prep, ["x"], full, limit_s=60.0) == {"x": []}
    assert run_trios(prep, ["x"], lambda name: 1.0, limit_s=0.0) == {"x": []}
    prep.files = [tmp_path]
    assert run_trios(prep, ["x"], never, limit_s=60.0) == {"x": []}
    prep.files, prep.ranks = [], Ranks(0, 2)
    assert run_trios(prep, ["x"], never, limit_s=60.0) == {"x": []}
