"""What a worker's bench does between rounds."""

import sys
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from common.python.base.results import Why
from common.python.proof.preparation import Preparation
from common.python.workers.commands import CONTEXT_GIB, Bench

PAIR = '''"""A doubling whose step holds its input in a cycle, as compiled modules do."""

import weakref

from common.python.workload import Cost, Workload

made = []
workload = Workload(
    inputs=lambda draw, n: {"a": draw.normal(n)},
    reference=lambda a: a * 2,
    cost=lambda n: Cost(hbm_bytes=8 * n),
    sizes={"test": {"n": 7}, "cpu": {"n": 33}, "bench": {"n": 65}},
    tolerance=1e-6,
)


def prepare(a):
    cycle = {"own": a.clone()}
    cycle["self"] = cycle
    made.append(weakref.ref(cycle["own"]))

    def step():
        return a + cycle["own"]

    cycle["step"] = step
    return step
'''


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    (tmp_path / "doubling").mkdir()
    (tmp_path / "doubling" / "baseline_doubling.py").write_text(PAIR)
    monkeypatch.setattr(sys, "path", list(sys.path))
    bench = Bench(tmp_path, tmp_path, {"seed": 3, "reproducible": False}, lambda who, what: None)
    bench.load("doubling.baseline_doubling", {"a": "doubling.baseline_doubling"}, "cpu")
    yield bench
    for name in [name for name in sys.modules if name.startswith("doubling")]:
        del sys.modules[name]


def living() -> list[torch.Tensor]:
    made: list[weakref.ref[torch.Tensor]] = sys.modules["doubling.baseline_doubling"].made
    return [tensor for each in made if (tensor := each()) is not None]


def test_the_memory_that_it_held_is_what_its_allocator_reserved_at_most_and_its_context(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bench.most_gib() == 0.0, "of no GPU"
    bench.device = torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda: 3 * 2**30)
    assert bench.most_gib() == 3.0 + CONTEXT_GIB


def test_what_a_round_held_is_given_back_before_the_next_draws(bench: Bench) -> None:
    for size in ("test", "test", "cpu", "cpu", "cpu"):
        assert bench.prepare(["a"], size, [])["failures"] == {}
        assert len(living()) == 1, size


def test_what_preparing_takes_leaves_out_for_how_long_the_process_was_stopped(bench: Bench) -> None:
    stops = iter(range(1000))
    bench.stopped_s = lambda: 60.0 * next(stops)  # a minute since it was last asked
    answer = bench.prepare(["a"], "cpu", [])
    assert answer["prepare_s"]["a"] < -50
    assert answer["first_call_s"]["a"] < -50


def test_somebody_who_stays_on_the_gpu_is_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits, done = list[float](), [True, False, False, True, True]
    monkeypatch.setattr(
        "common.python.workers.commands.await_others", lambda limit_s: waits.append(limit_s) or done.pop(0)
    )
    bench = Bench(tmp_path, tmp_path, {"seed": 3, "reproducible": False}, lambda who, what: None)
    assert bench.await_device(), "there is nothing to wait for on a CPU"
    bench.device = torch.device("cuda")
    assert [bench.await_device(least_s) for least_s in (0.0, 0.0, 0.0, 0.5, 0.5)] == [True, False, False, True, True]
    assert waits == [3.0, 3.0, 0.05, 0.5, 3.0]


def test_the_gpu_is_waited_for_only_where_others_had_been_at_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, others = list[float](), [False, True]

    @contextmanager
    def want() -> Iterator[bool]:
        yield others.pop(0)

    monkeypatch.setattr("common.python.workers.commands.await_others", lambda limit_s: waits.append(limit_s) or True)
    bench = Bench(tmp_path, tmp_path, {"seed": 3, "reproducible": False}, lambda who, what: None, want=want)
    bench.device = torch.device("cuda")
    for count in (0, 1):
        with bench.alone():
            assert len(waits) == count


