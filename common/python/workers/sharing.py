"""Sessions side by side on one machine, a thread for each, of which one at a time has the machine to itself.

To import, compile, draw and prove is as right beside others, and 16 cores do it for several pairs at once. Whatever is
timed is timed alone: whoever is to be has the workers of all others stopped where they are (SIGSTOP), and what these
had enqueued is awaited; they go on when it is done.

Only the thread that holds the token runs. It lets go of the token while it waits for its workers, but not while it has
the machine to itself. So what sessions share needs no lock of its own, and nobody hires, asks or judges while somebody
is timed. Times in seconds.
"""

import itertools
import math
import queue
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, Thread, Timer
from typing import TypeVar

from common.python.workers.members import Crowded, Ended, Member, go_on, part_from

PATIENCE_S = 20.0  # of others, with a worker that times kernels: one of them may hold a lock that it waits for
LOOK_S = 0.002  # between two looks at whether another's workers have ended
HEED_S = 0.2  # within which the main thread heeds a signal, whichever thread the kernel has given it to
JOIN_S = 10.0  # for threads whose workers have been given up

T = TypeVar("T")


class Sharing:
    """The sessions that are at work."""

    def __init__(self) -> None:
        self.token = Lock()
        self.shares: list[Share] = []
        self.alone: Share | None = None
        self.alone_s = 0.0  # for which somebody had the machine to himself
        self.ended = self.in_vain = False
        self._since = time.monotonic()
        self._threads: list[Thread] = []
        self._at_work: set[int] = set()  # numbers of threads
        self._started = itertools.count()
        self._done: queue.SimpleQueue[tuple[object, BaseException | None]] = queue.SimpleQueue()

    def start(self, work: Callable[["Share"], T], lingers: bool = True) -> None:
        """Have a thread do it. `next` tells of it at once where its workers may linger, else when they are gone."""
        number = next(self._started)

        def perform() -> None:
            done: tuple[object, BaseException | None] = None, Ended()
            with Share(self) as share:
                try:
                    if not self.ended:
                        done = work(share), None
                except BaseException as error:  # whoever waits for this thread is to have it
                    done = None, error
                self._at_work.discard(number)
                if lingers:
                    self._done.put(done)
            if not lingers:
                self._done.put(done)

        self._at_work.add(number)
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        self._threads.append(Thread(target=perform, daemon=True))
        self._threads[-1].start()

    def next(self, deadline: float = math.inf) -> object:
        """What one of the threads has done, or raised; raises TimeoutError at `deadline`, a monotonic time."""
        while True:
            try:
                value, error = self._done.get(timeout=max(0.0, min(HEED_S, deadline - time.monotonic())))
            except queue.Empty:
                if time.monotonic() >= deadline:
                    raise TimeoutError from None
                continue
            if error is not None:
                raise error
            return value

    def close(self) -> None:
        """Wait until the last workers are gone; those still at work are given up."""
        self.ended = bool(self._at_work)
        until = time.monotonic() + JOIN_S
        while any(thread.is_alive() for thread in self._threads) and time.monotonic() < until:
            for share in list(self.shares) if self.ended else ():
                share.give_up()
            time.sleep(LOOK_S)

    def account(self, drained: bool = False, lost: bool = True) -> None:
        """Share out the time since this was last called: to whoever is alone, else in equal parts to who is at work.

        Where others' kernels `drained` meanwhile, all were; where these do not end, it is their time, and not `lost`.
        """
        now = time.monotonic()
        spent_s, self._since = now - self._since, now
        those = [self.alone] if self.alone and not drained else self.shares
        at_work = [share for share in those if share.doing and (lost or share is not self.alone)]
        for share in at_work:
            share.seconds[share.doing] = share.seconds.get(share.doing, 0.0) + spent_s / len(at_work)
        if self.alone and lost:
            self.alone_s += spent_s
            self.alone.alone_s += spent_s

    def who(self) -> list[str]:
        """Which variants are at work; before its first, a worker's is the workload."""
        return sorted({worker.state()[0] for share in list(self.shares) for worker in list(share.workers)})

    def pids(self) -> set[int]:
        """Of all workers, which may be seen on the GPU."""
        return set().union(*(worker.pids() for share in self.shares for worker in share.workers))


