"""Warm-up ends when the times have settled, blocks keep their order, and probed samples are proven while they count."""

import math
import random
import subprocess
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from common.python.base.results import CONTROL
from common.python.proof.preparation import Preparation, VariantError
from common.python.proof.ranks import ALONE, Ranks
from common.python.proof.trials import prove
from common.python.stats.intervals import settled
from common.python.timing import sampler as sampling
from common.python.timing.clock import CpuClock, GpuClock, Pending, Reading
from common.python.timing.sampler import LEAD_US, MOST_STEPS, RESTED_US, SLACK_US, WALLED, WINDOW, Sampler
from common.python.workload import Cost, Output, Prepare, Step, Workload

Times = Callable[[str, int], float]  # of a variant and how many of its samples came before, to microseconds


@dataclass
class Script:
    """Time that passes as it is told to. Steps say who they are by appending their name to `called`."""

    times: Times
    called: list[str] = field(default_factory=list)
    seen: list[tuple[str, int]] = field(default_factory=list)  # name and count of every sample
    now_us: float = 0.0

    def run(self, step: Step, count: int) -> float:
        """Microseconds that `count` calls take; an empty step, which leaves no name, takes 1."""
        before = len(self.called)
        for _ in range(count):
            step()
        name = self.called[-1] if len(self.called) > before else "empty"
        took = count * self.times(name, sum(other == name for other, _ in self.seen))
        self.seen.append((name, count))
        self.now_us += took
        return took


class ScriptedCpu(CpuClock):
    def __init__(self, times: Times) -> None:
        self.script = Script(times)

    def wall(self, step: Step, count: int, before: Callable[[], None]) -> Reading:
        before()
        took = self.script.run(step, count)
        return Reading(None, took, took)


@dataclass
class ScriptedPending(Pending):
    reading: Reading

    def read(self) -> Reading:
        return self.reading


class ScriptedGpu(GpuClock):
    """Device time by the script; the host takes 4 us a step, and the wall adds 30 us. `late` samples are late."""

    def __init__(self, times: Times, late: Callable[[int], bool] = lambda index: False) -> None:
        self.script, self.late = Script(times), late
        self.delays: list[float] = []
        self.settled = 0
        self.held: list[tuple[float, int]] = []  # for how long, before which sample

    def hold(self, us: float) -> None:
        self.held.append((us, len(self.delays)))

    def device(self, step: Step, count: int, delay_us: float) -> Pending:
        self.delays.append(delay_us)
        took = self.script.run(step, count)
        late = self.late(len(self.delays) - 1)
        none: Any = None
        return ScriptedPending(none, none, 4.0 * count, late, Reading(took, None, 4.0 * count, late))

    def wall(self, step: Step, count: int, before: Callable[[], None]) -> Reading:
        before()
        took = self.script.run(step, count)
        return Reading(took, took + 30.0, 4.0 * count)

    def settle(self) -> None:
        self.settled += 1


def workload(**changes: Any) -> Workload:
    stated: dict[str, Any] = {
        "inputs": lambda draw: {"x": draw.normal(64)},
        "reference": lambda x: x + 1,
        "cost": Cost,
        "sizes": {"bench": {}, "test": {}},
        "tolerance": 1e-5,
    }
    return Workload(**{**stated, **changes})


def prepare(folder: Path, problem: Workload | None = None, **prepares: Prepare) -> Preparation:
    prep = Preparation(problem or workload(), {}, "bench", torch.device("cpu"), folder, random.Random(5))
    assert prep.prepare_all(prepares, lambda who, what: None) == {}
    return prep


def named(script: Script, *names: str) -> dict[str, Prepare]:
    """Variants that give the right answer and leave their name with the script."""

    def of(name: str) -> Prepare:
        def prepare(x: Tensor) -> Step:
            def step() -> Tensor:
                script.called.append(name)
                return x + 1

            return step

        return prepare

    return {name: of(name) for name in names}


