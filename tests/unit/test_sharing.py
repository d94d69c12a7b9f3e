"""Whoever has the machine to himself is alone there: no other worker and no other thread runs, and none is lost."""

import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from common.python.workers.members import BY_ITSELF, Crowded, Ended
from common.python.workers.sharing import Share, Sharing

SOON = 10.0


@dataclass(eq=False)
class Fake:
    """As much of a worker as a share has to do with, and what it was told, in order."""

    name: str = "optimized_a"
    told: list[str] = field(default_factory=list)
    takes: float = 0.0  # to end, in seconds
    on_stop: Callable[[], None] = lambda: None

    def stop(self) -> None:
        self.on_stop()
        self.told.append("stop")

    def stopped(self) -> None:
        self.told.append("stopped")

    def go_on(self) -> None:
        self.told.append("go on")

    def part(self) -> None:
        self.told.append("part")

    def await_end(self, deadline: float) -> None:
        time.sleep(self.takes)
        self.told.append("await end")

    def give_up(self) -> None:
        self.told.append("give up")

    def kill(self) -> None:
        self.told.append("kill")

    def pids(self) -> set[int]:
        return {id(self)}

    def state(self) -> tuple[str, str]:
        return self.name, "proof"


def idle(until: threading.Event) -> Callable[[float], str]:
    """An answer that comes when the event is set."""

    def listen(timeout_s: float) -> str:
        if not until.wait(min(timeout_s, SOON)):
            raise TimeoutError
        return "answer"

    return listen


def at_work(sharing: Sharing, worker: Fake, until: threading.Event, **how: bool) -> threading.Event:
    """Another session, which waits for its worker until the event; the event that is given says that it does."""
    begun = threading.Event()

    def work(share: Share) -> str:
        share.hired(worker)

        def listen(timeout_s: float) -> str:
            begun.set()
            return idle(until)(timeout_s)

        with share.phase("proof"):
            share.hear(listen, SOON)
        return worker.name

    sharing.start(work, **how)
    assert begun.wait(SOON)
    return begun


def test_all_others_stand_still_while_one_has_the_machine_and_go_on_behind_it() -> None:
    sharing, done, other = Sharing(), threading.Event(), Fake()
    at_work(sharing, other, done)
    own = Fake()
    with Share(sharing) as share:
        share.hired(own)
        with share.alone() as others:
            assert others
            assert other.told == ["stop", "stopped"]
            done.set()  # its worker's answer is there, but nobody reads it
            share.hear(lambda timeout_s: time.sleep(0.05), SOON)
            assert sharing.alone is share
            with pytest.raises(TimeoutError):
                sharing.next(time.monotonic() + 0.05)
            with share.alone() as again:
                assert not again
        assert other.told == ["stop", "stopped", "go on"]
        assert "stop" not in own.told
    assert sharing.next() == "optimized_a"
    sharing.close()


def test_where_one_worker_is_to_have_the_machine_the_others_of_its_session_stand_still_as_well() -> None:
    own, sibling = Fake(), Fake()
    with Share() as share:
        share.hired(own)
        share.hired(sibling)
        with share.alone(SOON, own) as others:
            assert others
            assert (own.told, sibling.told) == ([], ["stop", "stopped"])
        assert (own.told, sibling.told) == ([], ["stop", "stopped", "go on"])
        with share.alone() as others:
            assert not others
        assert len(sibling.told) == 3, "what a session times alone is the work of all its workers"


def test_they_go_on_where_what_is_inside_fails_or_one_cannot_be_stopped() -> None:
    def breaks() -> None:
        raise OSError("no")

    for on_stop in (lambda: None, breaks):
        sharing, done = Sharing(), threading.Event()
        other = Fake(on_stop=on_stop)
        at_work(sharing, other, done)
        with Share(sharing) as share, pytest.raises(OSError, match="no"), share.alone():
            raise OSError("no")
        assert other.told[-1] == "go on"
        assert sharing.alone is None
        done.set()
        sharing.next()
        sharing.close()


def test_they_go_on_all_the_same_where_patience_has_an_end() -> None:
    sharing, done, other = Sharing(), threading.Event(), Fake()
    at_work(sharing, other, done)
    with Share(sharing) as share:
        with share.alone(patience_s=0.02):
            time.sleep(0.2)
            assert other.told == ["stop", "stopped", "go on"]
        done.set()
    sharing.next()
    sharing.close()


def test_one_alone_stops_nobody_and_says_so() -> None:
    with Share() as share:
        share.hired(worker := Fake())
        with share.alone() as others:
            assert not others
    assert worker.told == ["part", "await end", "kill"]