class Share:
    """One session's part: the context in which it is at work. Its thread alone uses it, but for `give_up`."""

    def __init__(self, sharing: Sharing | None = None) -> None:
        """With no `sharing` it is by itself."""
        self._sharing = sharing or Sharing()
        self.workers: list[Member] = []
        self._parting: list[Member] = []
        self.seconds: dict[str, float] = {}  # by phase, of its part of the time that all take
        self.doing = ""  # the phase, if it is in one
        self.at_work = True  # until it waits for nothing but the end of its workers
        self.beside = False  # whether another session has been at work beside this one
        self.alone_s = self.waited_s = 0.0  # for which it had the machine to itself, or waited for others' kernels
        self.gib: float | None = None  # of a GPU's memory, that its workers held at most

    def __enter__(self) -> "Share":
        self._sharing.token.acquire()
        self._sharing.account()
        for share in (share for share in self._sharing.shares if share.at_work):
            self.beside = share.beside = True
        self._sharing.shares.append(self)
        return self

    def __exit__(self, *raised: object) -> None:
        self._sharing.account()
        self.see_off()
        self.at_work = False
        try:
            with self._waiting():
                part_from(self._parting, tell=False)
        finally:
            self._sharing.shares.remove(self)
            self._sharing.token.release()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """What is inside is counted as this phase's."""
        self._sharing.account()
        before, self.doing = self.doing, name
        try:
            yield
        finally:
            self._sharing.account()
            self.doing = before

    @property
    def lost_s(self) -> float:
        """For which it has waited for others: what is added to it meanwhile, this one has lost."""
        return self._sharing.alone_s - self.alone_s + self.waited_s

    @property
    def now_s(self) -> float:
        """A clock that stands still meanwhile."""
        return time.monotonic() - self.lost_s

    def hired(self, worker: Member) -> None:
        """Have it stopped with the others, and hear it as this one does. Raises Ended, where no more are wanted."""
        worker.share = self
        self.workers.append(worker)
        if self._sharing.ended:
            raise Ended

    def hear(self, listen: Callable[[float], T], timeout_s: float) -> T:
        """What `listen` gives, which waits so long at most and then raises TimeoutError; meanwhile others go on.

        The time in which they have had the machine to themselves does not count.
        """
        deadline, lost_s = time.monotonic() + timeout_s, self.lost_s
        while True:
            left_s = deadline + self.lost_s - lost_s - time.monotonic()
            try:
                with self._waiting():
                    return listen(max(0.0, left_s))
            except TimeoutError:
                if time.monotonic() >= deadline + self.lost_s - lost_s:
                    raise

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        if self._sharing.alone is self:
            yield
            return
        self._sharing.token.release()
        try:
            yield
        finally:
            self._sharing.token.acquire()

    @contextmanager
    def alone(self, patience_s: float = math.inf, worker: Member | None = None) -> Iterator[bool]:
        """Have the machine to itself inside, which gives whether others had been at work: their kernels may still be.

        They go on all the same after `patience_s`: one may have been stopped while it held a lock that is waited for.
        Where it is for a `worker`, its own others stand still as well.
        """
        if self._sharing.alone is self:
            yield False
            return
        while self.settle():  # what ends cannot be stopped, and another may have begun to end meanwhile
            pass
        stopped = [one for share in self._others() for one in share.workers]
        stopped += [one for one in self.workers if worker not in (None, one)]
        self._sharing.account()
        self._sharing.alone = self
        timer = Timer(patience_s, go_on, [stopped]) if stopped and patience_s < math.inf else None
        try:
            for one in stopped:
                one.stop()
            for one in stopped:
                one.stopped()
            if timer:
                timer.start()
            yield bool(stopped)
        finally:
            if timer and timer.ident:
                timer.cancel()
                timer.join()
            go_on(stopped)
            self._sharing.account()
            self._sharing.alone = None

    def drained(self, done: bool, waits: bool) -> None:
        """What others had enqueued has been awaited since this one began to have the machine to itself.

        It is `done`, or not; then this one `waits` for the session whose it is, or goes on all the same.
        """
        self._sharing.in_vain &= not done
        self._sharing.account(drained=True, lost=not waits)

    def may_end(self, patience_s: float) -> bool:
        """Whether what others have on a GPU may end with their sessions; not where one has waited in vain for that."""
        self._sharing.in_vain |= patience_s <= 0
        return self.company() > 1 and not self._sharing.in_vain

    def wait(self, seconds: float, since_s: float) -> float:
        """Have others go on for so long; gives what has passed `since_s`, by its clock, all of which is lost."""
        with self.phase(""), self._waiting():
            time.sleep(seconds)
        self.waited_s += (waited_s := self.now_s - since_s)
        return waited_s

    def see_off(self) -> None:
        """Tell its workers to end; they are waited for when the session has ended."""
        for worker in self.workers:
            worker.part()
        self._parting, self.workers = [*self._parting, *self.workers], []

    def replace(self) -> None:
        """End its workers, and return when they are gone: their memory is for others of its own."""
        workers, self.workers = self.workers, []
        part_from(workers)

    def settle(self) -> bool:
        """Return when all workers that have been told to end are gone; whether there were any."""
        if not self._parting and all(share.at_work for share in self._others()):
            return False
        with self._waiting():
            part_from(self._parting, tell=False)
            while any(not share.at_work for share in self._others()):
                time.sleep(LOOK_S)
        self._parting = []
        return True

    def find_room(self) -> bool:
        """Whether there may be more memory by now, since workers of other pairs have gone.

        Raises Crowded where others are at work, which may need it themselves.
        """
        if any(share.at_work for share in self._others()):
            raise Crowded
        return self.settle()

    def company(self) -> int:
        """How many sessions are at work, this one included."""
        return sum(share.at_work for share in self._sharing.shares)

    def pids(self) -> set[int]:
        return self._sharing.pids()

    def give_up(self) -> None:
        """Have its workers end, for whom its thread may be waiting: that hears that they died. Any thread may ask."""
        for worker in list(self.workers):
            worker.give_up()

    def _others(self) -> list["Share"]:
        return [share for share in list(self._sharing.shares) if share is not self]
