"""How a session is run, and the one way in which it may end without a result."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Timer
from typing import Any

from common.python.discovery import Pair
from common.python.launch import ONE_HOST, Launch
from common.python.leaving import AT_ONCE, Leaving
from common.python.performance_targets import Peaks
from common.python.reserve import NOBODY, Reserve, Reserves, Script
from common.python.results import PairResult, Telemetry
from common.python.roster import Roster
from common.python.schedule import BUDGET_S, TRIALS
from common.python.telemetry import Monitor
from common.python.worker import Worker

TIME_UP = "the suite's time was up"
PATIENCE_S = 20.0  # a pair that compiles took up to 11.5 s to prepare on an H200's host, with empty caches
ROOM_BYTES = 8 << 30  # a context takes hundreds of MiB, and so do NCCL's buffers
Progress = Callable[[str, PairResult], None]


class SuiteTimeUp(Exception):
    """The time of the whole suite is over: nothing is said against the pair that was being measured."""


@dataclass(frozen=True)
class Settings:
    """How a session is run. Times in seconds; iterations and warmup, if given, fix the counts for each variant."""

    root: Path
    folder: Path  # of this pair's artifacts
    scratch: Path
    size: str
    seed: int
    device: str
    budget_s: float = BUDGET_S
    time_limit_s: float = 120.0
    suite_deadline: float = math.inf  # a monotonic time, at which the suite ends whatever its pairs do
    iterations: int | None = None
    warmup: int | None = None
    reproducible: bool = False
    cold_start: bool = False
    profile: bool = False
    peaks: Peaks | None = None
    monitor: Monitor | None = None
    further_monitors: tuple[Monitor, ...] = ()  # of the GPUs of further ranks, in their order
    launch: Launch = ONE_HOST
    progress: Progress = lambda phase, result: None
    prove_at: tuple[str, ...] = ("test",)  # sizes to prove at before anything is timed
    proven: str | None = None  # when an earlier run proved the pair there, where that is to stand
    ahead: Reserve = NOBODY  # this pair's worker, if it was started ahead
    reserve: Reserve | Reserves = NOBODY  # the next pairs', which must not be at work while anything is timed
    leaving: Leaving = AT_ONCE  # sees this pair's worker off; the last pair's must be gone by then

    def to_prove_at(self, timed: bool) -> tuple[str, ...]:
        """Sizes to prove at first; what is not `timed` after that has no other proof."""
        return () if timed and self.proven else self.prove_at

    def hire(self, pair: Pair, index: int = 0, fresh: bool = False) -> Worker:
        """Start a worker of this pair."""
        log, scratch = self.folder / "logs" / f"worker{index}.log", self.scratch / f"worker{index}"
        return Worker(self.root, scratch, log, self.for_worker(pair, index), fresh)

    def worker(self, pair: Pair, index: int, fresh: bool, deadline: float) -> Worker:
        """The one in reserve with this index, else another, once the last pair's has gone where memory is short.

        By `deadline`, a monotonic time, no more is waited for the one in reserve.
        """
        if (worker := self.ahead.take(index, deadline)) is not None:
            return worker
        if not self.has_room():
            self.leaving.settle()
        return self.hire(pair, index, fresh)

    def in_reserve(self, pair: Pair, roster: Roster) -> Reserve:
        """The workers of a pair that comes next, unless they are ranks, which hold several GPUs."""
        if pair.gpus > 1 or self.cold_start or self.launch.follows or not self.shared():
            return NOBODY
        fresh = pair.isolated and bool(roster.timed)
        return Reserve(pair.key, lambda index: self.hire(pair, index, fresh), self._scripts(pair, roster))

    def _scripts(self, pair: Pair, roster: Roster) -> list[Script]:
        """What a session will ask first of each of its workers; of those of an isolated pair one waits for another."""
        load: Script = {"baseline": roster.baseline_module, "size": self.size}
        if pair.isolated:
            loads = [load | {"modules": {name: module}} for name, module in roster.modules().items()]
            return [{"load": one, "names": [], "sizes": [], "trials": TRIALS} for one in loads]
        sizes = list(self.to_prove_at(timed=True))
        load |= {"modules": roster.modules()}
        return [{"load": load, "names": roster.everybody, "sizes": sizes, "trials": TRIALS}]

    def shared(self) -> bool:
        """Whether workers of several pairs may be on the devices."""
        return all(monitor.shared() for monitor in self._monitors())

    def has_room(self) -> bool:
        """Whether each GPU is known to have memory for contexts and what NCCL takes, beside whoever is on it."""
        free = [monitor.free_bytes() for monitor in self._monitors()]
        return bool(free) and all(found is not None and found >= ROOM_BYTES for found in free)

    def way_out(self) -> Leaving:
        """Who sees this pair's worker off: beside the next one's, if that may be."""
        at_once = self.launch.rdzv_endpoint is not None  # where the next pair's leader listens as well
        return AT_ONCE if at_once or not self.shared() else self.leaving

    def give_room(self) -> bool:
        """End the workers of the pairs before and after, whose contexts take memory; whether there were any."""
        return self.leaving.settle() | self.reserve.close()

    def make_way(self) -> None:
        """Wait until the last pair's worker is gone, and have the next ones' stand still."""
        self.leaving.settle()
        self.reserve.halt()

    @contextmanager
    def undisturbed(self, compiles: bool) -> Iterator[None]:
        """Have workers in reserve stand still in here, where the pair `compiles`, which may time kernels to choose one.

        They go on when that takes too long: one may have been stopped while it held the lock of a cache of compilers.
        """
        timer = Timer(PATIENCE_S, self.reserve.go_on)
        if compiles:
            self.reserve.halt()
            timer.start()
        try:
            yield
        finally:
            timer.cancel()
            if compiles:
                timer.join()

    def read_gpus(self, own: Callable[[], set[int]]) -> list[Telemetry]:
        """What NVML sees now on each GPU of the pair; `own` gives the processes of its session."""
        monitors = self._monitors()
        pids = own() | self.reserve.pids() if monitors else set()
        return [monitor.read(pids) for monitor in monitors]

    def _monitors(self) -> list[Monitor]:
        return [monitor for monitor in (self.monitor, *self.further_monitors) if monitor]

    def for_worker(self, pair: Pair, index: int) -> dict[str, Any]:
        """What a worker of this pair is told."""
        return {
            "seed": self.seed,
            "gpu": self.device != "cpu",
            "reproducible": self.reproducible,
            "ranks": self.launch.ranks_here(pair.gpus),
            "launch": asdict(self.launch),
            "run_id": f"{pair.key}, worker {index}",  # by which the launchers of several hosts find each other
        }
