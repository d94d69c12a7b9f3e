"""Who is compiled ahead, how many at a time, and what a suite loses where that fails: nothing."""

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from common.python.base.interrupt import alarm
from common.python.base.machine import Gpu, Machine
from common.python.corpus.discovery import Pair, find_pairs
from common.python.run import prebuild as ahead
from common.python.run.prebuild import GPU_GIB, PART, SHARE, Ahead, jobs, teaches_compiling
from common.python.run.settings import SuiteTimeUp
from common.python.workers.launch import ONE_HOST, Launch
from common.python.workers.process import WorkerError

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Stubs:
    """Workers that take `takes_s` for anything, and what they were asked."""

    takes_s: float = 0.02
    worked: bool = True
    asked: list[dict[str, Any]] = field(default_factory=list)
    limits: list[float] = field(default_factory=list)
    busy: set[str] = field(default_factory=set)
    together: list[set[str]] = field(default_factory=list)
    killed: int = 0
    refused: str = ""  # the variant that no worker can be started for
    lock: Any = field(default_factory=threading.Lock)

    def hire(self, root: Path, scratch: Path, log: Path, settings: dict[str, Any]) -> "Stub":
        assert settings == {"seed": 3, "reproducible": True}
        if self.refused and scratch.name.endswith(self.refused):
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return Stub(self)


@dataclass(eq=False)
class Stub:
    stubs: Stubs
    gone: threading.Event = field(default_factory=threading.Event)

    def call(self, command: str, timeout_s: float, **asked: Any) -> bool:
        stubs = self.stubs
        with stubs.lock:
            stubs.asked.append({"command": command, **asked})
            stubs.limits.append(timeout_s)
            stubs.busy.add(asked["name"])
            stubs.together.append(set(stubs.busy))
        gone = self.gone.wait(min(stubs.takes_s, timeout_s))
        with stubs.lock:
            stubs.busy.remove(asked["name"])
        if gone or stubs.takes_s > timeout_s:
            raise WorkerError("hung", asked["name"], "no answer")
        return stubs.worked

    def give_up(self) -> None:
        self.gone.set()

    def part(self) -> None:
        pass

    def await_end(self, deadline: float) -> None:
        pass

    def kill(self) -> None:
        with self.stubs.lock:
            self.stubs.killed += 1


@pytest.fixture
def stubs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Stubs]:
    made = Stubs()
    monkeypatch.setattr(ahead, "Worker", made.hire)
    monkeypatch.setattr(ahead, "build_folder", lambda root: tmp_path)
    monkeypatch.setattr("common.python.run.eligibility.unmet", lambda required, machine: [])
    yield made
    assert not made.busy, "a worker outlived the compiling"


def h200(gpus: int = 1) -> Machine:
    return Machine("host", "Linux", "cpu", 16, 128.0, 1, [Gpu("H200", f"GPU-{n}", 90, 141.0) for n in range(gpus)])


def compiled(pairs: list[Pair], launch: Launch = ONE_HOST, limit_s: float = 9.0, deadline: float = 1e9) -> list[str]:
    """What was said."""
    heard: list[str] = []
    Ahead(ROOT, h200(8), None, 3, True, limit_s, deadline).compile(pairs, launch, heard.append)
    return heard


def pairs(*keys: str) -> list[Pair]:
    return [pair for pair in find_pairs(ROOT) if not keys or pair.key in keys]


def test_all_that_compiles_is_prepared_at_the_size_of_the_run(stubs: Stubs) -> None:
    [said] = compiled(pairs("ch09:softmax", "ch15:kv_cache", "ch07:transpose", "ch01:pinned_copy"))
    assert said.startswith("prepared 5 variants that compile, ahead of their pairs, in ")
    assert {(asked["baseline"], asked["module"], asked["size"], asked["chooses"]) for asked in stubs.asked} == {
        ("ch09.baseline_softmax", "ch09.optimized_softmax", "bench", False),
        ("ch09.baseline_softmax", "ch09.optimized_softmax__online", "bench", False),
        ("ch09.baseline_softmax", "ch09.peer_softmax__compile", "bench", True),
        ("ch15.baseline_kv_cache", "ch15.peer_kv_cache__compile", "bench", False),
        ("ch07.baseline_transpose", "ch07.peer_transpose__compile", "bench", True),
    }
    assert stubs.killed == 5


def test_pairs_about_compiling_are_left_to_compile_by_themselves(stubs: Stubs) -> None:
    assert [pair.key for pair in pairs() if teaches_compiling(pair)] == ["ch14:compile_block", "ch14:graph_breaks"]
    compiled(pairs())
    done = {asked["name"] for asked in stubs.asked}
    assert {"peer_depth_first_mlp__compile", "optimized_flex_document_mask", "optimized_decode_8b__int4"} <= done
    assert not any("graph_breaks" in name or "compile_block" in name for name in done)
    assert not any(asked["baseline"].startswith("ch04") for asked in stubs.asked), "ranks have several GPUs"
    assert len(stubs.asked) == len(done) > 40


def test_what_was_compiled_once_is_not_compiled_ahead_again_until_its_file_or_a_library_changes(
    stubs: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = pairs("ch09:softmax", "ch15:kv_cache")
    assert len(compiled(chosen)) == 1
    first = len(stubs.asked)
    assert compiled(chosen) == []
    assert len(stubs.asked) == first
    kernel, read = next(v.path for v in chosen[0].variants if v.role == "optimized"), Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read(path) + b"#" * (path == kernel))
    [said] = compiled(chosen)
    assert said.startswith("prepared 1 variants")
    monkeypatch.setattr(ahead, "versions", lambda: {"torch": "another"})
    compiled(chosen)
    assert len(stubs.asked) == 2 * first + 1


