"""Sessions over the tree of subjects: the harness' own, with small budgets, and what each says of its lanes."""

import gzip
import math
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from common.python.base.machine import Machine
from common.python.base.results import Model, PairResult
from common.python.corpus.discovery import Pair
from common.python.cuda import CudaError, build
from common.python.requirements import arch_of
from common.python.run.eligibility import assign
from common.python.run.session import Session
from common.python.run.settings import Settings
from common.python.run.variant_status import Roster
from common.python.stats.intervals import compare, round_log_ratios, verdict
from common.python.stats.sampling_plan import FEWEST_ROUNDS
from common.python.timing.telemetry import Monitor
from tools.selftest import models
from tools.selftest.forms import Form
from tools.selftest.tree import Laid, Lane

LIMIT_S = 60.0  # for one session, which should take two seconds
SAMPLES = "sessions.jsonl.gz"


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
    deadline: float = math.inf  # of the experiment that is at work, a monotonic time
    count: int = field(default=0)  # sessions so far, which makes each one's seed its own
    keep: Callable[[Model], None] = lambda found: None  # hears what an experiment has found so far

    @property
    def gpu(self) -> bool:
        return self.device != "cpu"

    @property
    def size(self) -> str:
        return "bench" if self.gpu else "cpu"

    def out_of_time(self) -> bool:
        return time.monotonic() >= self.deadline

    @contextmanager
    def until(self, deadline: float) -> Iterator[None]:
        """An experiment's own time: it begins nothing new after this monotonic time."""
        self.deadline = deadline
        try:
            yield
        finally:
            self.deadline = math.inf


def runnable(bench: Bench, laid: Laid) -> str | None:
    """Why a pair cannot be timed here; None if it can."""
    timed, _, rows = assign(laid.pair, bench.machine, bench.gpu)
    if len(timed) < len(laid.pair.variants):
        return next((row.reason for row in rows if row.reason), "it can only be proven here")
    return compiled(bench, laid.pair)


def compiled(bench: Bench, pair: Pair) -> str | None:
    """Compile a pair's .cu files ahead, or the first session would count it as preparing; what is wrong with one."""
    if not bench.gpu:
        return None
    sm = bench.machine.gpus[0].sm
    for source in (variant.path.with_suffix(".cu") for variant in pair.variants):
        try:
            if source.exists():
                build(source, arch_of(sm))
        except CudaError as error:
            return str(error)
    return None


def run(bench: Bench, laid: Laid, iterations: int | None = None) -> PairResult:
    """One session of the harness. Proof at test size is left out: `verify` and the suites do it."""
    bench.count += 1
    number = bench.count
    result = PairResult(
        chapter=laid.pair.chapter, name=laid.pair.name, status="unsupported", device=bench.device,
        best_pace_us=bench.best_pace_us,
    )  # fmt: skip
    timed, checked, result.variants = assign(laid.pair, bench.machine, bench.gpu)
    settings = Settings(
        root=laid.root,
        folder=bench.folder / "sessions" / f"{number:04}",
        scratch=laid.root / "workers" / f"{number:04}",
        size=bench.size,
        seed=bench.seed + number,
        device=bench.device,
        budget_s=bench.form.session_s,
        time_limit_s=LIMIT_S,
        iterations=iterations,
        warmup=0 if iterations else None,
        monitors=tuple(filter(None, [Monitor.open(bench.uuid)])) if bench.uuid else (),
        prove_at=(),
    )
    try:
        done = Session(laid.pair, Roster(result, timed, checked), settings).measure()
    finally:
        shutil.rmtree(settings.scratch, ignore_errors=True)
    bench.best_pace_us = done.best_pace_us
    return done


def one_by_one(
    bench: Bench,
    plan: Sequence[Laid],
    place: Path,
    say: Callable[[int], None],
    keep: Callable[[models.Session], None],
    iterations: int | None = None,
) -> None:
    """Record a session of each, in order, until the time is up; at least one.

    `say` hears the index of each that begins, `keep` gets each session's outcome.
    """
    for index, laid in enumerate(plan):
        if index and bench.out_of_time():
            break
        say(index)
        keep(record(bench, laid, place, iterations)[0])


def outcomes(result: PairResult, lanes: list[Lane], number: int, lever: Lane | None = None) -> list[models.Outcome]:
    """What a session says of each lane, by the arithmetic and the verdicts of every session.

    A session that the harness calls invalid says so in every lane.
    """
    clock = result.clock or "device"
    growth = 0.0  # of the step's time, by a planted share of 1
    if lever is not None and (pulled := compare(result.blocks, lever.below, lever.above, clock)):
        growth = (pulled.ratio - 1) / lever.planted
    found = []
    for lane in lanes:
        interval = compare(result.blocks, lane.above, lane.below, clock)
        enough = interval is not None and interval.rounds >= FEWEST_ROUNDS
        said = verdict(interval) if enough else "inconclusive"
        found.append(
            models.Outcome(
                pair=result.key,
                session=number,
                above=lane.above,
                below=lane.below,
                planted=lane.planted,
                truth=1 / (1 + lane.planted * growth) if lane.planted else 1.0,
                rounds=round_log_ratios(result.blocks, lane.above, lane.below, clock),
                interval=interval,
                verdict="invalid" if result.verdict == "invalid" else said,
            )
        )
    return found


def record(bench: Bench, laid: Laid, place: Path, iterations: int | None = None) -> tuple[models.Session, PairResult]:
    """Run a session, keep all of its samples beside the experiment's results, and give what it says."""
    began = time.monotonic()
    result = run(bench, laid, iterations)
    number = bench.count
    place.mkdir(parents=True, exist_ok=True)
    with gzip.open(place / SAMPLES, "at", compresslevel=3) as file:
        file.write(result.model_dump_json() + "\n")
    failed = result.reason if result.status != "measured" else None
    if failed is None and not result.blocks:
        failed = "; ".join(result.notes) or "it took no samples"
    about = models.Session(
        pair=result.key,
        number=number,
        seconds=time.monotonic() - began,
        phases=result.seconds,
        failed=failed,
        notes=result.notes,
        outcomes=outcomes(result, laid.lanes, number, laid.lever) if failed is None else [],
    )
    return about, result


def contains(outcome: models.Outcome) -> bool:
    """Whether the interval holds what is true."""
    found = outcome.interval
    return found is not None and found.low <= outcome.truth <= found.high


def said_different(outcome: models.Outcome) -> bool:
    """Whether a reader was told that equal sides differ, or that the session is no good."""
    return outcome.verdict not in ("same", "inconclusive")


def noticed(outcome: models.Outcome) -> bool:
    """Whether the interval says that what was slowed is slower."""
    return outcome.interval is not None and outcome.interval.high < 1
