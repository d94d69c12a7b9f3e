"""A process that times the same closures with the harness and with what people use today, side by side.

    python -m tools.selftest.rival_process SPEC.json OUT.jsonl

Triton, torch and the pairs are imported here and never in the parent. The harness' part is its own Session; only its
worker lives in this process, and proof and profile are left out, which the others do not have either.
"""

import gc
import json
import os
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from common.python.base.results import PairResult
from common.python.corpus.discovery import Pair, find_pairs
from common.python.run.session import Session
from common.python.run.settings import Settings
from common.python.run.variant_status import Roster, new_row
from common.python.stats.intervals import compare, round_log_ratios, verdict
from common.python.timing.sampler import Sampler
from common.python.timing.telemetry import Monitor
from common.python.workers.commands import Commands
from common.python.workers.process import Worker
from common.python.workload import Output, Step
from tools.selftest.models import Timing
from tools.selftest.rival_methods import LEAST_S, Method, rivals
from tools.selftest.rivals import OURS

LEFT_OUT = ("prove", "why")  # what takes no part in timing
SESSION_S = 0.12, 0.25  # of sampling, at least and at most, in a session
LIMIT_S = 60.0
EMPTY_BLOCKS, EMPTY_SAMPLES = 8, 8


class Here(Worker):
    """Answers a pool's calls in this very process, with commands that live on from session to session."""

    def __init__(self, bench: Commands) -> None:
        self._bench, self._answer = bench, None

    @property
    def pid(self) -> int:
        return os.getpid()

    def pids(self) -> set[int]:
        return {self.pid}

    def ask(self, command: str, **arguments: Any) -> None:
        """Do it at once: there is nobody beside it."""
        self._answer = {} if command in LEFT_OUT else self._bench.perform(command, arguments)

    def answer(self, timeout_s: float) -> Any:
        return self._answer

    def log_tail(self, characters: int = 4000) -> str:
        return ""

    def part(self) -> None:
        """The bench lives on."""

    kill = part

    def await_end(self, deadline: float) -> None:
        """There is none."""


@dataclass(frozen=True)
class SettingsHere(Settings):
    """Settings whose workers are this process."""

    bench: Commands | None = None

    def hire(self, pair: Pair, index: int = 0, fresh: bool = False) -> Worker:
        if self.bench is None:
            raise RuntimeError("a session here needs a bench")
        return Here(self.bench)


class SessionHere(Session):
    """The harness' session without samples that are proven, which the others do not have either."""

    def _block(self, index: int, done: int, proven: bool) -> float:
        return super()._block(index, done, False)


def by_harness(spec: dict[str, Any], bench: Commands, pair: Pair, repeat: int, monitor: Monitor | None) -> Timing:
    """One session of the harness over both sides. Seconds are those of preparing, warming up and sampling, all rounds.

    It times the first side once more as its control, which nobody else does.
    """
    result = PairResult(chapter=pair.chapter, name=pair.name, status="unsupported", device=spec["device"])
    result.variants = [new_row(pair, variant) for variant in pair.variants]
    settings = SettingsHere(
        root=Path(spec["root"]), folder=Path(spec["scratch"]), scratch=Path(spec["scratch"]), size=spec["size"],
        seed=spec["seed"] + repeat, device=spec["device"], budget_s=spec["session_s"], time_limit_s=LIMIT_S,
        monitors=(monitor,) if monitor else (), prove_at=(), bench=bench,
    )  # fmt: skip
    session = SessionHere(pair, Roster(result, list(pair.variants), []), settings)
    done = session.measure()
    clock = done.clock or "device"
    a, b = (variant.name for variant in pair.variants)
    found = compare(done.blocks, a, b, clock)
    if found is None:
        raise RuntimeError(done.reason or "the session took no samples")
    of = {name: [s for block in done.blocks for s in block.samples if s.variant == name] for name in (a, b)}
    middle = {
        name: median((s.device_us if clock == "device" else s.wall_us) or 0.0 for s in taken)
        for name, taken in of.items()
    }
    spent = sum(done.seconds.get(phase, 0.0) for phase in ("prepare", "warm-up", "samples"))
    return Timing(
        pair=pair.key, method=OURS, repeat=repeat, a_us=middle[a], b_us=middle[b], ratio=found.ratio,
        seconds=spent, verdict=verdict(found), rounds=round_log_ratios(done.blocks, a, b, clock),
        late=sum(block.late for block in done.blocks),
    )  # fmt: skip


def budget_s(samples: int, of: Timing) -> float:
    """Of sampling, for so many samples of each side: in the same time for all, a long step would have but a few."""
    least, most = SESSION_S
    return max(least, min(samples * (of.a_us + of.b_us) / 1e6, most))


@dataclass
class Rival:
    """A method on a pair, asked for as much less as it takes beyond what it is asked for, to warm up for one."""

    name: str
    method: Method
    beyond_s: float = 0.0  # of one comparison, the least so far

    def compare(self, steps: list[Step], seconds: float, done: int) -> tuple[float, float]:
        """A, then B, in so many seconds; microseconds of each. `done` comparisons were made before."""
        began, asked_s = time.perf_counter(), max(LEAST_S, (seconds - self.beyond_s) / 2)
        a_us, b_us = (self.method(step, asked_s) for step in steps)
        beyond_s = max(0.0, time.perf_counter() - began - 2 * asked_s)
        self.beyond_s = min(self.beyond_s, beyond_s) if done else beyond_s
        return a_us, b_us


