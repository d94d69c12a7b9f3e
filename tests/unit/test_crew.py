"""Several workers share what one would have had."""

import math
from typing import Any

import pytest

from common.python.workers.process import Worker
from common.python.workers.sharing import Share, Sharing
from common.python.workers.worker_pool import Crew, TurnCrew


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


class Clock:
    """Time that passes where somebody sleeps, or is told to look."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0, "others would not go on meanwhile"
        self.now += seconds


class Beside:
    """A crew with 60 s, beside another session's worker, whose kernels end with so many looks of it, or never."""

    def __init__(self, looks: float, monkeypatch: pytest.MonkeyPatch, company: bool = True) -> None:
        self.looks, self.clock, self.timeouts, self.log = looks, Clock(), list[float](), list[str]()
        monkeypatch.setattr("common.python.workers.sharing.time", self.clock)
        sharing = Sharing()
        self.share, self.other = Share(sharing), Share(sharing)
        self.other.doing = "prepare"
        if company:
            self.other.workers.append(Still(self.log))  # type: ignore[arg-type]
            sharing.shares.append(self.other)
        self.share.__enter__()
        self.crew = Crew(self.hire, {"a": "ch07.baseline_x"}, False, 60.0, LOAD, self.share)

    def hire(self, index: int, fresh: bool) -> Worker:
        beside = self

        class Looks(Stub):
            def call(self, command: str, timeout_s: float, **arguments: Any) -> Any:
                assert command == "await_device"
                beside.timeouts.append(timeout_s)
                beside.looks -= 1
                beside.clock.sleep(arguments["least_s"] or 3.0)
                return beside.looks <= 0

        return Looks([])  # type: ignore[return-value]

    def has_it_alone(self, crowded: bool = False) -> bool:
        """What the crew says of the machine, for which it has warmed up for a second then."""
        with self.share.phase("warm-up"), self.crew.alone(lambda: crowded) as done:
            assert self.log[-1:] == ["stopped"] * bool(self.other.workers)
            self.clock.sleep(1.0)
            return done


class Still:
    """A worker that notes when it has to stand still."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def stop(self) -> None: ...

    def stopped(self) -> None:
        self.log.append("stopped")

    def go_on(self) -> None:
        self.log.append("goes on")


LOAD = {"baseline": "ch07.baseline_x", "size": "test"}


def test_by_itself_a_crew_looks_for_nobodys_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    beside = Beside(99, monkeypatch, company=False)
    assert beside.has_it_alone()
    assert (beside.timeouts, beside.crew.left_s()) == ([], 59.0)


@pytest.mark.parametrize("crowded", [False, True])
def test_the_look_that_ends_is_of_the_crews_time_and_others_have_lost_it(
    crowded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that nobody waits behind ends it as well: who is no session's will not go."""
    beside = Beside(99 if crowded else 1, monkeypatch)
    assert beside.has_it_alone(crowded) is not crowded
    assert (beside.log, beside.timeouts) == (["stopped", "goes on"], [70.0])
    assert (beside.crew.left_s(), beside.other.lost_s) == (56.0, 4.0)
    assert (beside.share.seconds["warm-up"], beside.other.seconds["prepare"]) == (2.5, 1.5), "each half of the look"


def test_a_look_in_vain_and_the_wait_behind_it_are_the_time_of_the_other_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two of them, of 3 and 0.5 s, each with two seconds behind it in which the other goes on."""
    beside = Beside(3, monkeypatch)
    assert beside.has_it_alone()
    assert beside.log == ["stopped", "goes on"] * 3
    assert beside.timeouts == [70.0] * 3, "none of these looks is what the crew has its limit for"
    assert (beside.crew.left_s(), beside.share.lost_s, beside.other.lost_s) == (58.5, 7.5, 1.5)
    assert (beside.share.seconds["warm-up"], beside.other.seconds["prepare"]) == (1.25, 7.75)


def test_a_crew_waits_as_long_as_its_limit_in_all_and_whoever_sees_the_gpu_quiet_begins_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    beside = Beside(math.inf, monkeypatch)
    assert not beside.has_it_alone()
    assert beside.share.lost_s == pytest.approx(60.0, abs=2.5)
    looks = len(beside.timeouts)
    assert not beside.has_it_alone()
    assert len(beside.timeouts) == looks + 1, "nobody waits again for what one has waited for in vain"
    beside.looks = 1
    assert beside.has_it_alone()
    beside.looks = 3
    assert not beside.has_it_alone(), "another would wait; this one has had its time"
    assert Beside(3, monkeypatch).has_it_alone()