def test_what_a_variant_holds_between_steps_is_the_median_of_the_rounds_of_its_size(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them: one may have another's gradients in it, which a thread of autograd's let go of too late."""
    told, honest = iter([7.0, 100.0, 100.0, 429.0, 429.0, 429.0]), Preparation.prepare_all

    def prepare_all(prep: Preparation, *asked: Any) -> Any:
        failures = honest(prep, *asked)
        prep.variants["a"].held_bytes = next(told, None)
        return failures

    monkeypatch.setattr(Preparation, "prepare_all", prepare_all)
    seen = list[float | None]()
    for size in ("test", *["cpu"] * 6):
        bench.prepare(["a"], size, [])
        assert bench.prep is not None
        seen.append(bench.prep.variants["a"].held_bytes)
    assert seen == [7.0, 100.0, 100.0, 100.0, 264.5, 429.0, None]


@pytest.mark.parametrize(
    ("others", "done", "busy_us"),
    [
        ([False, False], [], 7.0),
        ([True, True], [True, True], 7.0),
        ([True, False], [False], None),
        ([True, True], [False, True], None),
    ],
)
def test_how_long_the_gpu_was_busy_is_not_told_where_others_kernels_took_turns_with_ones_own(
    others: list[bool], done: list[bool], busy_us: float | None, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What compiles in the profiled step asks for the machine that it has, and is told of no others."""

    @contextmanager
    def want() -> Iterator[bool]:
        yield others.pop(0)

    def profiled(group: list[Any], *how: Any) -> dict[str, Why]:
        with how[-1](), how[-1]():
            return {one.name: Why(busy_us=7.0) for one in group}

    bench.prepare(["a"], "cpu", [])
    bench.want = want
    monkeypatch.setattr(bench, "await_device", lambda: done.pop(0))
    bench.quiet = False  # in an earlier profile
    monkeypatch.setattr("common.python.workers.commands.why", profiled)
    assert bench.why(["a"], None)["a"]["busy_us"] == busy_us


@pytest.fixture
def called(bench: Bench, request: pytest.FixtureRequest) -> list[int]:
    """An item for each call of the variant's step, which takes as many seconds as the test says; it is timed once."""
    assert bench.prepare(["a"], "cpu", [])["failures"] == {}
    assert bench.prep is not None
    variant, made = bench.prep.variants["a"], list[int]()
    step = variant.step

    def counted() -> object:
        made.append(1)
        time.sleep(request.param)
        return step()

    variant.step, variant.metrics = counted, lambda: {"calls": float(len(made))}
    bench.start_clock()
    bench.warm(["a"], 0.0, None)
    bench.block(["a", "a"], 1, [], waken=False)
    made.clear()
    return made


@pytest.mark.parametrize(("called", "calls"), [(0.0, 1), (0.02, 0)], indirect=["called"])
def test_what_a_step_tells_follows_an_untimed_call_unless_it_is_long_and_was_just_timed(
    bench: Bench, called: list[int], calls: int
) -> None:
    """All others stand still meanwhile."""
    assert bench.why(["a"], None)["a"]["metrics"] == {"calls": calls}


@pytest.mark.parametrize("called", [0.0, 0.02], indirect=True)
def test_a_process_that_has_slept_wakes_by_an_untimed_step_however_long(bench: Bench, called: list[int]) -> None:
    """Without it three quick runs of five left `malloc_page_faults` inconclusive, on an H200 (ece8690)."""
    bench.block(["a", "a"], 1, [], waken=True)
    assert len(called) == 3


@pytest.mark.parametrize("called", [0.02], indirect=True)
def test_a_clock_that_is_started_anew_knows_no_step(bench: Bench, called: list[int]) -> None:
    """What is long for one sampler has no delay in the next. In the selftest sessions of a pair share a bench."""
    assert list(bench.long) == ["a"]
    bench.start_clock()
    assert bench.long == {}
    bench.warm(["a"], 0.0, None)
    assert list(bench.long) == ["a"]
    assert len(called) == 1


def test_a_cuda_context_is_made_when_the_pair_is_loaded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no part of preparing a variant, and takes 0.1 s or, beside others that make one, a second (an H200)."""
    settled, said = list[torch.device](), list[str]()
    monkeypatch.setattr("common.python.workers.commands.settle", settled.append)
    bench.device, bench.at = torch.device("cuda"), lambda who, what: said.append(who)
    bench.load("doubling.baseline_doubling", {"a": "doubling.baseline_doubling"}, "cpu")
    assert settled == [torch.device("cuda")]
    assert said[-2:] == ["a", "workload"], "where there is no memory for it, no variant is at fault"
