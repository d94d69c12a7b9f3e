"""Pairs begin side by side as far as there is room, what takes longest first; some have the machine to themselves."""

from pathlib import Path
from typing import Any

import pytest

from common.python.base.machine import Gpu, Machine
from common.python.corpus.discovery import Pair, find_pairs
from common.python.run import turns
from common.python.run.last_run import LastRun, LastRuns
from common.python.run.options import Options
from common.python.run.turns import Turns, places
from common.python.workers.launch import Launch

HEAD = "import torch\nfrom common.python.requirements import needs\nfrom common.python.workload import Workload\n"


def machine(cores: int = 16, memory_gib: float = 128, gpus_gib: tuple[float, ...] = (139.8,)) -> Machine:
    gpus = [Gpu(name="GPU", uuid=str(index), sm=90, memory_gib=gib) for index, gib in enumerate(gpus_gib)]
    return Machine(hostname="h", system="Linux", cpu="c", cores=cores, memory_gib=memory_gib, numa_nodes=1, gpus=gpus)


@pytest.mark.parametrize(
    ("cores", "memory_gib", "gpus_gib", "count"),
    [
        (16, 128, (139.8,), 8),
        (64, 512, (80, 24), 2),
        (64, 512, (80,), 8),
        (64, 512, (79.2,), 7),
        (4, 128, (139.8,), 2),
        (16, 30, (139.8,), 3),
        (8, 64, (), 4),
        (2, 64, (), 1),
        (1, 4, (8,), 1),
    ],
)
def test_as_many_as_cores_and_memory_have_room_for(
    cores: int, memory_gib: float, gpus_gib: tuple[float, ...], count: int
) -> None:
    assert places(machine(cores, memory_gib, gpus_gib)) == count


@pytest.fixture
def pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Pair]:
    """b has nothing, a is on the host's clock, c compiles, d is isolated, e has two GPUs, f needs 60 GiB, g 100."""
    monkeypatch.setattr(turns.Monitor, "open", lambda uuid: None)
    more = {"c": "torch.compile\n", "f": "requires = needs(memory_gib=60)\n", "g": "requires = needs(memory_gib=100)\n"}
    fields = {"a": 'clock="end_to_end"', "d": "isolated=True", "e": "gpus=2"}
    for name in "abcdefg":
        text = f'"""Does it."""\n{HEAD}workload = Workload({fields.get(name, "")})\n{more.get(name, "")}'
        (tmp_path / "ch01").mkdir(exist_ok=True)
        for stem in ("baseline", "optimized"):
            (tmp_path / "ch01" / f"{stem}_{name}.py").write_text(text)
    return {pair.name: pair for pair in find_pairs(tmp_path)}


def order(pairs: list[Pair], end: bool = True, **options: Any) -> list[str]:
    """Who begins, where each that has begun ends before the next is asked for, or none does."""
    options = {"artifacts_dir": Path(), **options}
    found = Turns(pairs, Options(targets=[], root=Path(), **options), machine())
    names = []
    while pair := found.next():
        names.append(pair.name)
        if end:
            found.ended(pair, LastRun(1.0))
    return names


def test_what_is_large_or_slow_to_begin_is_first_and_what_is_by_itself_last(pairs: dict[str, Pair]) -> None:
    assert order(list(pairs.values())) == ["g", "f", "a", "c", "d", "b", "e"]


def test_what_took_longest_when_it_was_last_run_is_first_behind_what_is_large_or_was_not(
    pairs: dict[str, Pair], tmp_path: Path
) -> None:
    found = Turns(list(pairs.values()), Options([], tmp_path, tmp_path), machine())
    for name, took_s in {"g": 1.0, "a": 3.0, "b": 9.0, "d": 4.0, "e": 20.0}.items():
        found.at_work.append(pairs[name])
        found.ended(pairs[name], LastRun(took_s))
    found.runs.keep()
    assert order(list(pairs.values()), artifacts_dir=tmp_path) == ["f", "g", "c", "b", "d", "a", "e"]
    assert order(list(pairs.values()), artifacts_dir=tmp_path, jobs=1) == list("abcdefg")
    assert order(list(pairs.values()), artifacts_dir=tmp_path, size="test")[0] == "g", "which has no run at that size"


