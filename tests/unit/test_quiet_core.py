"""A worker's thread goes to a quiet core and stays free, on a stand-in for a host whose cores each have a pace."""

import os
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from common.python.proof.ranks import Ranks
from common.python.timing.cpu_pinning import MOST_CORES, QuietCore
from common.python.timing.sampler import BlockTaken
from common.python.workers.commands import Bench


class Host:
    """Cores with paces in microseconds; a thread stays on the core that it was last bound to."""

    def __init__(self, folder: Path, paces: list[float], nodes: tuple[str, ...] = (), on: int = 0) -> None:
        self.paces, self.root, self.on, self.allowed = paces, folder, on, set(range(len(paces)))
        self.bound: list[set[int]] = []
        for index, cores in enumerate(nodes):
            node = folder / f"sys/devices/system/node/node{index}"
            node.mkdir(parents=True)
            (node / "cpulist").write_text(f"{cores}\n")
        (folder / "proc/thread-self").mkdir(parents=True)
        self.bind(0, {on})
        self.bound.clear()

    def bind(self, thread: int, cores: set[int]) -> None:
        self.bound.append(set(cores))
        if self.on not in cores or len(cores) == 1:
            self.on = next(iter(cores))
        stat = " ".join(["7 (a (b) c) S", *["0"] * 35, str(self.on), "0"])
        (self.root / "proc/thread-self/stat").write_text(stat)

    def pace_us(self) -> float:
        return self.paces[self.on]


Hosted = Callable[..., tuple[Host, QuietCore]]


@pytest.fixture
def hosted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Hosted:
    def host(*args: Any, **kwargs: Any) -> tuple[Host, QuietCore]:
        made = Host(tmp_path, *args, **kwargs)
        monkeypatch.setattr(os, "sched_getaffinity", lambda thread: set(made.allowed))
        monkeypatch.setattr(os, "sched_setaffinity", made.bind)
        return made, QuietCore(made.pace_us, made.root, rng=random.Random(1))

    return host


def test_a_slow_core_is_left_for_one_at_the_best_pace_and_all_are_allowed_again(hosted: Hosted) -> None:
    host, quiet = hosted([48.0, 50.0, 24.0, 49.0])
    quiet.seek()
    assert (host.on, quiet.best_us, host.bound[-1]) == (2, 24.0, {0, 1, 2, 3})
    host.paces[:] = [24.5, 49.0, 47.0, 50.0]  # the neighbours have moved
    quiet.seek()
    assert (host.on, host.bound[-1]) == (0, {0, 1, 2, 3})


def test_a_core_at_work_is_quiet_where_it_is_not_far_from_the_quickest_idle_one(hosted: Hosted) -> None:
    _, quiet = hosted([48.0, 50.0, 20.0, 49.0])
    assert quiet.quiet_us() == pytest.approx(23.0)


def test_on_a_quiet_core_nothing_is_bound(hosted: Hosted) -> None:
    host, quiet = hosted([24.0, 24.0, 24.0])
    quiet.seek()
    host.bound.clear()
    host.paces[host.on] = 24.0 * 1.1
    quiet.seek()
    assert host.bound == []


def test_a_search_ends_at_the_first_quiet_core(hosted: Hosted) -> None:
    host, quiet = hosted([24.0] * 8)
    quiet.seek()
    host.bound.clear()
    host.paces[host.on] = 48.0
    quiet.seek()
    assert len(host.bound) == 2, "one core, and all again"


def test_where_every_core_has_become_slow_it_ends_on_the_quickest_and_searches_no_more(hosted: Hosted) -> None:
    """As where a processor keeps its highest clock for seconds only: each sample would begin with a search."""
    host, quiet = hosted([24.0, 24.0, 24.0, 24.0])
    quiet.seek()
    host.paces[:] = [52.0, 51.0, 50.0, 45.0]
    quiet.seek()
    assert (host.on, quiet.best_us) == (3, 45.0)
    host.bound.clear()
    quiet.seek()
    assert host.bound == []
    host.paces[3] = 24.0  # quick again, as it sees when it is there
    quiet.seek()
    host.paces[:] = [52.0, 24.5, 50.0, 45.0]
    quiet.seek()
    assert host.on == 1