@pytest.fixture
def warm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, int]]:
    """Warm up variants a and b by a script; the steps per sample and the samples that each variant took."""

    def run(
        times: Times, limit_s: float = 3.0, problem: Workload | None = None, ranks: Ranks = ALONE
    ) -> tuple[int, int]:
        clock = ScriptedCpu(times)
        monkeypatch.setattr(sampling, "time", SimpleNamespace(perf_counter=lambda: clock.script.now_us / 1e6))
        prep = prepare(tmp_path, problem, **named(clock.script, "a", "b"))
        prep.ranks = ranks
        clock.script.called.clear()
        steps = Sampler(clock, "end_to_end").warm(prep, ["a", "b"], limit_s, lambda who, what: None)
        seen = [name for name, _ in clock.script.seen]
        assert seen == ["a", "b"] * (len(seen) // 2), "the variants come in turn"
        return steps, len(seen) // 2

    return run


Warm = Callable[..., tuple[int, int]]


def test_warm_up_ends_when_two_windows_agree(warm: Warm) -> None:
    assert warm(lambda name, nth: 200.0) == (1, 1 + 2 * WINDOW)


@pytest.mark.parametrize("times", [lambda name, nth: 200.0, lambda name, nth: 900.0 - 10 * nth])
def test_without_time_to_warm_up_each_variant_runs_once(warm: Warm, times: Times) -> None:
    assert warm(times, limit_s=0.0) == (1, 1)


def test_warm_up_goes_on_while_the_times_still_fall(warm: Warm) -> None:
    assert warm(lambda name, nth: 200.0 if nth > 3 * WINDOW else 900.0 - 10 * nth) == (1, 1 + 5 * WINDOW)


def test_warm_up_goes_on_while_one_variant_still_falls(warm: Warm) -> None:
    falling = {"a": lambda nth: 200.0, "b": lambda nth: 200.0 if nth > 2 * WINDOW else 400.0 - 10 * nth}
    assert warm(lambda name, nth: falling[name](nth)) == (1, 1 + 4 * WINDOW)


@pytest.mark.parametrize(("change", "windows"), [(1.009, 2), (0.991, 2), (1.011, 3), (0.989, 3)])
def test_windows_agree_within_one_percent(change: float, windows: int, warm: Warm) -> None:
    assert warm(lambda name, nth: 200.0 * (change if nth > WINDOW else 1.0)) == (1, 1 + windows * WINDOW)


def test_a_spike_in_a_window_does_not_prolong_the_warm_up(warm: Warm) -> None:
    assert warm(lambda name, nth: 9000.0 if nth in (2, 7, 8) else 200.0) == (1, 1 + 2 * WINDOW)


def test_warm_up_ends_at_the_limit_within_a_window(warm: Warm) -> None:
    steps, samples = warm(lambda name, nth: 50_000.0 + 5_000 * nth, limit_s=0.74)
    assert steps == 1
    assert samples == 6  # 2 x (50 + 55 + 60 + 65 + 70 + 75) = 750 ms


@dataclass(eq=False)
class OtherRanks(Ranks):
    """Ranks that say, whenever they are asked, what stands next in `said`, and then agree with this one."""

    said: list[bool] = field(default_factory=list)

    def either(self, flag: bool) -> bool:
        return (self.said.pop(0) if self.said else False) or flag


def test_warm_up_goes_on_while_another_rank_is_not_steady(warm: Warm) -> None:
    in_window = [False] * WINDOW  # whether the time is up
    others = OtherRanks(said=[False, *in_window, False, *in_window, True, *in_window, False])
    assert warm(lambda name, nth: 200.0, ranks=others) == (1, 1 + 3 * WINDOW)


def test_warm_up_ends_when_the_time_of_another_rank_is_up(warm: Warm) -> None:
    assert warm(lambda name, nth: 200.0, ranks=OtherRanks(said=[False] * 4 + [True])) == (1, 1 + 4)
    assert warm(lambda name, nth: 200.0, ranks=OtherRanks(said=[True])) == (1, 1)


def test_without_time_to_warm_up_every_variant_runs_all_the_same(warm: Warm) -> None:
    assert warm(lambda name, nth: 12.0, limit_s=0.0) == (5, 1)


@pytest.mark.parametrize(
    ("us", "passes", "ranks", "again"),
    [
        (9_999.0, None, ALONE, 1),
        (10_000.0, None, ALONE, 0),
        (10_000.0, 0, ALONE, 1),  # a fixed number was asked for
        (10_000.0, None, OtherRanks(size=2), 1),  # which would each have to know how long another's took
    ],
)
def test_a_long_step_is_not_warmed_up_in_later_rounds(
    us: float, passes: int | None, ranks: Ranks, again: int, tmp_path: Path
) -> None:
    clock = ScriptedCpu(lambda name, nth: {"a": us, "b": 20.0}[name])
    prep, sampler = prepare(tmp_path, **named(clock.script, "a", "b")), Sampler(clock, "end_to_end")
    prep.ranks = ranks
    for seen in (["a", "b"], ["a"] * again + ["b"]):
        clock.script.seen.clear()
        sampler.warm(prep, ["a", "b"], 0.0, lambda who, what: None, passes)
        assert [name for name, _ in clock.script.seen] == seen


@pytest.mark.parametrize(
    ("us", "control_us", "seen"),
    [
        (10_000.0, 12_000.0, ["control"]),  # which nobody has proven, and which is long as well
        (9_999.0, 12_000.0, ["a", "control"] * 10),  # 22 ms a pass, for 200 ms
        (10_000.0, 9_000.0, ["control"] * (1 + 2 * WINDOW)),
    ],
)
def test_a_long_step_that_was_proven_is_not_warmed_up_at_all(
    us: float, control_us: float, seen: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ScriptedCpu(lambda name, nth: {"a": us, "control": control_us}[name])
    monkeypatch.setattr(sampling, "time", SimpleNamespace(perf_counter=lambda: clock.script.now_us / 1e6))
    prep, sampler = prepare(tmp_path, **named(clock.script, "a", "control")), Sampler(clock, "end_to_end")
    prep.variants["a"].called_s = us / 1e6
    assert sampler.warm(prep, ["a", "control"], 0.2, lambda who, what: None) == 1
    assert [name for name, _ in clock.script.seen] == seen


@pytest.mark.parametrize(("ranks", "long"), [(ALONE, 1), (OtherRanks(size=2), 1 + 2 * WINDOW)])
def test_on_the_devices_clock_a_long_step_runs_once_before_the_first_round_and_others_until_they_have_settled(
    ranks: Ranks, long: int, tmp_path: Path
) -> None:
    """But with ranks, for one of which it might not be as long."""
    clock = ScriptedGpu(lambda name, nth: {"a": 1_000.0, "b": 200.0}[name])
    prep, sampler = prepare(tmp_path, **named(clock.script, "a", "b")), Sampler(clock, "device")
    prep.ranks = ranks
    sampler.warm(prep, ["a", "b"], 9.0, lambda who, what: None)
    assert Counter(name for name, _ in clock.script.seen) == {"a": long, "b": 1 + 2 * WINDOW}


def test_the_control_has_no_walls_which_nothing_is_made_of(tmp_path: Path) -> None:
    clock = ScriptedGpu(lambda name, nth: 100.0)
    prep, sampler = prepare(tmp_path, **named(clock.script, "a", CONTROL)), Sampler(clock, "device")
    sampler.warm(prep, ["a", CONTROL], 0.0, lambda who, what: None)
    taken = sampler.block(prep, ["a", CONTROL, CONTROL, "a"], 1, [], lambda who, what: None)
    assert [wall.variant for wall in taken.walls] == ["a"]


@pytest.mark.parametrize(("us", "again"), [(999.0, 1), (1_000.0, 0)])
def test_on_the_devices_clock_a_step_is_long_sooner(us: float, again: int, tmp_path: Path) -> None:
    clock = ScriptedGpu(lambda name, nth: {"a": us, "b": 20.0}[name])
    prep, sampler = prepare(tmp_path, **named(clock.script, "a", "b")), Sampler(clock, "device")
    for seen in (["a", "b"], ["a"] * again + ["b"]):
        clock.script.seen.clear()
        sampler.warm(prep, ["a", "b"], 0.0, lambda who, what: None)
        assert [name for name, _ in clock.script.seen] == seen
    sampler.block(prep, ["a", "b"], 1, [], lambda who, what: None)  # whose delays are those of the first round


def test_on_the_devices_clock_it_is_once_for_whose_delay_would_not_be_known(tmp_path: Path) -> None:
    clock = ScriptedGpu(lambda name, nth: 12_000.0)
    prep, sampler = prepare(tmp_path, **named(clock.script, "a")), Sampler(clock, "device")
    prep.variants["a"].called_s = 0.012
    sampler.warm(prep, ["a"], 0.0, lambda who, what: None)
    assert len(clock.script.seen) == 1
    sampler.block(prep, ["a"], 1, [], lambda who, what: None)


def test_steps_that_outlast_the_limit_run_once(warm: Warm) -> None:
    assert warm(lambda name, nth: 130_000.0, limit_s=0.25) == (1, 1)
    assert warm(lambda name, nth: 120_000.0, limit_s=0.25) == (1, 2)


def windows_and_excess(seed: int, noise: float, decay: float | None, variants: int = 1) -> tuple[int, float]:
    """Windows until times settle that wander by `noise`, and the cold start that is left in the middle of the last.

    The first step takes twice the time, and the excess falls to 1/e of it over `decay` steps of each variant.
    """
    rng = random.Random(seed)

    def excess(nth: float) -> float:
        return math.exp(-nth / decay) if decay else 0.0

    earlier: list[list[float]] = []
    for window in range(1, 100):
        nths = range((window - 1) * WINDOW, window * WINDOW)
        later = [[200.0 * (1 + excess(n)) * math.exp(rng.gauss(0, noise)) for n in nths] for _ in range(variants)]
        if earlier and all(map(settled, earlier, later)):
            break
        earlier = later
    return window, excess(nths[WINDOW // 2])


@pytest.mark.parametrize(("variants", "mean", "most"), [(1, 2.5, 4), (3, 3.2, 6), (5, 4.5, 9)])
@pytest.mark.parametrize("noise", [0.0, 0.005, 0.02, 0.05, 0.2])
def test_noise_is_seen_to_be_noise_after_a_few_windows(variants: int, mean: float, most: int, noise: float) -> None:
    windows = sorted(windows_and_excess(seed, noise, None, variants)[0] for seed in range(300))
    assert sum(windows) / 300 < mean  # agreement within 1% alone took 6 windows of one variant at 5%
    assert windows[int(0.97 * 300)] <= most


@pytest.mark.parametrize("decay", [2, 3, 5, 8, 10])
@pytest.mark.parametrize("noise", [0.0, 0.01, 0.02, 0.05])
def test_a_cold_start_is_waited_for_until_what_is_left_is_within_the_noise(decay: float, noise: float) -> None:
    left = sorted(windows_and_excess(seed, noise, decay)[1] for seed in range(300))
    assert sum(left) / 300 < 0.016 + 1.2 * noise
    assert left[int(0.95 * 300)] < 0.025 + 2.5 * noise


def test_times_that_rise_clearly_have_not_settled() -> None:
    assert not settled([200.0 + 3 * n for n in range(WINDOW)], [220.0 + 3 * n for n in range(WINDOW)])
    assert settled([0.0] * WINDOW, [0.0] * WINDOW)


@pytest.mark.parametrize(
    ("us", "steps"), [(1e6, 1), (50.0, 1), (49.0, 2), (25.5, 2), (24.5, 3), (10.0, 6), (0.7, MOST_STEPS), (0.0, 64)]
)
def test_short_steps_are_timed_several_at_a_time(us: float, steps: int, warm: Warm) -> None:
    assert warm(lambda name, nth: us, limit_s=0.0 if us == 1e6 else 3.0)[0] == steps


def test_the_shortest_variant_decides_how_many_steps_a_sample_holds(warm: Warm) -> None:
    assert warm(lambda name, nth: {"a": 500.0, "b": 12.0}[name])[0] == 5


def test_steps_that_write_their_inputs_are_timed_one_by_one(warm: Warm) -> None:
    assert warm(lambda name, nth: 12.0, problem=workload(mutates=["x"]))[0] == 1


def test_on_the_device_clock_the_device_decides(tmp_path: Path) -> None:
    clock = ScriptedGpu(lambda name, nth: 12.0)
    prep = prepare(tmp_path, **named(clock.script, "a"))
    for headline, steps in (("device", 5), ("end_to_end", 2)):  # on the wall 42 us
        assert Sampler(clock, headline).warm(prep, ["a"], 3.0, lambda who, what: None) == steps  # type: ignore[arg-type]
    assert len(clock.delays) == 2 * WINDOW


def block(
    clock: CpuClock | GpuClock,
    prep: Preparation,
    order: str,
    count: int = 1,
    probes: tuple[int, ...] = (),
    headline: Any = "device",
) -> tuple[list[Any], list[Any], int, dict[str, Any]]:
    sampler = Sampler(clock, headline, delays=dict.fromkeys(order, 100.0))
    sampler.to_wall = order if sampler.on_device() else ""
    taken = sampler.block(prep, list(order), count, list(probes), lambda who, what: None)
    assert (taken.proof_s > 0) == bool(probes)
    return taken.samples, taken.walls, taken.late, taken.proofs


@pytest.mark.parametrize(
    ("count", "enough_s", "order"),
    [(1, None, "abccba"), (1, 0.0601, "abccba"), (1, 0.0599, "abc"), (2, 0.1199, "abc")],
)
@pytest.mark.parametrize("probes", [[], [0, 2]], ids=["", "proven"])
def test_on_the_hosts_clock_a_block_ends_at_its_middle_where_that_took_long(
    count: int, enough_s: float | None, order: str, probes: list[int], tmp_path: Path
) -> None:
    clock = ScriptedCpu(lambda name, nth: {"a": 10e3, "b": 20e3, "c": 30e3}[name])
    prep = prepare(tmp_path, **named(clock.script, *"abc"))
    taken = Sampler(clock, "end_to_end").block(prep, [*"abccba"], count, probes, lambda who, what: None, enough_s)
    assert "".join(sample.variant for sample in taken.samples) == order
    assert sorted(taken.proofs) == [*"ac"] * bool(probes)


@pytest.mark.parametrize("order", ["abba", "baab", "abccba"])
def test_the_samples_of_a_block_come_in_its_order_divided_by_their_steps(order: str, tmp_path: Path) -> None:
    clock = ScriptedCpu(lambda name, nth: {"a": 10.0, "b": 20.0, "c": 30.0}[name] + nth)
    samples, walls, late, proofs = block(clock, prepare(tmp_path, **named(clock.script, *"abc")), order, count=3)
    assert clock.script.seen == [(name, 3) for name in order]
    assert "".join(sample.variant for sample in samples) == order
    first = {name: order.index(name) for name in order}
    expected = [{"a": 10, "b": 20, "c": 30}[name] + (index > first[name]) for index, name in enumerate(order)]
    assert [sample.wall_us for sample in samples] == pytest.approx(expected)
    assert [sample.host_us for sample in samples] == pytest.approx(expected)
    assert [sample.device_us for sample in samples] == [None] * len(order)
    assert (walls, late, proofs) == ([], 0, {})


def test_device_samples_have_a_wall_companion_for_every_variant(tmp_path: Path) -> None:
    clock = ScriptedGpu(lambda name, nth: {"a": 10.0, "b": 20.0}[name])
    samples, walls, _, _ = block(clock, prepare(tmp_path, **named(clock.script, "a", "b")), "abba", count=2)
    assert [(s.variant, s.device_us, s.wall_us, s.host_us) for s in samples] == [
        (name, us, None, 4.0) for name, us in zip("abba", (10.0, 20.0, 20.0, 10.0))
    ]
    assert [(s.variant, s.device_us, s.wall_us, s.host_us) for s in walls] == [
        ("a", 10.0, 25.0, 4.0),
        ("b", 20.0, 35.0, 4.0),
    ]
    assert clock.script.seen == [(name, 2) for name in "abba" + "ab"]


def test_the_host_gets_ahead_before_a_blocks_first_sample_and_never_within_it(tmp_path: Path) -> None:
    clock = ScriptedGpu(lambda name, nth: 100.0)
    sampler = Sampler(clock, "device", delays={"a": 100.0})  # type: ignore[arg-type]
    prep = prepare(tmp_path, **named(clock.script, "a"))
    for _ in range(2):
        sampler.block(prep, ["a"] * 4, 1, [], lambda who, what: None)
    assert clock.held == [(LEAD_US, 0), (LEAD_US, 4)]


def test_a_rounds_first_block_alone_has_walls_beside_its_device_samples(tmp_path: Path) -> None:
    clock = ScriptedGpu(lambda name, nth: {"a": 100.0, "b": 200.0}[name])
    prep = prepare(tmp_path, **named(clock.script, "a", "b"))
    sampler, walls = Sampler(clock, "device"), []  # type: ignore[arg-type]
    for _ in range(2):
        sampler.warm(prep, ["a", "b"], 3.0, lambda who, what: None)
        blocks = [sampler.block(prep, list("abba"), 1, [], lambda who, what: None) for _ in range(3)]
        assert all(len(taken.samples) == 4 for taken in blocks)
        walls.append(["".join(wall.variant for wall in taken.walls) for taken in blocks])
    assert walls == [["ab", "", ""]] * 2


@pytest.mark.parametrize(
    ("us", "passes", "ranks", "rounds"),
    [
        (1_000.0, None, ALONE, WALLED),
        (999.0, None, ALONE, WALLED + 2),
        (1_000.0, 0, ALONE, WALLED + 2),  # a fixed number of samples was asked for, and so of walls
        (1_000.0, None, OtherRanks(size=2), WALLED + 2),  # one of which might find a step long that is not for another
    ],
)
def test_a_step_that_is_long_on_the_devices_clock_has_walls_in_as_many_rounds_as_a_median_needs(
    us: float, passes: int | None, ranks: Ranks, rounds: int, tmp_path: Path
) -> None:
    clock = ScriptedGpu(lambda name, nth: {"a": us, "b": 200.0}[name])
    prep, sampler = prepare(tmp_path, **named(clock.script, "a", "b")), Sampler(clock, "device")
    prep.ranks, walls = ranks, []
    for _ in range(WALLED + 2):
        sampler.warm(prep, ["a", "b"], 0.0, lambda who, what: None, passes)
        taken = sampler.block(prep, list("abba"), 1, [], lambda who, what: None)
        walls.append("".join(wall.variant for wall in taken.walls))
    assert walls == ["ab"] * rounds + ["b"] * (WALLED + 2 - rounds)


def test_end_to_end_samples_carry_both_clocks_and_need_no_companions(tmp_path: Path) -> None:
    clock = ScriptedGpu(lambda name, nth: 10.0)
    prep = prepare(tmp_path, **named(clock.script, "a"))
    samples, walls, _, _ = block(clock, prep, "aa", headline="end_to_end")
    assert [(sample.device_us, sample.wall_us) for sample in samples] == [(10.0, 40.0)] * 2
    assert (walls, clock.delays) == ([], [])


def test_late_samples_are_counted_and_raise_their_variants_delay_to_a_bound(tmp_path: Path) -> None:
    clock = ScriptedGpu(lambda name, nth: 10.0, late=lambda index: index not in (1, 2))
    sampler = Sampler(clock, "device", delays={"a": 10.0, "b": 10.0}, in_time={("a", 1): False, ("b", 1): False})
    prep = prepare(tmp_path, **named(clock.script, "a", "b"))
    taken = sampler.block(prep, list("abbaa"), 1, [], lambda who, what: None)
    assert (taken.late, [sample.late for sample in taken.samples]) == (3, [True, False, False, True, True])
    assert clock.delays == [10.0, 15.0, 15.0, 15.0, 15.0]  # 15 us is beyond 3 x the 4 us of the host


@pytest.mark.parametrize(
    ("own", "waited"),
    [
        ({"a": 40.0, "b": 90.0}, [90.0, 90.0]),  # by chance: the host hiccuped once during b
        ({"a": 40.0, "b": 500.0}, [RESTED_US, 500.0]),  # b launches more
        ({"a": 300.0, "b": 500.0}, [300.0, 500.0]),
    ],
)
def test_no_variant_is_timed_after_less_rest_than_another(
    own: dict[str, float], waited: list[float], tmp_path: Path
) -> None:
    clock = ScriptedGpu(lambda name, nth: 10.0)
    prep = prepare(tmp_path, **named(clock.script, "a", "b"))
    Sampler(clock, "device", delays=dict(own)).block(prep, list("ab"), 1, [], lambda who, what: None)
    assert clock.delays == waited


def test_the_first_sample_of_many_steps_has_a_delay_for_as_many(tmp_path: Path) -> None:
    clock = ScriptedGpu(lambda name, nth: 2.0)
    prep, sampler = prepare(tmp_path, **named(clock.script, "a")), Sampler(clock, "device")
    count = sampler.warm(prep, ["a"], 0.0, lambda who, what: None)
    assert count == 26
    sampler.block(prep, ["a"] * 2, count, [], lambda who, what: None)
    assert clock.delays == [1.5 * 26 * 4.0 + SLACK_US] * 2  # each step takes the host 4 us


def test_the_delay_of_a_step_that_waits_for_the_device_does_not_grow_with_itself(tmp_path: Path) -> None:
    class Waiting(ScriptedGpu):
        def device(self, step: Step, count: int, delay_us: float) -> Pending:
            return replace(super().device(step, count, delay_us), host_us=4.0 * count + delay_us)  # type: ignore[type-var]

    clock = Waiting(lambda name, nth: 10.0, late=lambda index: True)
    prep, sampler = prepare(tmp_path, **named(clock.script, "a")), Sampler(clock, "device")
    sampler.warm(prep, ["a"], 0.0, lambda who, what: None)
    for count in (1, 1, 8):
        sampler.block(prep, ["a"] * 20, count, [], lambda who, what: None)
        assert sampler.delays["a"] <= max(1.5 * 4.0 * count + SLACK_US, 1.5 * 3 * 4.0 * count)
    sampler = Sampler(clock, "device")
    sampler._wall(prep, "a", 8)
    sampler.block(prep, ["a"] * 20, 8, [], lambda who, what: None)
    assert sampler.delays["a"] == 102.0  # 1.5 x 68 us, which is beyond 3 x the 32 us of the host for 8 steps


@pytest.mark.parametrize(
    ("late", "seen", "kept", "b_us"),
    [
        ((), "abba", 0, [10.0, 11.0]),
        ((2,), "abbba", 0, [10.0, 12.0]),  # the host was in time for b before
        ((2, 3, 4), "abbbba", 0, [10.0]),  # and is given two more chances
        ((0,), "aabba", 0, [10.0, 11.0]),  # nothing was known of a, and once more tells that it can be
        ((0, 1, 4), "aabba", 2, [10.0, 11.0]),  # or that it was not for a: its launches may overfill the queue
    ],
)
def test_a_late_sample_is_taken_again_where_the_host_has_been_in_time_or_never_was_asked_to_be(
    late: tuple[int, ...], seen: str, kept: int, b_us: list[float], tmp_path: Path
) -> None:
    clock = ScriptedGpu(lambda name, nth: 10.0 + nth, late=late.__contains__)
    sampler = Sampler(clock, "device", delays={"a": 100.0, "b": 100.0})
    prep = prepare(tmp_path, **named(clock.script, "a", "b"))
    taken = sampler.block(prep, list("abba"), 1, [], lambda who, what: None)
    assert "".join(name for name, _ in clock.script.seen) == seen
    assert ("".join(sample.variant for sample in taken.samples), taken.late) == ("abba" if b_us[1:] else "aba", kept)
    assert taken.retaken == len(seen) - len(taken.samples)
    assert [s.device_us for s in taken.samples if s.variant == "b"] == b_us
    clock.late = lambda index: False
    again = sampler.block(prep, list("abba"), 1, [], lambda who, what: None)
    assert (again.late, again.retaken) == (0, 0)


@pytest.mark.parametrize(
    ("late", "samples", "kept", "left"),
    [
        ((0, 1, 2, 3), [("b", 32), ("a", 12)], 0, 4),  # a hiccup: both first ones, and what was taken in their place
        ((0, 1, 2, 3, 4, 5, 6, 7), [("a", 11), ("b", 31), ("b", 32), ("a", 12)], 4, 2),  # the host is never in time
    ],
)
def test_what_is_late_though_it_was_taken_again_is_left_out_beside_one_that_is_not(
    late: tuple[int, ...], samples: list[tuple[str, float]], kept: int, left: int, tmp_path: Path
) -> None:
    clock = ScriptedGpu(lambda name, nth: {"a": 10.0, "b": 30.0}[name] + nth, late=late.__contains__)
    sampler = Sampler(clock, "device", delays={"a": 100.0, "b": 100.0})
    prep = prepare(tmp_path, **named(clock.script, "a", "b"))
    taken = sampler.block(prep, list("abba"), 1, [], lambda who, what: None)
    assert ([(s.variant, s.device_us) for s in taken.samples], taken.late, taken.retaken) == (samples, kept, left)


def test_every_rank_keeps_all_of_its_samples(tmp_path: Path) -> None:
    clock = ScriptedGpu(lambda name, nth: 10.0, late=lambda index: index == 0)
    sampler, prep = Sampler(clock, "device", delays={"a": 100.0}), prepare(tmp_path, **named(clock.script, "a"))
    prep.ranks = SimpleNamespace(size=2)  # type: ignore[assignment]
    taken = sampler.block(prep, list("aa"), 1, [], lambda who, what: None)
    assert (len(taken.samples), taken.late, taken.retaken) == (2, 1, 0)


def test_a_host_in_time_for_one_step_is_not_thought_able_to_enqueue_many(tmp_path: Path) -> None:
    clock = ScriptedGpu(lambda name, nth: 10.0, late=lambda index: index > 0)  # launches of 9 steps overfill the queue
    sampler, prep = Sampler(clock, "device", delays={"a": 100.0}), prepare(tmp_path, **named(clock.script, "a"))
    assert not sampler._device(prep, "a", 1).late
    assert sampler._device(prep, "a", 9).late
    assert [count for _, count in clock.script.seen] == [1, 9, 9]
    assert sampler._device(prep, "a", 9).late
    assert [count for _, count in clock.script.seen] == [1, 9, 9, 9]
    assert sampler._device(prep, "a", 1).late
    assert [count for _, count in clock.script.seen] == [1, 9, 9, 9, 1, 1, 1]
    assert sampler._device(prep, "a", 1).late
    assert len(clock.script.seen) == 10, "that it was once in time is not forgotten"


def test_a_proven_sample_for_which_the_host_was_late_says_nothing_of_whether_it_can_be_in_time(tmp_path: Path) -> None:
    clock = ScriptedGpu(lambda name, nth: 10.0, late=lambda index: index < 2)
    sampler, prep = Sampler(clock, "device", delays={"a": 100.0}), prepare(tmp_path, **named(clock.script, "a"))
    assert sampler._device(prep, "a", 1, prep.variants["a"].step).late
    assert not sampler._device(prep, "a", 1).late
    assert len(clock.delays) == 3


def test_a_sample_that_is_proven_and_one_of_several_ranks_are_taken_once(tmp_path: Path) -> None:
    clock = ScriptedGpu(lambda name, nth: 10.0, late=lambda index: index > 0)
    sampler, prep = Sampler(clock, "device", delays={"a": 100.0}), prepare(tmp_path, **named(clock.script, "a"))
    assert not sampler._device(prep, "a", 1).late
    assert sampler._device(prep, "a", 1, prep.variants["a"].step).late
    assert len(clock.delays) == 2
    prep.ranks = SimpleNamespace(size=2)  # type: ignore[assignment]
    assert sampler._device(prep, "a", 1).late
    assert len(clock.delays) == 3


def test_the_delay_covers_the_longest_host_time_that_was_seen(tmp_path: Path) -> None:
    clock = ScriptedGpu(lambda name, nth: 10.0)
    prep, sampler = prepare(tmp_path, **named(clock.script, "a")), Sampler(clock, "device")
    sampler.warm(prep, ["a"], 0.0, lambda who, what: None)
    assert sampler.delays == {"a": 1.5 * 4.0 + SLACK_US}
    sampler.block(prep, ["a", "a"], 8, [], lambda who, what: None)
    assert sampler.delays == {"a": 1.5 * 32.0 + SLACK_US}


@pytest.mark.parametrize("headline", ["device", "end_to_end"])
def test_probed_samples_are_proven_and_stay_in_their_place(headline: Any, tmp_path: Path) -> None:
    clock = ScriptedGpu(lambda name, nth: {"a": 10.0, "b": 20.0}[name])
    prep = prepare(tmp_path, **named(clock.script, "a", "b"))
    samples, _, _, proofs = block(clock, prep, "abba", count=3, probes=(1, 3), headline=headline)
    assert [(sample.variant, sample.device_us) for sample in samples] == list(zip("abba", (10.0, 20.0, 20.0, 10.0)))
    assert [sample.fresh for sample in samples] == [False, True, False, True]
    assert clock.script.seen[:4] == [(name, 3) for name in "abba"]
    assert {name: [(p.when, p.size, p.reason) for p in found] for name, found in proofs.items()} == {
        "b": [("while timing", "bench", None)],
        "a": [("while timing", "bench", None)],
    }
    assert clock.settled == 2, "what was enqueued must be done before the inputs are refilled"


@pytest.mark.parametrize("headline", ["device", "end_to_end"])
def test_what_a_probed_sample_takes_is_not_counted_as_proof(
    headline: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a block that is probed would seem short, and its round to have the time for more of them."""
    clock = ScriptedGpu(lambda name, nth: 50_000.0)

    def passed() -> float:
        return clock.script.now_us / 1e6

    monkeypatch.setattr(sampling, "time", SimpleNamespace(perf_counter=passed))
    prep = prepare(tmp_path, **named(clock.script, "a"))
    taken = Sampler(clock, headline, delays={"a": 100.0}).block(prep, ["a"], 1, [0], lambda who, what: None)
    assert taken.samples[0].fresh
    assert abs(taken.proof_s) < 1e-4, "for 0.05 s that the sample took"


def test_the_probes_of_a_block_share_one_reference_and_what_is_stale_shows_in_each(tmp_path: Path) -> None:
    asked: list[Tensor] = []

    def reference(x: Tensor) -> Tensor:
        asked.append(x)
        return x + 1

    def stale(x: Tensor) -> Step:
        first = x + 1
        return lambda: clock.script.called.append("b") or first  # type: ignore[func-returns-value]

    clock = ScriptedCpu(lambda name, nth: 10.0)
    prep = prepare(tmp_path, workload(reference=reference), **named(clock.script, "a", "c"), b=stale)
    _, _, _, proofs = block(clock, prep, "abccba", probes=(0, 1, 2))
    assert len(asked) == 1
    assert [proofs[name][0].reason is None for name in "abc"] == [True, False, True]


def test_what_a_timed_step_did_to_frozen_inputs_is_told_of_even_if_it_is_not_done_again(tmp_path: Path) -> None:
    clock = ScriptedCpu(lambda name, nth: 10.0)
    prep = prepare(tmp_path, workload(frozen=["x"]), **named(clock.script, "a", "b"))
    prep.inputs["x"].add_(1)
    with pytest.raises(VariantError, match="a step, while timed, overwrote the input 'x', which is frozen"):
        block(clock, prep, "abba", probes=(0, 1))


def test_a_variant_that_is_right_only_when_it_is_not_timed_is_caught(tmp_path: Path) -> None:
    clock = ScriptedCpu(lambda name, nth: 10.0)

    def cheat(x: Tensor) -> Step:
        out, calls = torch.empty_like(x), []

        def step() -> Tensor:
            clock.script.called.append("b")
            calls.append(1)
            return torch.add(x, 1, out=out) if len(calls) < 6 else out

        return step

    prep = prepare(tmp_path, **named(clock.script, "a"), b=cheat)
    assert prove(prep, ["b"], "before timing", trials=2)["b"][-1].reason is None
    _, _, _, proofs = block(clock, prep, "abba", probes=(0, 2))
    assert proofs["a"][0].reason is None
    assert proofs["b"][0].reason == "NaN or infinity where the reference is finite, or the reverse"


def failing_after(calls: int) -> Prepare:
    def prepare(x: Tensor) -> Step:
        left = [calls]

        def step() -> Tensor:
            left[0] -= 1
            if left[0] < 0:
                raise ValueError("no more")
            return x + 1

        return step

    return prepare


def test_a_step_that_raises_while_it_is_probed_does_not_give_its_place_to_the_next_sample(tmp_path: Path) -> None:
    clock = ScriptedCpu(lambda name, nth: {"a": 10.0, "c": 30.0}[name])
    prep = prepare(tmp_path, **named(clock.script, "a", "c"), b=failing_after(1))
    samples, _, _, proofs = block(clock, prep, "abcca", probes=(1,))
    assert "no more" in proofs["b"][0].reason
    assert {(sample.variant, sample.wall_us) for sample in samples if sample.variant != "b"} == {("a", 10), ("c", 30)}


def test_a_step_that_raises_unprobed_ends_the_block(tmp_path: Path) -> None:
    clock = ScriptedCpu(lambda name, nth: 10.0)
    prep = prepare(tmp_path, **named(clock.script, "a"), b=failing_after(1))
    with pytest.raises(ValueError, match="no more"):
        block(clock, prep, "abba")


@pytest.mark.parametrize(("probes", "most"), [((), 0), ((0,), 1)])  # the proof keeps the output that it looks at
def test_outputs_are_given_back_before_the_next_step(probes: tuple[int, ...], most: int, tmp_path: Path) -> None:
    clock, held = ScriptedCpu(lambda name, nth: 10.0), []

    def counting(x: Tensor) -> Step:
        alive: list[weakref.ref[Tensor]] = []

        def step() -> Tensor:
            clock.script.called.append("a")
            held.append(sum(output() is not None for output in alive))
            alive.append(weakref.ref(out := x + 1))
            return out

        return step

    block(clock, prepare(tmp_path, a=counting), "aa", count=5, probes=probes)
    assert max(held) == most


def test_whoever_is_at_work_is_said_before_the_work(tmp_path: Path) -> None:
    clock, said = ScriptedCpu(lambda name, nth: 100.0), []
    prep, sampler = prepare(tmp_path, **named(clock.script, "a", "b")), Sampler(clock, "device")
    sampler.warm(prep, ["a", "b"], 0.0, lambda *work: said.append(work))
    sampler.block(prep, ["a", "b", "b", "a"], 1, [], lambda *work: said.append(work))
    assert said == [(name, "warm-up") for name in "ab"] + [(name, "timing") for name in "abba"]


def test_files_are_evicted_before_every_wall_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, evicted = ScriptedCpu(lambda name, nth: 10.0), []
    monkeypatch.setattr(Preparation, "evict_files", lambda prep: evicted.append(len(clock.script.seen)))
    block(clock, prepare(tmp_path, **named(clock.script, "a")), "aaa")
    assert evicted == [0, 1, 2]


@pytest.fixture
def childless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process may have left it some."""
    monkeypatch.setattr(sampling, "children", lambda pid: [])


class Seeking:
    """A sampler of steps `a` and `b` that notes before which of all samples it looked for a core."""

    def __init__(self, folder: Path, headline: Any = "end_to_end") -> None:
        self.clock = ScriptedGpu(lambda name, index: 100.0)
        self.prep = prepare(folder, **named(self.clock.script, "a", "b"))
        self.sought: list[int] = []
        self.sampler = Sampler(self.clock, headline, lambda: self.sought.append(len(self.clock.script.seen)))

    def warm(self) -> list[int]:
        self.sampler.warm(self.prep, ["a", "b"], 0.0, lambda who, what: None)
        return self.sought

    def block(self) -> list[int]:
        self.sought.clear()
        self.sampler.block(self.prep, ["a", "b", "b", "a"], 1, [], lambda who, what: None)
        return self.sought


@pytest.mark.usefixtures("childless")
def test_a_core_is_sought_before_each_sample_of_a_session_on_the_hosts_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "others_ns", lambda: 0)  # pytest's own threads may do more than a tenth of 130 us
    seeking = Seeking(tmp_path)
    assert seeking.warm() == [0, 1]
    assert seeking.block() == [2, 3, 4, 5]


@pytest.mark.usefixtures("childless")
def test_no_core_is_sought_where_the_devices_clock_decides(tmp_path: Path) -> None:
    seeking = Seeking(tmp_path, "device")
    assert seeking.warm() + seeking.block() == []


@pytest.mark.usefixtures("childless")
@pytest.mark.parametrize(("others_us", "moves"), [(12.0, True), (14.0, False)])
def test_what_several_threads_work_on_is_timed_where_it_is(
    others_us: float, moves: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wall takes 130 us here, of which others may have a tenth. One such variant is enough: all share the pool."""
    seeking, had = Seeking(tmp_path), [0]

    def others_ns() -> int:
        had[0] += round(1e3 * others_us) if seeking.clock.script.called[-1:] == ["b"] else 0
        return had[0]

    monkeypatch.setattr(sampling, "others_ns", others_ns)
    seeking.warm()
    assert (seeking.block() != []) == moves


@pytest.mark.usefixtures("childless")
def test_threads_that_are_at_work_beside_a_step_are_seen(tmp_path: Path) -> None:
    clock, rows = CpuClock(), torch.rand(400, 400)

    def alone() -> Tensor:
        return torch.zeros(3) * sum(range(900_000))  # 20 ms, in which what other tests left may do little

    def several() -> Tensor:
        threads = [threading.Thread(target=lambda: [rows @ rows for _ in range(20)]) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return torch.zeros(3)

    stated = workload(reference=lambda x: torch.zeros(3))
    for step, found in ((alone, False), (several, True)):
        prep = prepare(tmp_path, stated, a=lambda x, step=step: step, b=lambda x: alone)
        sampler = Sampler(clock, "end_to_end")
        time.sleep(0.05)  # until threads that prepared it sleep
        sampler.warm(prep, ["a"], 0.0, lambda who, what: None)
        assert sampler.stays == found


@pytest.mark.usefixtures("childless")
def test_a_variant_with_a_process_of_its_own_is_timed_where_it_is(tmp_path: Path) -> None:
    """Another one's process may have to stay, and then both do."""
    seeking = Seeking(tmp_path)
    seeking.prep = prepare(tmp_path, **named(seeking.clock.script, "a"))
    seeking.sampler.warm(seeking.prep, ["a"], 0.0, lambda who, what: None)
    seeking.sampler.block(seeking.prep, ["a", "a"], 1, [], lambda who, what: None)
    assert seeking.sought == []


def test_a_process_with_children_is_timed_where_it_is(tmp_path: Path) -> None:
    seeking = Seeking(tmp_path)
    with subprocess.Popen(["sleep", "9"]) as child:
        seeking.warm()
        child.kill()
    assert seeking.sought + seeking.block() == []
    assert seeking.warm() + seeking.block() == [], "in later rounds too"


@pytest.mark.parametrize(("headline", "floor"), [("device", 1.5), ("end_to_end", 31.5)])
def test_the_floor_is_the_median_of_an_empty_step_on_the_headline_clock(headline: Any, floor: float) -> None:
    clock = ScriptedGpu(lambda name, nth: 1.5 if nth % 3 else 500.0)
    assert Sampler(clock, headline).floor_us() == floor
    assert set(clock.script.seen) == {("empty", 1)}


def test_the_floor_of_a_cpu_is_on_its_only_clock() -> None:
    assert Sampler(ScriptedCpu(lambda name, nth: 0.25), "device").floor_us() == 0.25


def test_a_cpu_session_end_to_end_reads_the_time_that_steps_take(tmp_path: Path) -> None:
    def sleeping(seconds: float) -> Prepare:
        def prepare(x: Tensor) -> Step:
            def step() -> Output:
                time.sleep(seconds)
                return x + 1

            return step

        return prepare

    prep, said = prepare(tmp_path, a=sleeping(0.004), b=sleeping(0.001)), []
    sampler = Sampler(CpuClock(), "device")
    assert 0 < sampler.floor_us() < 100
    count = sampler.warm(prep, ["a", "b"], 0.05, lambda *work: said.append(work))
    taken = sampler.block(prep, list("abba"), count, [0, 1], lambda *work: said.append(work))
    samples, proofs = taken.samples, taken.proofs
    assert (count, taken.walls, taken.late) == (1, [], 0)
    assert [sample.variant for sample in samples] == list("abba")
    assert all((s.wall_us or 0) >= {"a": 4000, "b": 1000}[s.variant] for s in samples)
    assert [sample.wall_us == sample.host_us for sample in samples] == [True] * 4
    assert all(proof.reason is None for found in proofs.values() for proof in found)