@pytest.mark.parametrize(("gib", "first"), [(47.0, "f"), (46.0, "a")])
def test_what_takes_a_third_of_the_memory_begins_before_others_have_it(
    gib: float, first: str, pairs: dict[str, Pair], tmp_path: Path
) -> None:
    """On a card of 80 GiB one that held 40 came last in a suite of twenty, 7 to 10 s behind the others (121a6dd)."""
    noted = LastRuns(tmp_path)
    for name, (seconds, held) in {"a": (9.0, 20.0), "b": (8.0, 20.0), "f": (1.0, gib)}.items():
        noted.note(f"ch01:{name} at bench", LastRun(seconds, held))
    noted.keep()
    assert order([pairs[name] for name in "abf"], artifacts_dir=tmp_path)[0] == first


@pytest.mark.parametrize(("seconds", "first"), [(22.0, "fcdba"), (10.0, "cgdba")])
def test_two_that_are_large_do_not_begin_together_where_a_longer_one_would_have_to_wait(
    seconds: float, first: str, pairs: dict[str, Pair], tmp_path: Path
) -> None:
    """On 80 GiB one of 43 and one of 33 left no room for one of 10, which took 22 s and began when the first ended."""
    noted = LastRuns(tmp_path)
    held = {"f": (seconds, 20.0), "c": (15.0, 75.0), "g": (12.0, 58.0), "d": (9.0, 1.0), "b": (8.0, 1.0)}
    for name, run in {**held, "a": (7.0, 1.0)}.items():
        noted.note(f"ch01:{name} at bench", LastRun(*run))
    noted.keep()
    assert order([pairs[name] for name in "abcdfg"], end=False, artifacts_dir=tmp_path) == list(first)


@pytest.mark.parametrize(
    ("names", "jobs", "seconds"),
    [
        ("abd", 2, 7.0),  # d begins when b has ended, at 3
        ("abd", 3, 4.0),
        ("afcg", 8, 20.0),  # f, c and g one after the other, 5, 2 and 3, beside a
        ("fgc", 8, 10.0),
        ("be", 8, 3.0),  # e is by itself, whatever the order
        ("e", 8, 0.0),
    ],
)
def test_an_order_lasts_as_long_as_what_there_is_room_for_side_by_side(
    names: str, jobs: int, seconds: float, pairs: dict[str, Pair], tmp_path: Path
) -> None:
    runs = {"a": (20.0 if "f" in names else 4.0, 1.0), "b": (3.0, 1.0), "d": (4.0, 1.0), "e": (50.0, 1.0)}
    noted = LastRuns(tmp_path)
    for name, run in {**runs, "f": (5.0, 100.0), "c": (2.0, 100.0), "g": (3.0, 100.0)}.items():
        noted.note(f"ch01:{name} at bench", LastRun(*run))
    noted.keep()
    found = Turns(list(pairs.values()), Options([], tmp_path, tmp_path, jobs=jobs), machine())
    before = list(found.waiting)
    assert found._lasts_s([pairs[name] for name in names]) == seconds
    assert found.waiting == before, "it has only been asked"


def test_what_has_been_run_takes_the_memory_that_it_held(pairs: dict[str, Pair], tmp_path: Path) -> None:
    """g and f say that they need 100 and 60 GiB."""
    noted = LastRuns(tmp_path)
    for seconds, (name, gib) in enumerate({"g": 50.0, "f": None, "a": 20.0, "b": 3.0}.items()):
        noted.note(f"ch01:{name} at bench", LastRun(9.0 - seconds, gib))
    noted.keep()
    first = [pairs[name] for name in "gfab"]
    assert order(first, end=False, artifacts_dir=tmp_path) == ["g", "f", "a", "b"], "50 + 60 + 20 + 3 GiB of 139.8"
    noted.note("ch01:g at bench", LastRun(9.0, 60.0))
    noted.keep()
    assert order(first, end=False, artifacts_dir=tmp_path) == ["g", "f", "b"], "60 + 60 + 20 would not fit"


