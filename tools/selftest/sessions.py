"""Sessions of the harness over the selftest's trees, with small budgets, and what each says of its comparisons."""

import gzip
import json
import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from common.python.base.machine import Machine
from common.python.base.results import Interval, PairResult, Verdict
from common.python.run.session import Session as HarnessSession
from common.python.run.session import Settings
from common.python.run.variant_status import assign
from common.python.stats.intervals import compare, verdict
from common.python.stats.sampling_plan import FEWEST_ROUNDS
from common.python.timing.telemetry import Monitor
from common.python.workers.process import one_worker
from tools.selftest.promises import Name, Promise, promised_share
from tools.selftest.tree import LEVER, Laid, Lane, lay_lanes

LIMIT_S = 60.0  # for one session, which should take two seconds, or all other methods on a pair
SAMPLES = "sessions.jsonl.gz"
LEAST_COVERED = 0.93


@dataclass(frozen=True)
class Form:
    """How much each experiment does, and the seconds after which it begins nothing new."""

    name: Literal["quick", "full"]
    session_s: float  # sampling budget of a session
    aa_sessions: int  # of each pair
    planted_sessions: int
    planted_copies: int  # of the largest slowdown, whose promise needs the most trials
    repeats: int  # of each method on each pair
    others_pairs: int
    honest_pairs: int  # of the chapters, drawn at random
    seconds: Mapping[Name, float]


FORMS = {row["name"]: Form(**row) for row in json.loads(Path(__file__).with_name("forms.json").read_text())}


@dataclass(frozen=True)
class Outcome:
    """What a session says of one lane: the time of the lane's `above` over that of its `below`.

    `truth` is what the ratio is known to be: 1 for a variant against itself, less where a slowdown was planted below.
    """

    pair: str
    planted: float
    truth: float
    interval: Interval | None
    verdict: Verdict
    failed: str | None = None  # why there was no session to compare anything by


@dataclass
class Bench:
    """What experiments are run with: this machine, its device, the form, and where results go."""

    root: Path  # of the chapters
    folder: Path  # of this selftest
    artifacts_dir: Path
    machine: Machine
    device: str  # the GPU's name, or "cpu"
    uuid: str | None
    seed: int
    form: Form
    say: Callable[[str], None]
    best_pace_us: float | None = None
    deadline: float = math.inf  # of the experiment that is running, a monotonic time
    count: int = 0  # sessions so far, which makes each one's seed its own

    @property
    def gpu(self) -> bool:
        return self.device != "cpu"

    @property
    def size(self) -> str:
        return "bench" if self.gpu else "cpu"

    def call(self, root: Path, function: str, **asked: Any) -> Any:
        """What a function of methods.py answers in a worker of its own, at this machine's size. Raises WorkerError."""
        asked |= {"module": "tools.selftest.methods", "function": function, "size": self.size}
        with one_worker(root, self.folder / "logs" / "worker.log", self.seed) as worker:
            return worker.call("call", LIMIT_S, **asked)


def lay_runnable(bench: Bench, scratch: Path, baselines: Sequence[Path], planted: Sequence[float]) -> list[Laid]:
    """The pairs that can be timed here, laid out with a lane for each planted slowdown. Of others it says why not."""
    ready = []
    for laid in (lay_lanes(scratch, baseline, planted) for baseline in baselines):
        roster = assign(laid.pair, bench.machine, bench.device)
        if len(roster.timed) == len(laid.pair.variants):
            ready.append(laid)
        else:
            why = next((row.reason for row in roster.result.variants if row.reason), "it can only be proven here")
            bench.say(f"{laid.pair.key} is left out: {why}")
    return ready


def in_turn(bench: Bench, what: str, ready: Sequence[Laid], count: int) -> Iterator[tuple[int, Laid]]:
    """Each of these `count` times, with the number of the turn, until the time is up; one, however short the time."""
    for turn in range(count):
        for laid in ready:
            if (turn or laid is not ready[0]) and time.monotonic() >= bench.deadline:
                return
            bench.say(f"{what}: {laid.pair.key}, {turn + 1} of {count}")
            yield turn, laid


def record(bench: Bench, laid: Laid, folder: Path, iterations: int | None = None) -> tuple[list[Outcome], PairResult]:
    """Run a session, append all of its samples to a file in `folder`, and give what it says of each lane.

    Proof at test size is left out: `verify` and the suites do it.
    """
    bench.count += 1
    roster = assign(laid.pair, bench.machine, bench.device)
    roster.result.best_pace_us = bench.best_pace_us
    settings = Settings(
        folder=bench.folder / "sessions" / f"{bench.count:04}",
        scratch=laid.pair.folder.root / "workers" / f"{bench.count:04}",
        size=bench.size,
        seed=bench.seed + bench.count,
        device=bench.device,
        budget_s=bench.form.session_s,
        time_limit_s=LIMIT_S,
        iterations=iterations,
        warmup=0 if iterations else None,
        monitors=tuple(filter(None, [Monitor.open(bench.uuid)])) if bench.uuid else (),
        prove_at=(),
    )
    result = HarnessSession(laid.pair, roster, settings).measure()
    shutil.rmtree(settings.scratch, ignore_errors=True)  # at an interrupt it goes with all of the experiment's
    bench.best_pace_us = result.best_pace_us
    folder.mkdir(parents=True, exist_ok=True)
    with gzip.open(folder / SAMPLES, "at", compresslevel=3) as file:
        file.write(result.model_dump_json() + "\n")
    return outcomes(result, laid.lanes), result


def outcomes(result: PairResult, lanes: Sequence[Lane]) -> list[Outcome]:
    """What a session says of each lane but the LEVER's, by the arithmetic and the verdicts of every session.

    A session that failed, or that the harness calls invalid, is invalid in every lane.
    """
    clock, failed = result.clock or "device", None
    if result.status != "measured" or not result.blocks:
        failed = result.reason or "; ".join(result.notes) or "it took no samples"
    levers = [compare(result.blocks, lane.below, lane.above, clock) for lane in lanes if lane.planted == LEVER]
    growth = sum((pulled.ratio - 1) / LEVER for pulled in levers if pulled)  # of its time, by a planted share of 1
    found = []
    for lane in (lane for lane in lanes if lane.planted != LEVER):
        interval = None if failed else compare(result.blocks, lane.above, lane.below, clock)
        said = verdict(interval) if interval is not None and interval.rounds >= FEWEST_ROUNDS else "inconclusive"
        if failed or result.verdict == "invalid":
            said = "invalid"
        truth = 1 / (1 + lane.planted * growth)
        found.append(Outcome(result.key, lane.planted, truth, interval, said, failed))
    return found


def coverage(experiment: Name, what: str, found: Sequence[Outcome], trials: int = 0) -> Promise:
    """The promise that intervals contain the truth; a session that failed has none that does."""
    covered = sum(one.interval is not None and one.interval.low <= one.truth <= one.interval.high for one in found)
    what = f"{what}: the interval contains the truth"
    promise = promised_share(experiment, what, covered, len(found), LEAST_COVERED, trials=trials)
    promise.note = f"{len(found)} comparisons of {len({one.pair for one in found})} pairs"
    if failed := [f"{one.pair}: {one.failed}" for one in found if one.failed is not None]:
        promise.note += f"; {len(failed)} failed, such as {failed[0]}"
    return promise