def by_rival(bench: Commands, pair: Pair, size: str, rival: Rival, repeat: int, seconds: float) -> Timing:
    """A, then B, on closures prepared anew, in as many seconds, with preparing, as the harness took."""
    a, b = (variant.name for variant in pair.variants)
    began = time.perf_counter()
    failures = bench.prepare([a, b], size, [])["failures"]
    if failures or bench.prep is None:
        raise RuntimeError(next(iter(failures.values()), "nothing was prepared"))
    steps = [bench.prep.variants[side].step for side in (a, b)]
    a_us, b_us = rival.compare(steps, seconds - (time.perf_counter() - began), repeat)
    return Timing(
        pair=pair.key, method=rival.name, repeat=repeat, a_us=a_us, b_us=b_us, ratio=a_us / b_us,
        seconds=time.perf_counter() - began,
    )  # fmt: skip


@dataclass
class Contest:
    """All methods on pairs that are loaded in turn into one bench; what was taken so far."""

    spec: dict[str, Any]
    bench: Commands
    write: Callable[[dict[str, Any]], None]
    pairs: dict[str, Pair]
    until: float  # a monotonic time
    order: random.Random
    monitor: Monitor | None
    given: dict[str, float] = field(default_factory=dict)  # to sample for, by pair
    taken: list[Timing] = field(default_factory=list)
    lost: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        methods = rivals()
        self.every = {key: [Rival(name, method) for name, method in methods.items()] for key in self.pairs}

    def compare(self, key: str, repeat: int) -> None:
        """Every method once. A pair that fails has no more turns."""
        if key in self.lost or time.monotonic() >= self.until:
            return
        pair = self.pairs[key]
        try:
            self.bench.load(pair.variants[0].module, {v.name: v.module for v in pair.variants}, self.spec["size"])
            if key not in self.given:
                self.given[key] = budget_s(self.spec["samples"], self._ours(pair, repeat, SESSION_S[0]))
            turns: list[Rival | None] = [None, *self.every[key]]
            for rival in self.order.sample(turns, len(turns)) if repeat else turns:
                timing = self._theirs(pair, repeat, rival) if rival else self._ours(pair, repeat, self.given[key])
                self.taken.append(timing)
                self.write(timing.model_dump())
        except Exception as error:  # a pair's own code may raise anything; the others go on
            self.lost.add(key)
            self.write({"failed": key, "reason": f"{type(error).__name__}: {str(error).splitlines()[:1]}"})

    def _ours(self, pair: Pair, repeat: int, session_s: float) -> Timing:
        return by_harness({**self.spec, "session_s": session_s}, self.bench, pair, repeat, self.monitor)

    def _theirs(self, pair: Pair, repeat: int, rival: Rival) -> Timing:
        spent = median(one.seconds for one in self.taken if (one.pair, one.method) == (pair.key, OURS))
        return by_rival(self.bench, pair, self.spec["size"], rival, repeat, spent)


def compare_methods(spec: dict[str, Any], bench: Commands, write: Callable[[dict[str, Any]], None]) -> None:
    """Every method on every pair, one repeat after the other, in random order, until the time is up.

    Whoever comes first on a pair finds memory as another has left it: on one H200 a transpose differed from itself by
    0.9%, by do_bench, and by 0.2 where that was the third or later. So this harness is first in the first repeat only,
    in which it says how long a comparison takes. Later ones take as long as its median so far: the first is a slow one.
    Before that a session that does not count tells how long a step is.
    """
    pairs = {pair.key: pair for pair in find_pairs(Path(spec["root"])) if pair.key in spec["pairs"]}
    monitor = Monitor.open(spec["uuid"]) if spec["uuid"] else None
    until, order = time.monotonic() + spec["seconds"], random.Random(spec["seed"])
    contest = Contest(spec, bench, write, pairs, until, order, monitor)
    for repeat in range(spec["repeats"]):
        for key in pairs:
            contest.compare(key, repeat)


def floors(spec: dict[str, Any], bench: Commands, write: Callable[[dict[str, Any]], None]) -> None:
    """The floor that a session prints, and what an empty step reads when it is sampled in blocks as any other."""
    [key] = spec["pairs"]
    pair = next(pair for pair in find_pairs(Path(spec["root"])) if pair.key == key)
    name = pair.variants[0].name
    bench.load(pair.variants[0].module, {name: pair.variants[0].module}, spec["size"])
    bench.prepare([name], spec["size"], [])
    floor_us = bench.start_clock()
    assert bench.prep is not None
    sampler: Sampler = bench.sampler

    def empty() -> Output:
        return ()

    prep = replace(bench.prep, variants={"empty": replace(bench.prep.variants[name], name="empty", step=empty)})
    sampler.warm(prep, ["empty"], 1.0, bench.at, passes=5)
    read = []
    for _ in range(EMPTY_BLOCKS):
        taken = sampler.block(prep, ["empty"] * EMPTY_SAMPLES, 1, [], bench.at)
        read += [s.device_us if sampler.on_device() else s.wall_us for s in taken.samples]
    write({"floor_us": floor_us, "empty_us": read})


TASKS = {"others": compare_methods, "floors": floors}


def main() -> None:
    spec = json.loads(Path(sys.argv[1]).read_text())
    settings = {"seed": spec["seed"], "reproducible": False}
    bench = Commands(Path(spec["root"]), Path(spec["scratch"]), settings, lambda who, what: None)
    for method in rivals().values():  # each imports what it needs at its first call
        method(lambda: (), LEAST_S)
    gc.freeze()  # as in every worker: each preparing collects, and would scan all of torch's objects
    with Path(sys.argv[2]).open("a") as out:

        def write(line: dict[str, Any]) -> None:
            out.write(json.dumps(line) + "\n")
            out.flush()

        TASKS[spec["task"]](spec, bench, write)


if __name__ == "__main__":
    main()