def test_a_run_of_the_same_kind_tells_more_than_the_last_one(pairs: dict[str, Pair], tmp_path: Path) -> None:
    """A quick run after a default one began with what takes longest there (cfc0895)."""

    def run(budget_s: float, seconds: dict[str, float], variants: int = 9) -> list[str]:
        some = [pairs[name].only({one.name for one in pairs[name].variants[:variants]}) for name in seconds]
        found = Turns(some, Options([], tmp_path, tmp_path, budget_s=budget_s), machine())
        began = [pair for _ in seconds if (pair := found.next())]
        for pair in began:
            found.ended(pair, LastRun(seconds[pair.name], 1.0))
        found.runs.keep()
        return [pair.name for pair in began]

    run(0.2, {"a": 1.0, "b": 9.0})
    assert run(1.0, {"a": 8.0, "b": 3.0}) == ["b", "a"], "that of another kind is better than none"
    assert run(0.2, {"a": 1.0, "b": 9.0}) == ["b", "a"]
    assert run(1.0, {"a": 8.0, "b": 3.0}) == ["a", "b"]
    assert run(0.5, {"a": 8.0, "b": 3.0}) == ["a", "b"], "the last one of any kind"
    run(0.5, {"a": 1.0, "b": 2.0}, variants=1)
    assert run(0.5, {"a": 8.0, "b": 3.0}) == ["a", "b"], "one without a rung or a peer is of another kind"


def test_no_more_are_at_work_than_have_room(pairs: dict[str, Pair]) -> None:
    assert order(list(pairs.values()), end=False, jobs=2) == ["g", "a"]
    assert order(list(pairs.values()), end=False) == ["g", "a", "c", "d"], "60 GiB more would not fit"
    assert order([pairs["e"], pairs["a"]], end=False) == ["a"]
    assert order([pairs["e"]], end=False) == ["e"]


@pytest.mark.parametrize(
    "how", [{"jobs": 1}, {"cold_start": True}, {"profile": True}, {"launch": Launch(nproc_per_node=2)}]
)
def test_where_one_pair_is_to_have_the_machine_their_order_is_kept(pairs: dict[str, Pair], how: dict[str, Any]) -> None:
    assert order(list(pairs.values()), **how) == list("abcdefg")
    assert order(list(pairs.values()), end=False, **how) == ["a"]


def test_a_gpu_for_one_process_is_not_shared(pairs: dict[str, Pair], monkeypatch: pytest.MonkeyPatch) -> None:
    for shared in (True, False):
        monitor = type("One", (), {"shared": lambda self, told=shared: told})()
        monkeypatch.setattr(turns.Monitor, "open", lambda uuid, found=monitor: found)
        found = Turns(list(pairs.values()), Options([], Path(), Path()), machine())
        assert (found.room, found.lingers) == ((8, True) if shared else (1, False))


def test_where_leaders_listen_at_one_place_a_pair_ends_before_the_next_begins(pairs: dict[str, Pair]) -> None:
    launch = Launch(rdzv_endpoint="node0:29500")
    found = Turns(list(pairs.values()), Options([], Path(), Path(), launch=launch), machine())
    assert (found.room, found.lingers) == (1, False)


def test_a_pair_that_lacked_memory_beside_others_is_run_again_by_itself(pairs: dict[str, Pair]) -> None:
    found = Turns([pairs["a"], pairs["b"]], Options([], Path(), Path()), machine())
    a, b = found.next(), found.next()
    assert (a, b, found.next()) == (pairs["a"], pairs["b"], None)
    found.ended(pairs["a"], None)
    assert found.next() is None, "b is still at work"
    found.ended(pairs["b"], LastRun(1.0))
    assert found.next() == pairs["a"]