def test_what_others_had_the_machine_for_does_not_count_as_time_to_answer() -> None:
    sharing, listening, given = Sharing(), threading.Event(), threading.Event()

    def work(share: Share) -> str:
        def listen(timeout_s: float) -> str:
            listening.set()
            time.sleep(0.03)
            if given.is_set():
                return "answer"
            raise TimeoutError

        with share.phase("proof"):
            return share.hear(listen, 0.2)

    sharing.start(work)
    assert listening.wait(SOON)
    with Share(sharing) as share:
        with share.alone():
            time.sleep(0.5)
        given.set()
    assert sharing.next() == "answer"

    sharing.start(lambda share: share.hear(idle(threading.Event()), 0.1))
    with pytest.raises(TimeoutError):
        sharing.next(time.monotonic() + SOON)
    sharing.close()


def test_only_who_holds_the_token_runs() -> None:
    sharing, running, most = Sharing(), list[int](), list[int]()

    def work(share: Share) -> None:
        for _ in range(20):
            running.append(1)
            most.append(len(running))
            time.sleep(0.001)
            running.pop()
            share.hear(lambda timeout_s: time.sleep(0.001), SOON)

    for _ in range(4):
        sharing.start(work)
    for _ in range(4):
        sharing.next(time.monotonic() + SOON)
    assert set(most) == {1}
    sharing.close()


def test_seconds_are_parts_of_the_time_that_all_take() -> None:
    sharing, done, began = Sharing(), threading.Event(), time.monotonic()
    at_work(sharing, Fake(), done)
    other = sharing.shares[0]
    with Share(sharing) as share:
        with share.phase("prepare"):
            share.hear(lambda timeout_s: time.sleep(0.2), SOON)
        with share.phase("samples"), share.alone():
            time.sleep(0.2)
        took = time.monotonic() - began
    assert share.seconds["prepare"] == pytest.approx(0.1, abs=0.06)
    assert share.seconds["samples"] == pytest.approx(0.2, abs=0.05)
    assert sum(share.seconds.values()) + sum(other.seconds.values()) == pytest.approx(took, abs=0.1)
    assert other.lost_s == pytest.approx(0.2, abs=0.05)
    assert share.lost_s == pytest.approx(0.0, abs=0.05)
    done.set()
    sharing.next()
    sharing.close()


@pytest.mark.parametrize(("done_there", "lost_s"), [(True, 0.3), (False, 0.1)])
def test_while_what_others_had_enqueued_is_awaited_all_are_at_work_and_lose_the_time_unless_in_vain(
    done_there: bool, lost_s: float
) -> None:
    sharing, done = Sharing(), threading.Event()
    at_work(sharing, Fake(), done)
    other = sharing.shares[0]
    with Share(sharing) as share, share.phase("warm-up"), share.alone():
        time.sleep(0.2)
        share.drained(done_there, waits=not done_there)
        time.sleep(0.1)
    ours_s = 0.2 if done_there else 0.1  # half of the first part, or none of it, and the second
    assert share.seconds["warm-up"] == pytest.approx(ours_s, abs=0.05)
    assert sum(other.seconds.values()) == pytest.approx(0.3 - ours_s, abs=0.05)
    assert other.lost_s == pytest.approx(lost_s, abs=0.05)
    done.set()
    sharing.next()
    sharing.close()


def test_what_others_have_on_the_gpu_may_end_with_them_until_one_has_awaited_it_in_vain() -> None:
    sharing, done = Sharing(), threading.Event()
    at_work(sharing, Fake(), done)
    with Share(sharing) as share:
        assert share.may_end(60.0)
        assert not share.may_end(0.0)
        assert not share.may_end(60.0), "nobody tries again what was in vain"
        share.drained(done=False, waits=False)
        assert not share.may_end(60.0)
        share.drained(done=True, waits=False)
        assert share.may_end(60.0), "which it is not for ever"
        done.set()
    sharing.next()
    sharing.close()
    with Share() as alone:
        assert not alone.may_end(60.0), "there is nobody who could end"


def test_whoever_is_beside_another_knows_it_afterwards() -> None:
    sharing, done = Sharing(), threading.Event()
    at_work(sharing, Fake(), done)
    first = sharing.shares[0]
    assert not first.beside
    with Share(sharing) as share:
        assert first.beside
        assert share.beside
        assert share.company() == 2
        with pytest.raises(Crowded):
            share.find_room()
        done.set()
    sharing.next()
    sharing.close()
    with Share(sharing) as later:
        assert not later.beside
        assert later.company() == 1
        assert not later.find_room()