def test_an_interrupt_in_one_run_of_the_loop_moves_nothing(hosted: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    host, quiet = hosted([24.0, 24.0])
    quiet.seek()
    host.bound.clear()
    paces = iter([90.0, 24.0])
    quiet.pace_us = lambda: next(paces)
    quiet.seek()
    assert host.bound == []


def test_it_stays_on_its_memory_node(hosted: Hosted) -> None:
    host, quiet = hosted([24.0, 24.0, 50.0, 48.0], nodes=("0-1", "2-3"), on=2)
    quiet.seek()
    assert host.on == 3
    assert set().union(*host.bound[:-1]) == {2, 3}


def test_cores_that_may_not_be_used_are_not(hosted: Hosted) -> None:
    host, quiet = hosted([48.0, 24.0, 47.0])
    host.allowed = {0, 2}
    quiet.seek()
    assert (host.on, host.bound[-1]) == (2, {0, 2})
    host.allowed, host.bound = {2}, []
    host.paces[2] = 99.0
    quiet.seek()
    assert host.bound == []


def test_of_its_memory_node_it_takes_the_cores_that_it_may_use(hosted: Hosted) -> None:
    host, quiet = hosted([48.0, 24.0, 47.0, 46.0], nodes=("0-2", "3"))
    host.allowed = {0, 2, 3}
    quiet.seek()
    assert host.on == 2
    assert set().union(*host.bound[:-1]) == {0, 2}


def test_a_search_that_fails_leaves_all_cores_allowed(hosted: Hosted) -> None:
    host, quiet = hosted([48.0, 24.0])
    paces = iter([48.0, 48.0])  # and no more: the third run raises
    quiet.pace_us = lambda: next(paces)
    with pytest.raises(StopIteration):
        quiet.seek()
    assert host.bound[-1] == {0, 1}


def test_where_binding_is_forbidden_it_is_tried_once(hosted: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    host, quiet = hosted([48.0, 24.0])
    tried: list[set[int]] = []

    def forbid(thread: int, cores: set[int]) -> None:
        tried.append(cores)
        raise PermissionError

    monkeypatch.setattr(os, "sched_setaffinity", forbid)
    for pace in (48.0, 60.0, 80.0):
        host.paces[0] = pace
        quiet.seek()
    assert len(tried) == 2, "a core, and all again"


def test_where_the_kernel_does_not_tell_where_it_is_all_cores_are_one_node(hosted: Hosted) -> None:
    host, quiet = hosted([48.0, 24.0], nodes=("0", "1"))
    quiet.root = host.root / "nowhere"
    quiet.seek()
    assert host.on == 1


def test_no_search_looks_at_more_than_some_cores(hosted: Hosted) -> None:
    host, quiet = hosted([24.0] * (3 * MOST_CORES))
    quiet.seek()
    assert len(host.bound) == MOST_CORES + 2, "the quickest, and all again"


def test_it_finds_its_way_on_this_machine() -> None:
    before, quiet = os.sched_getaffinity(0), QuietCore()
    for _ in range(3):
        quiet.seek()
    assert os.sched_getaffinity(0) == before
    assert 0 < quiet.best_us < 10_000


def test_one_of_several_ranks_stays_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks would look for a core at the same time, and find the same one."""
    sought: list[str] = []
    monkeypatch.setattr(QuietCore, "seek", lambda self: sought.append("sought"))
    settings = {"seed": 3, "reproducible": False}
    Bench(tmp_path, tmp_path, settings, lambda who, what: None, Ranks(0, 2)).seek()
    assert sought == []
    Bench(tmp_path, tmp_path, settings, lambda who, what: None).seek()
    assert sought == ["sought"]


def test_a_block_begins_with_a_search_before_the_hosts_pace_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a pace that is gone by the first sample would leave the block out."""
    did: list[str] = []
    taken = BlockTaken(samples=[], walls=[], late=0, retaken=0, proofs={}, proof_s=0.0)
    bench: Any = Bench(tmp_path, tmp_path, {"seed": 3, "reproducible": False}, lambda who, what: None)
    bench.prep = object()
    bench.sampler = SimpleNamespace(
        find_core=lambda: did.append("search"), block=lambda *how: did.append("samples") or taken
    )
    monkeypatch.setattr("common.python.workers.commands.pace_us", lambda: did.append("pace") or 24.0)
    bench.block(["a", "a"], 1, [], waken=False)
    assert did == ["search", "pace", "samples", "pace"]
