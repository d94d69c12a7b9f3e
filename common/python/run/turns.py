"""Which pairs of a suite are at work side by side, and whose turn is next."""

import copy
import heapq
import math
from collections.abc import Sequence

from common.python.base.machine import Machine
from common.python.corpus.discovery import Pair
from common.python.run.eligibility import chosen_size
from common.python.run.last_run import LastRun, LastRuns
from common.python.run.options import Options
from common.python.run.probe import compiles
from common.python.timing.telemetry import Monitor
from common.python.workers.launch import ONE_HOST

MOST = 8  # sessions side by side, as long as each has so many cores and GiB of the host's and each GPU's memory
CORES, HOST_GIB, GPU_GIB = 2, 8.0, 10.0
LARGE = 1 / 3  # of the memory


def places(machine: Machine) -> int:
    """How many sessions a machine has room for."""
    rooms = [machine.cores / CORES, machine.memory_gib / HOST_GIB, *(gpu.memory_gib / GPU_GIB for gpu in machine.gpus)]
    return max(1, min(MOST, int(min(rooms))))


class Turns:
    """The pairs that are to be run, and those that are at work."""

    def __init__(self, pairs: Sequence[Pair], options: Options, machine: Machine) -> None:
        """The longest are first: at the end of a suite one would have nobody beside it.

        So would one that takes a third of the memory or more, for which there may be no room before: it begins before
        all others, unless two such leave no room for a longer one, so that the suite would last longer. Behind such are
        those that have not been run here, as long as they may be: first what is large, then what the host's clock
        times, then what compiles or has own interpreters. Whoever is to be by itself begins when nobody else is left.
        """
        shared = all(monitor.shared() for gpu in machine.gpus if (monitor := Monitor.open(gpu.uuid)))
        one = options.cold_start or options.profile or options.launch != ONE_HOST or not shared
        self.room = 1 if one else options.jobs or places(machine)
        self.lingers = shared and options.launch.rdzv_endpoint is None  # where the next pair's leader listens as well
        self.memory_gib = min((gpu.memory_gib for gpu in machine.gpus), default=math.inf)
        self.runs, self._size = LastRuns(options.artifacts_dir), chosen_size(options.size, bool(machine.gpus))
        self._budget_s = options.budget_s
        self._known, self.waiting = self.runs.known(), list(pairs)
        self.at_work: list[Pair] = []
        self._crowded: set[str] = set()
        if self.room > 1:
            longest = sorted(pairs, key=lambda pair: (-self._took_s(pair), *_rank(pair)))
            self.waiting = min(sorted(longest, key=lambda pair: not self._large(pair)), longest, key=self._lasts_s)

    def next(self) -> Pair | None:
        """Have the next one begin; None where there is no room for it beside those at work."""
        if len(self.at_work) >= self.room:
            return None
        ready = [pair for pair in self.waiting if self.room > 1 and not self._by_itself(pair) and self._fits(pair)]
        for pair in (ready or ([] if self.at_work else self.waiting))[:1]:
            self.waiting.remove(pair)
            self.at_work.append(pair)
            return pair
        return None

    def ended(self, pair: Pair, run: LastRun | None) -> None:
        """It is at work no more. One that has no run, since others crowded it, is to be run again by itself."""
        self.at_work.remove(pair)
        if run is not None:
            for key in self._keys(pair):
                self.runs.note(key, run)
        else:
            self._crowded.add(pair.key)
            self.waiting.append(pair)

    def _by_itself(self, pair: Pair) -> bool:
        return pair.gpus > 1 or pair.key in self._crowded

    def _fits(self, pair: Pair) -> bool:
        return sum(map(self._needs_gib, [*self.at_work, pair])) <= self.memory_gib

    def _needs_gib(self, pair: Pair) -> float:
        """The most that it held; else what it says that it needs, which is meant for any machine."""
        last = self._last(pair)
        return last.gib if last and last.gib else _needs_gib(pair)

    def _large(self, pair: Pair) -> bool:
        return self._needs_gib(pair) >= LARGE * self.memory_gib

    def _took_s(self, pair: Pair) -> float:
        last = self._last(pair)
        return last.seconds if last else math.inf

    def _lasts_s(self, order: Sequence[Pair]) -> float:
        """How long those that share would take in this order, if each took and held what it did when last run."""
        trial = copy.copy(self)
        trial.waiting, trial.at_work = [pair for pair in order if not self._by_itself(pair)], []
        ends, now_s = list[tuple[float, int, Pair]](), 0.0
        while trial.waiting or ends:
            while pair := trial.next():
                heapq.heappush(ends, (now_s + self._took_s(pair), len(trial.waiting), pair))
            now_s, _, pair = heapq.heappop(ends)
            trial.at_work.remove(pair)
        return now_s

    def _last(self, pair: Pair) -> LastRun | None:
        return next((self._known[key] for key in self._keys(pair) if key in self._known), None)

    def _keys(self, pair: Pair) -> tuple[str, str]:
        """Of the last run like this one, and of the last run of the pair at all."""
        at_all = f"{pair.key} at {self._size}"
        return f"{at_all}, {len(pair.variants)} variants for {self._budget_s:g} s", at_all


def _needs_gib(pair: Pair) -> float:
    return max([GPU_GIB, *(variant.required.memory_gib for variant in pair.variants)])


def _rank(pair: Pair) -> tuple[float, bool, bool]:
    on_device = pair.literals.get("clock", "device") == "device"
    return -_needs_gib(pair), on_device, not (compiles(pair) or pair.isolated)