def test_what_ends_is_waited_for_before_anybody_has_the_machine_and_is_room() -> None:
    for begin in (lambda share: share.alone(), lambda share: share.find_room()):
        sharing, done, other = Sharing(), threading.Event(), Fake(takes=0.2)
        at_work(sharing, other, done)
        done.set()
        assert sharing.next() == "optimized_a"
        with Share(sharing) as share, ExitStack() as stack:
            assert other.told[-1] != "kill"
            found = begin(share)
            found if isinstance(found, bool) else stack.enter_context(found)
            assert other.told == ["part", "await end", "kill"]
            assert found is not False
        sharing.close()


def test_the_next_may_begin_while_workers_end_unless_it_is_told_not_to() -> None:
    for lingers in (True, False):
        sharing, done, other = Sharing(), threading.Event(), Fake(takes=0.2)
        at_work(sharing, other, done, lingers=lingers)
        done.set()
        sharing.next()
        assert (other.told[-1:] == ["kill"]) is not lingers
        sharing.close()
        assert other.told[-1] == "kill"


def test_closing_gives_up_whoever_is_at_work_and_lets_nobody_begin() -> None:
    sharing, ended = Sharing(), threading.Event()
    other = Fake()
    other.give_up = ended.set  # type: ignore[method-assign]
    at_work(sharing, other, ended)
    late: list[str] = []
    with sharing.token:
        sharing.start(lambda share: late.append("began"))
        sharing.ended = True
    closing = threading.Thread(target=sharing.close)
    closing.start()
    closing.join(SOON)
    assert not closing.is_alive()
    assert ended.is_set()
    assert late == []
    assert other.told[-1] == "kill"
    assert sharing.shares == []


def test_one_that_is_hired_when_all_are_told_to_end_is_ended() -> None:
    sharing, worker = Sharing(), Fake()
    with Share(sharing) as share:
        sharing.ended = True
        with pytest.raises(Ended):
            share.hired(worker)
    assert worker.told == ["part", "await end", "kill"]


def test_what_a_thread_raises_is_raised_where_it_is_waited_for() -> None:
    def breaks(share: Share) -> None:
        raise KeyboardInterrupt

    sharing = Sharing()
    sharing.start(breaks)
    with pytest.raises(KeyboardInterrupt):
        sharing.next(time.monotonic() + SOON)
    with pytest.raises(TimeoutError):
        sharing.next(time.monotonic() + 0.01)
    sharing.close()


def test_a_signal_that_the_kernel_gives_to_another_thread_is_heeded_all_the_same() -> None:
    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    other = threading.Thread(target=time.sleep, args=(1.0,))
    other.start()
    assert other.ident is not None
    before, began = signal.signal(signal.SIGUSR2, interrupt), time.monotonic()
    later = threading.Timer(0.1, signal.pthread_kill, (other.ident, signal.SIGUSR2))
    later.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            Sharing().next(began + 5.0)
    finally:
        signal.signal(signal.SIGUSR2, before)
        later.join()
        other.join()
    assert time.monotonic() - began < 3.0


def test_workers_that_are_replaced_are_gone_at_once() -> None:
    with Share() as share:
        share.hired(worker := Fake())
        share.replace()
        assert worker.told == ["part", "await end", "kill"]
        assert share.workers == []
    assert worker.told.count("kill") == 1


def test_own_workers_that_were_told_to_end_are_gone_once_that_is_settled() -> None:
    with Share() as share:
        assert not share.settle()
        share.hired(worker := Fake())
        share.see_off()
        assert worker.told == ["part"]
        assert share.settle()
        assert worker.told == ["part", "await end", "kill"]
        assert not share.settle()


def test_one_that_cannot_be_waited_for_is_killed_like_the_others() -> None:
    def interrupt(deadline: float) -> None:
        raise KeyboardInterrupt

    first, second = Fake(), Fake()
    first.await_end = interrupt  # type: ignore[method-assign]
    share = Share()
    share.workers = [first, second]
    with pytest.raises(KeyboardInterrupt), share:
        pass
    assert (first.told[-1], second.told[-1]) == ("kill", "kill")


def test_who_is_at_work_and_whose_processes_those_are() -> None:
    sharing, done, first, second = Sharing(), threading.Event(), Fake("optimized_b"), Fake("baseline_a")
    at_work(sharing, first, done)
    at_work(sharing, second, done)
    assert sharing.who() == ["baseline_a", "optimized_b"]
    assert sharing.pids() == {id(first), id(second)}
    done.set()
    sharing.next()
    sharing.next()
    sharing.close()
    assert sharing.who() == []


def test_a_worker_of_no_session_waits_for_nobody() -> None:
    assert BY_ITSELF.hear(lambda timeout_s: timeout_s, 3.0) == 3.0
    with BY_ITSELF.alone() as others:
        assert not others
