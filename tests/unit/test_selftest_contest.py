"""The turns of the fourth experiment: which method times which pair when, for how long, and how often."""

import math
from collections import Counter
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import pytest

from tools.selftest import rivals
from tools.selftest.models import Timing
from tools.selftest.rivals import OURS

REPEATS = 20


def pair(key: str) -> SimpleNamespace:
    chapter, name = key.split(":")
    variants = [SimpleNamespace(name=f"{role}_{name}", module=f"{key}.{role}") for role in ("baseline", "optimized")]
    return SimpleNamespace(key=key, chapter=chapter, name=name, variants=variants)


def timing(key: str, method: str, repeat: int, seconds: float = 0.3, error: float = 0.0) -> Timing:
    row = {"pair": key, "method": method, "repeat": repeat, "a_us": 1.0, "b_us": 1.0, "ratio": math.exp(error)}
    return Timing.model_validate({**row, "seconds": seconds})


def shape(repeat: int) -> float:
    """Errors of twenty repeats, whose standard deviation is 1.03; later ones have the same again."""
    return 1.0 if repeat % 2 else -1.0


class Played:
    """A contest in which methods err by what `spreads` says, and take the time that they are given."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, root: Path, spreads: dict[str, dict[str, float]], seconds: float = 60.0
    ) -> None:
        from tools.selftest import rival_process  # which imports torch

        self.loaded, self.rows, self.given = list[str](), list[dict[str, Any]](), list[tuple[str, float]]()
        self.spreads = spreads
        pairs = [pair(key) for key in spreads]
        names = dict.fromkeys(name for of in spreads.values() for name in of if name != OURS)
        monkeypatch.setattr(rival_process, "find_pairs", lambda root: pairs)
        monkeypatch.setattr(rival_process, "rivals", lambda: names)
        monkeypatch.setattr(rival_process, "by_harness", self.ours)
        monkeypatch.setattr(rival_process, "by_rival", self.theirs)
        worker: Any = SimpleNamespace(load=lambda baseline, modules, size: self.loaded.append(baseline))
        spec = {"seed": 3, "root": root, "pairs": [*spreads], "uuid": None, "size": "bench", "samples": 100_000}
        rival_process.compare_methods(spec | {"seconds": seconds, "repeats": REPEATS}, worker, self.rows.append)

    def ours(self, spec: Any, bench: Any, of: Any, repeat: int, monitor: Any) -> Timing:
        assert self.loaded[-1] == of.variants[0].module
        self.given.append((of.key, spec["session_s"]))
        error = self.spreads[of.key][OURS] * shape(repeat)
        return timing(of.key, OURS, repeat, 1.0 + repeat if repeat else 9.0, error)

    def theirs(self, bench: Any, of: Any, size: str, rival: Any, repeat: int, seconds: float) -> Timing:
        assert self.loaded[-1] == of.variants[0].module
        return timing(of.key, rival.name, repeat, seconds, self.spreads[of.key][rival.name] * shape(repeat))

    def count(self, key: str) -> dict[str, int]:
        return dict(Counter(row["method"] for row in self.rows if row.get("pair") == key))


CLEAR = {OURS: 0.001, "x": 0.01, "y": 0.01}


def test_any_method_may_be_the_first_on_a_pair_after_another_pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is first finds memory as another pair has left it; and all have as many seconds as this harness has taken."""
    played = Played(monkeypatch, tmp_path, {"ch01:a": CLEAR, "ch01:b": CLEAR})
    given = [seconds for key, seconds in played.given if key == "ch01:a"]
    assert given == [0.12, *[0.2] * REPEATS], "the first does not count"
    rows = [played.rows[3 * turn : 3 * turn + 3] for turn in range(2 * REPEATS)]
    assert len(played.rows) == 3 * len(rows)
    assert all({row["method"] for row in turn} == {OURS, "x", "y"} for turn in rows)
    assert all(len({(row["pair"], row["repeat"]) for row in turn}) == 1 for turn in rows)
    assert [turn[0]["method"] for turn in rows[:2]] == [OURS, OURS], "who says how long it takes"
    first = Counter(turn[0]["method"] for turn in rows[2:])
    assert min(first[method] for method in (OURS, "x", "y")) >= 6, first
    for turn in rows:
        before = [row["method"] for row in turn].index(OURS)
        for place, row in enumerate(turn):
            if row["method"] != OURS:
                known = [9.0, *(1.0 + repeat for repeat in range(1, row["repeat"] + (place > before)))]
                assert row["seconds"] == median(known), "the first is a slow one"


