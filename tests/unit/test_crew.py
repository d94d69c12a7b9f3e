"""Several workers share what one would have had."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from common.python.crew import Crew, TurnCrew
from common.python.sharing import Share
from common.python.worker import Worker


class Stub:
    """A worker that notes what it is asked."""

    def __init__(self, log: list[str]) -> None:
        self.heard: list[tuple[str, dict[str, Any]]] = []
        self.log = log

    def ask(self, command: str, **arguments: Any) -> None:
        self.heard.append((command, arguments))
        self.log.append("asked")

    def answer(self, timeout_s: float) -> Any:
        self.log.append("answered")
        command, arguments = self.heard[-1]
        if command in ("prepare", "prove", "why"):
            return {}
        if command == "most_gib":
            return 1.5
        return {"failures": {}, "started": {}} if command == "load" else 4 + len(arguments["names"])

    def call(self, command: str, timeout_s: float, **arguments: Any) -> Any:
        self.ask(command, **arguments)
        return self.answer(timeout_s)


@pytest.mark.parametrize(("apart", "each_s"), [(False, 3.0), (True, 1.0)])
def test_workers_load_side_by_side_and_warm_up_one_after_the_other_within_one_limit(apart: bool, each_s: float) -> None:
    stubs, log = list[Stub](), list[str]()

    def hire(index: int, fresh: bool) -> Worker:
        stubs.append(Stub(log))
        return stubs[-1]  # type: ignore[return-value]

    modules = {"baseline_x": "ch07.baseline_x", "optimized_x": "ch07.optimized_x", "control": "ch07.baseline_x"}
    crew = Crew(hire, modules, apart, 60.0, {"baseline": "ch07.baseline_x", "size": "test"}, Share())
    assert log == ["asked"] * len(stubs) + ["answered"] * len(stubs)
    assert crew.warm(list(modules), 3.0, None) == (5 if apart else 7)
    limits = [arguments["limit_s"] for stub in stubs for command, arguments in stub.heard if command == "warm"]
    assert limits == [each_s] * (3 if apart else 1)
    assert crew.most_gib() == 1.5 * len(stubs)


def halves(apart: bool, count: int, enough_s: float | None) -> list[list[str]]:
    """Whom a block of a b c c b a asked for what, where each step takes 0.1 s."""
    asked = list[list[str]]()

    class Timed(Stub):
        def answer(self, timeout_s: float) -> Any:
            command, arguments = self.heard[-1]
            if command != "block":
                return {"failures": {}, "started": {}}
            assert arguments["enough_s"] == enough_s
            asked.append(arguments["order"])
            return {"samples": [{"variant": name, "wall_us": 1e5} for name in arguments["order"]]}

    def hire(index: int, fresh: bool) -> Worker:
        return Timed([])  # type: ignore[return-value]

    modules = dict.fromkeys("abc", "ch07.baseline_x")
    crew = Crew(hire, modules, apart, 60.0, {"baseline": "ch07.baseline_x", "size": "test"}, Share())
    told = crew.block([*"abccba"], count, [], enough_s)
    assert [sample["variant"] for sample in told["samples"]] == [name for order in asked for name in order]
    return asked


def test_a_block_ends_at_its_middle_where_that_took_long() -> None:
    whole = [["a"], ["b"], ["c", "c"], ["b"], ["a"]]
    assert halves(True, 1, None) == whole
    assert halves(True, 1, 0.41) == whole, "though all of it takes longer"
    assert halves(True, 1, 0.39) == whole[:3]
    assert halves(True, 2, 0.41) == whole[:3]
    assert halves(False, 1, 0.2) == [[*"abccba"]], "a worker that holds all halves it itself"


@pytest.mark.parametrize("beside", [True, False])
def test_variants_with_a_worker_each_prepare_side_by_side_where_other_sessions_are_at_work(beside: bool) -> None:
    log, stubs = list[str](), list[Stub]()

    def hire(index: int, fresh: bool) -> Worker:
        stubs.append(Stub(log))
        return stubs[-1]  # type: ignore[return-value]

    share = Share()
    share.beside = beside
    modules = dict.fromkeys("abc", "ch07.baseline_x")
    crew = Crew(hire, modules, True, 60.0, {"baseline": "ch07.baseline_x", "size": "test"}, share)
    for command, together in (("prepare", beside), ("prove", True), ("why", True)):
        log.clear()
        crew.each(command, [*"abc"])
        assert log == (["asked"] * 3 + ["answered"] * 3 if together else ["asked", "answered"] * 3), command


def test_every_turn_warms_up_as_long_as_the_first_round_does() -> None:
    def hire(index: int, fresh: bool) -> Worker:
        raise AssertionError("nobody is hired before a turn")

    load = {"baseline": "ch07.baseline_x", "size": "test"}
    crew = TurnCrew(hire, {"baseline_x": "ch07.baseline_x"}, 60.0, load, Share())
    for limit_s in (3.0, 0.0):
        assert crew.warm(["baseline_x"], limit_s, None) == 1
    assert crew._warm["limit_s"] == 3.0
    assert crew.most_gib() is None


def test_what_others_had_the_machine_to_themselves_for_is_not_of_a_crews_limit() -> None:
    class Lost(Share):
        lost = 7.0  # before this crew began

        @property
        def lost_s(self) -> float:
            return self.lost

    def hire(index: int, fresh: bool) -> Worker:
        raise AssertionError("there is nobody to hire")

    share = Lost()
    crew = Crew(hire, {}, False, 60.0, {"baseline": "ch07.baseline_x", "size": "test"}, share)
    assert crew.left_s() == pytest.approx(60.0, abs=5.0)
    share.lost += 100.0
    assert crew.left_s() == pytest.approx(160.0, abs=5.0)
    assert crew.in_turn().left_s() == pytest.approx(160.0, abs=5.0)


def test_while_others_kernels_are_awaited_it_is_not_one_session_alone_that_is_at_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    share, log = Share(), list[str]()
    monkeypatch.setattr(share, "drained", lambda done: log.append(f"drained {done}"))

    class Awaits(Stub):
        def call(self, command: str, timeout_s: float, **arguments: Any) -> Any:
            self.log.append(command)
            return False

    def hire(index: int, fresh: bool) -> Worker:
        return Awaits(log)  # type: ignore[return-value]

    crew = Crew(hire, {"a": "ch07.baseline_x"}, False, 60.0, {"baseline": "ch07.baseline_x", "size": "test"}, share)
    log.clear()
    assert not crew.await_device()
    assert log == ["await_device", "drained False"]


class Company(Share):
    """Beside others, whose kernels end after so many looks, or never; a second passes with each."""

    def __init__(self, looks: float, others: bool = True) -> None:
        super().__init__()
        self.looks, self.others, self.log, self.now = looks, others, list[str](), 0.0

    @contextmanager
    def alone(self, *how: Any) -> Iterator[bool]:
        self.log.append("alone")
        yield self.others
        self.log.append("left")

    def drained(self, done: bool) -> None:
        self.looks -= 1

    def may_end(self, until: float) -> bool:
        return self.now <= until

    def hear(self, listen: Callable[[float], Any], timeout_s: float) -> Any:
        assert (listen, self.doing) == (time.sleep, ""), "others go on, and it is no time of this session"
        self.log.append("waits")
        self.now += 1.0

    @property
    def lost_s(self) -> float:
        return 0.0


def looked(share: Company, crowded: bool, monkeypatch: pytest.MonkeyPatch) -> tuple[bool, list[str], float]:
    """What a crew with a limit of 9 s says of the machine, what its share heard until then, and what it has left."""

    class Awaits(Stub):
        def call(self, command: str, timeout_s: float, **arguments: Any) -> Any:
            return share.looks <= 1

    def hire(index: int, fresh: bool) -> Worker:
        return Awaits([])  # type: ignore[return-value]

    monkeypatch.setattr("common.python.crew.time.monotonic", lambda: share.now)
    crew = Crew(hire, {"a": "ch07.baseline_x"}, False, 9.0, {"baseline": "ch07.baseline_x", "size": "test"}, share)
    share.doing = "warm-up"
    with crew.alone(lambda: crowded) as done:
        assert share.doing == "warm-up"
        return done, [*share.log], crew.left_s()


def test_what_others_sessions_have_on_the_gpu_is_awaited_while_they_go_on_and_takes_no_time_of_ones_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    once, again = ["alone"], ["alone", "left", "waits"]
    assert looked(Company(99, others=False), False, monkeypatch) == (True, once, 9.0)
    assert looked(Company(1), False, monkeypatch) == (True, once, 9.0)
    assert looked(Company(3), False, monkeypatch) == (True, [*again, *again, "alone"], 9.0)
    assert looked(Company(math.inf), True, monkeypatch) == (False, once, 9.0), "who is no session's will not end"
    assert looked(Company(math.inf), False, monkeypatch) == (False, [*again * 10, "alone"], 9.0), "as long as a limit"