@pytest.mark.parametrize(("takes_s", "worked"), [(60.0, True), (0.02, False)], ids=["hung", "raised"])
def test_what_failed_is_tried_again(takes_s: float, worked: bool, stubs: Stubs) -> None:
    stubs.takes_s, stubs.worked = takes_s, worked
    [said] = compiled(pairs("ch09:softmax", "ch15:kv_cache"), limit_s=0.2)
    assert said.startswith("prepared 0 variants")
    stubs.takes_s, stubs.worked = 0.02, True
    [said] = compiled(pairs("ch09:softmax", "ch15:kv_cache"))
    assert said.startswith("prepared 4 variants")


def test_what_no_worker_can_be_started_for_keeps_nobody_else_from_it(stubs: Stubs) -> None:
    stubs.refused = "optimized_softmax__online"
    [said] = compiled(pairs("ch09:softmax", "ch15:kv_cache"))
    assert said.startswith("prepared 3 variants")


def test_where_no_notes_can_be_written_it_is_done_each_time(
    stubs: Stubs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(ahead, "build_folder", lambda root: tmp_path / "file")
    for _ in range(2):
        [said] = compiled(pairs("ch09:softmax", "ch15:kv_cache"))
        assert said.startswith("prepared 4 variants")


@pytest.mark.parametrize(
    ("text", "chooses"),
    [
        (b'mode="max-autotune-no-cudagraphs"', True),
        (b'options={"max_autotune": True}', True),
        (b"config.max_autotune_gemm = True", True),
        (b'options={"max_autotune_pointwise": True}', False),
    ],
)
def test_a_graph_holds_choices_where_products_are_tuned(text: bytes, chooses: bool) -> None:
    assert bool(ahead.CHOOSES.search(text)) == chooses


def test_a_single_variant_or_a_host_that_follows_gains_nothing(stubs: Stubs) -> None:
    assert compiled(pairs("ch15:kv_cache", "ch01:pinned_copy")) == []
    assert compiled(pairs(), Launch(nnodes=2, node_rank=1, rdzv_endpoint="host:1")) == []
    assert stubs.asked == []


def test_several_variants_of_one_pair_are_compiled_side_by_side_which_its_own_time_might_not_do_for(
    stubs: Stubs,
) -> None:
    stubs.takes_s = 0.2
    [said] = compiled(pairs("ch20:train_step_fp8"))
    assert said.startswith("prepared 3 variants")
    assert max(map(len, stubs.together)) == 3


@pytest.mark.parametrize("gib", [141.0, 80.0, 24.0])
def test_as_many_work_together_as_fit_into_the_memory_and_what_needs_most_comes_first(
    gib: float, stubs: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = Machine("host", "Linux", "cpu", 16, 128.0, 1, [Gpu("card", "GPU-0", 90, gib)])
    monkeypatch.setitem(globals(), "h200", lambda gpus: card)
    stubs.takes_s = 0.1
    compiled(pairs())
    needs = {v.name: max(GPU_GIB, PART * v.required.memory_gib) for pair in pairs() for v in pair.variants}
    assert max(sum(min(gib, needs[name]) for name in names) for names in stubs.together) <= gib
    assert max(2, min(8, int(gib / GPU_GIB)) // 2) <= max(map(len, stubs.together)) <= 8
    most = max(needs[asked["name"]] for asked in stubs.asked)
    assert most > GPU_GIB
    assert most in [needs[asked["name"]] for asked in stubs.asked[:8]], "by eight threads, whichever asks first"


def test_cores_say_how_many_variants_there_are_at_a_time() -> None:
    assert (jobs(h200()), jobs(h200(0))) == (8, 16)
    assert jobs(Machine("host", "Linux", "cpu", 1, 8.0, 1, [Gpu("small", "GPU-0", 90, 8.0)])) == 1


def test_what_hangs_is_given_up_and_the_suites_time_is_not_spent_on_it(stubs: Stubs) -> None:
    stubs.takes_s = 60.0
    started = time.monotonic()
    [said] = compiled(pairs("ch09:softmax", "ch15:kv_cache"), limit_s=0.3)
    assert said.startswith("prepared 0 variants")
    compiled(pairs(), deadline=time.monotonic() + 2.0)
    assert time.monotonic() - started < 0.3 + 2.0 * SHARE + 1.0
    assert all(limit <= 0.5 for limit in stubs.limits)
    assert 4 < len(stubs.limits) <= 4 + 8, "nothing is begun when the share is over"


def test_when_the_time_is_up_all_workers_are_ended(stubs: Stubs) -> None:
    stubs.takes_s = 60.0
    found = pairs()  # which takes longer on a busy host
    started = time.monotonic()
    with pytest.raises(SuiteTimeUp), alarm(started + 0.5, SuiteTimeUp("up")):
        compiled(found, limit_s=60.0)
    assert time.monotonic() - started < 3.0
    assert 0 < stubs.killed <= 8, "those that were at work; no more have begun"


def test_who_has_a_share_of_its_own_gets_that_of_the_time(stubs: Stubs) -> None:
    work = pairs("ch09:softmax")
    Ahead(ROOT, h200(), None, 3, True, 60.0, time.monotonic() + 40.0).compile(work, ONE_HOST, lambda line: None)
    Ahead(ROOT, h200(), "test", 3, True, 60.0, time.monotonic() + 40.0, share=1.0).compile(
        work, ONE_HOST, lambda line: None
    )
    assert max(stubs.limits[:3]) <= 40.0 * SHARE < 30.0 < min(stubs.limits[3:])