@pytest.mark.parametrize(
    ("ours", "times"),
    [(0.0115, 6), (0.0087, 6), (0.0125, 3), (0.008, 3)],
    ids=["seems behind", "seems ahead", "is behind", "is ahead"],
)
def test_two_that_so_many_repeats_do_not_tell_apart_have_turns_until_it_is_told(
    ours: float, times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    near = {OURS: ours, "x": 0.01, "y": 0.05}
    played = Played(monkeypatch, tmp_path, {"ch01:a": near, "ch01:b": CLEAR})
    assert played.count("ch01:a") == {OURS: times * REPEATS, "x": times * REPEATS, "y": REPEATS}
    assert played.count("ch01:b") == dict.fromkeys(CLEAR, REPEATS)
    more = played.rows[6 * REPEATS :]
    turns = [more[2 * turn : 2 * turn + 2] for turn in range((times - 1) * REPEATS)]
    assert all({row["method"] for row in turn} == {OURS, "x"} for turn in turns)
    assert [turn[0]["repeat"] for turn in turns] == [*range(REPEATS, times * REPEATS)]
    assert min(Counter(turn[0]["method"] for turn in turns).values()) >= 10, "in random order as well"


def test_one_that_clearly_spreads_less_than_this_harness_gets_no_second_chance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = Played(monkeypatch, tmp_path, {"ch01:a": {OURS: 0.02, "x": 0.01}})
    assert played.count("ch01:a") == {OURS: REPEATS, "x": REPEATS}
    told = [Timing.model_validate(row) for row in played.rows]
    assert rivals.promises(rivals.Others(timings=told))[0].standing == "refuted"


def test_no_turn_begins_when_the_time_is_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Played(monkeypatch, tmp_path, {"ch01:a": CLEAR}, seconds=0.0).rows == []


def test_a_pair_that_fails_is_told_once_and_has_no_more_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def theirs(self: Played, bench: Any, of: Any, *_: Any) -> Timing:
        if of.key == "ch01:a":
            raise RuntimeError("no\nmore")
        return timing(of.key, "x", 0, error=0.01)

    monkeypatch.setattr(Played, "theirs", theirs)
    played = Played(monkeypatch, tmp_path, {"ch01:a": {OURS: 0.001, "x": 0.01}, "ch01:b": {OURS: 0.001, "x": 0.01}})
    assert [row for row in played.rows if "failed" in row] == [{"failed": "ch01:a", "reason": "RuntimeError: ['no']"}]
    assert (played.count("ch01:a"), played.count("ch01:b")["x"]) == ({OURS: 1}, REPEATS)


def test_few_comparisons_call_nothing_a_near_tie() -> None:
    def said(n: int, ours: float, other: float = 0.01) -> list[Timing]:
        errors = {OURS: ours, "x": other}
        return [timing("ch01:a", name, i, error=error * shape(i)) for name, error in errors.items() for i in range(n)]

    assert rivals.near_ties(said(10, 0.01)) == {"ch01:a": ["x"]}
    assert rivals.near_ties(said(9, 0.01)) == {}, "the quick form makes no promise by so few"
    assert rivals.near_ties(said(20, 0.0)) == {}
    assert rivals.near_ties(said(20, 0.0, 0.0)) == {"ch01:a": ["x"]}
    assert rivals.near_ties([one for one in said(20, 0.01) if one.method != OURS]) == {}


def test_further_turns_of_two_methods_do_not_count_as_chances_to_be_off() -> None:
    """Else the two would have forty right ratios more than the others, of the one pair on which they are best."""
    off = [timing("ch01:b", name, i, error=0.02) for name in (OURS, "x", "y") for i in range(20)]
    near = [timing("ch01:a", name, i, error=1e-4 * shape(i)) for name in (OURS, "x") for i in range(60)]
    once = [timing("ch01:a", "y", i, error=1e-2 * shape(i)) for i in range(20)]
    *_, last = rivals.promises(rivals.Others(timings=[*off, *near, *once]))
    assert last.measured == f"{OURS} 20 of 40, x 20 of 40, y 30 of 40"


@pytest.mark.parametrize(("us", "seconds"), [(10.0, 0.12), (1500.0, 0.192), (2800.0, 0.25), (50_000.0, 0.25)])
def test_a_long_step_gets_as_many_samples_as_a_shorter_one_within_bounds(us: float, seconds: float) -> None:
    from tools.selftest.rival_process import budget_s

    told = timing("ch01:a", OURS, 0).model_copy(update={"a_us": us, "b_us": us})
    assert budget_s(64, told) == pytest.approx(seconds)
