"""One pair, from its files to its row: `prove` at `test` size, then `measure` in rounds, each with fresh buffers."""

import math
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from common.python.base.machine import crowding
from common.python.base.results import AFTER, BEFORE, CONTROL, Block, Cost, PairResult, Trio, Why
from common.python.corpus.discovery import Pair
from common.python.performance_targets import Peaks, total
from common.python.profile.nsight import StepSettings
from common.python.run.options import Measuring
from common.python.run.variant_status import Roster
from common.python.stats import sampling_plan, timing_sanity
from common.python.stats.host_pace import pace_deviation
from common.python.stats.verdict import enough, judge
from common.python.timing.telemetry import Monitor, harmful, worst
from common.python.workers.process import Worker, WorkerError, end_all
from common.python.workers.worker_pool import WorkerPool

FIRST_WARM_S = 0.03  # of warming up before the first round; before the others each variant runs once
LOOK_S = 0.03  # between two readings of the GPU's clocks and heat, each of which takes a millisecond
APART = "the variants do not fit in memory together: each ran alone, in its own process"
PROBES = 2  # rounds in which a sample of each variant is proven while it is timed
FOLLOWER_PATIENCE = 2.0  # of a pair's time limit, since the leading host may still be at its previous pair


@dataclass(frozen=True)
class Settings(StepSettings, Measuring):
    """How a session is run."""

    peaks: Peaks | None = None
    monitors: tuple[Monitor, ...] = ()  # of the pair's GPUs on this host, by rank
    prove_at: tuple[str, ...] = ("test",)  # sizes to prove at before anything is timed
    earlier: Sequence[PairResult] = ()  # what this suite has kept so far

    def hire(self, pair: Pair, index: int = 0, fresh: bool = False, name: str = "") -> Worker:
        """Start a worker of this pair, where the variant `name` of it runs."""
        variant = pair.variant(name)
        told = {
            "seed": self.seed,
            "gpu": self.device != "cpu",
            "reproducible": self.reproducible,
            "ranks": self.launch.ranks_here(pair.gpus),
            "launch": asdict(self.launch),
            "python": variant.python,
            "run_id": f"{pair.key}, worker {index}",  # by which the launchers of several hosts find each other
        }
        log, scratch = self.folder / "logs" / f"worker{index}.log", self.scratch / f"worker{index}"
        return Worker(variant.root, scratch, log, told, fresh)


@dataclass(eq=False)
class Session:
    """The state of one session. User code cannot make it raise: whatever it does ends up in the result."""

    pair: Pair
    roster: Roster
    settings: Settings
    pool: WorkerPool = field(init=False)
    facts: dict[str, Any] = field(default_factory=dict)  # what the workers said of the workload
    probed: list[int] = field(default_factory=list)  # rounds of which a block is proven while it is timed
    steps: int = 1  # in a sample
    blocks: int = sampling_plan.FEW_BLOCKS  # in a round, until its first block tells
    opened_s: float = 0.0  # spent beside sampling until the first round had ended
    unread: list[Block] = field(default_factory=list)  # blocks that have no telemetry yet
    read_s: float = 0.0  # when telemetry was last read, a monotonic time
    rng: random.Random = field(default_factory=random.Random)

    @property
    def result(self) -> PairResult:
        return self.roster.result

    def prove(self, prebuild: Sequence[str] = (), then: Callable[[WorkerPool], None] = lambda pool: None) -> PairResult:
        """Prove every variant at the sizes of `settings.prove_at`; then compile `prebuild` at the timed size.

        `then` may ask more of the workers, which have the workload loaded.
        """
        with self._faults(), self._workers():
            self._prove_sizes()
            if prebuild and self.result.size is not None:
                with self._phase("compile"):
                    self.pool.prepare(self.roster.living(prebuild), self.settings.size)
            then(self.pool)
        return judge(self.result, self.settings.peaks)

    def measure(self) -> PairResult:
        """Prove, unless `prove` has; time the variants in rounds, each with proofs; profile one step of each; judge."""
        self.rng.seed(self.settings.seed)
        self.result.seed = self.settings.seed
        with self._faults(), self._workers(fresh=True):
            if not any(row.proofs for row in self.result.variants):
                self._prove_sizes()
            if self.roster.timed and self.result.size is not None and not self.roster.nothing_left():
                self._rounds()
                if not self.roster.nothing_left():
                    self._find_memories()
                    self._explain()
        self.result.load = os.getloadavg()[0]
        self.result.pace_deviation = pace_deviation([*self.settings.earlier, self.result])
        return judge(self.result, self.settings.peaks)

    def follow(self) -> PairResult:
        """Start and watch this host's ranks of a pair that another host leads, and which has the result."""
        worker, result = self.settings.hire(self.pair), self.result
        with self._faults():
            try:
                worker.call("watch", FOLLOWER_PATIENCE * self.settings.time_limit_s)
            finally:
                end_all([worker])
                result.log = worker.log_tail()
            result.reason = "its ranks here followed node rank 0, which has the results"
            for row in result.variants:
                if row.status == "proven":
                    row.status, row.reason = "unsupported", result.reason
        return result

    # Workers.

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """A fault of user code ends what is done inside and is blamed; then every row says what became of it."""
        try:
            yield
        except WorkerError as error:
            self.roster.blame(error.who, error.reason)
        finally:
            self.roster.close(self.settings.launch.ranks(self.pair.gpus))

    @contextmanager
    def _workers(self, fresh: bool = False) -> Iterator[None]:
        """Workers that have loaded the variants; `fresh` interpreters where the pair or its user asks for them."""
        with self._phase("start"):
            self.pool = self._hired(fresh)
        try:
            self._take_facts()
            yield
        finally:
            with self._phase("end"):
                self.pool.dismiss()
            self.result.log += self.pool.logs()

    def _hired(self, fresh: bool) -> WorkerPool:
        settings, modules = self.settings, self.roster.modules()
        living = self.roster.living([name for name in modules if fresh or name != CONTROL])  # which is timed only
        elsewhere = any(variant.python for variant in self.pair.variants)
        anew = fresh and (self.pair.isolated or settings.cold_start or elsewhere)
        return WorkerPool(
            lambda index, name: settings.hire(self.pair, index, anew, name),
            {name: modules[name] for name in living},
            self.pair.apart or (fresh and settings.cold_start),
            min(settings.time_limit_s * crowding(), settings.suite_deadline - time.monotonic()),
            {"baseline": self.pair.baseline_module, "size": settings.size},
        )

    def _take_facts(self) -> None:
        """Note what the workers said of the workload."""
        result, settings, facts = self.result, self.settings, self.pool.facts
        self.facts = facts
        self.roster.exclude(facts["failures"])
        result.clock, result.goal, result.tolerance = facts["clock"], facts["goal"], facts["tolerance"]
        if settings.device == "cpu":
            result.clock = "end_to_end"  # the only clock there is
        if facts["shape"] is not None:
            result.size, result.shape = settings.size, facts["shape"]
            phases = [Cost(**phase) for phase in facts["cost"]]
            result.cost, result.phases = total(phases), phases if len(phases) > 1 else []
        elif (note := f"no {settings.size!r} size: proven at test size only") not in result.notes:
            result.notes.append(note)

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        """Add the time inside to the phase's seconds."""
        self.settings.progress(name, self.result)
        started = time.monotonic()
        try:
            yield
        finally:
            self._spend(name, time.monotonic() - started)

    def _spend(self, phase: str, seconds: float) -> None:
        self.result.seconds[phase] = self.result.seconds.get(phase, 0.0) + seconds

    # Proof.

    def _prove_sizes(self) -> None:
        """The baseline first: without it nothing else is proven, and at `test` size its answer tests the tolerance."""
        names = self.roster.everybody
        for size in self.settings.prove_at:
            for share in (names[:1], names[1:]):
                share = self.roster.living(share)
                if not share or self.roster.nothing_left():
                    continue
                self._prepare(share, size, "proof")
                self._prove(self.roster.living(share), BEFORE, sampling_plan.TRIALS)
                if names[0] in share and size == "test":
                    with self._phase("proof"):
                        accepted = self.pool.first("teeth")
                    if accepted:
                        self.roster.exclude_all(f"the tolerance would accept: {', '.join(accepted)}")

    def _prove(self, names: list[str], when: str, trials: int = 1, enough_s: float | None = None) -> None:
        with self._phase("proof"):
            self.roster.take_proofs(self.pool.prove(names, when, trials, enough_s))

    def _prepare(self, names: list[str], size: str, phase: str) -> dict[str, Any]:
        """Draw inputs and prepare these variants, each in a process of its own if memory does not hold all of them."""
        with self._phase(phase):
            answer = self.pool.prepare(names, size)
            if answer["out_of_memory"] and len(names) > 1 and not self.pool.turns:
                self.result.notes.append(APART)
                self.pool.take_turns()
                answer = self.pool.prepare(names, size)
        self.roster.exclude(answer["failures"])
        return answer

    # Timing.

    def _rounds(self) -> None:
        """Rounds until the interval is narrow, or the counts asked for are reached, or the time is up."""
        plan = sampling_plan.fixed_plan(self.settings.iterations)
        sure = len(plan) if plan else sampling_plan.FEWEST_ROUNDS
        self.probed = self.rng.sample(range(sure), min(PROBES, sure))
        for index in range(len(plan) if plan else sampling_plan.MOST_ROUNDS):
            self._round(index, plan)
            if self.roster.nothing_left():
                return
            self.settings.progress("round", judge(self.result, self.settings.peaks))
            if plan is None and self._enough(index + 1):
                return

    def _round(self, index: int, plan: list[int] | None) -> None:
        """Fresh inputs and closures, warm-up, blocks, proof."""
        prepared = self._prepare(self.roster.with_control(), self.settings.size, "prepare")
        if index == 0:
            for name in self.roster.active():
                row = self.roster.row(name)
                row.prepare_s, row.first_call_s = prepared["prepare_s"][name], prepared["first_call_s"][name]
            enough_s = None if self.settings.reproducible else sampling_plan.ENOUGH * self.settings.budget_s
            self._prove(self.roster.active(), BEFORE, sampling_plan.TRIALS, enough_s)
        if self.roster.nothing_left():
            return
        with self._phase("warm-up"):
            if index == 0:
                self.result.floor_us = self.pool.start_clocks()
            passes = sampling_plan.warm_passes(plan, self.settings.warmup)
            steps = self.pool.warm(self.roster.with_control(), 0.0 if index else FIRST_WARM_S, passes)
            if index == 0:
                self.steps = steps
        self._sample(index, plan[index] if plan else None)
        self._prove(self.roster.active(), AFTER)
        if index == 0:
            self.opened_s = sampling_plan.beside_s(self.result.seconds)

    def _sample(self, index: int, blocks: int | None) -> None:
        """Take the round's blocks: as many as asked for, or as its first one says that there is time for.

        In a probed round, a block at a random place is proven as well.
        """
        done, total, place = 0, blocks or self.blocks, self.rng.random()
        to_prove = index in self.probed
        with self._phase("samples"):
            while (done < total or to_prove) and not self.roster.nothing_left():
                proven = to_prove and done >= int(place * total)
                took_s = self._block(index, done, proven)
                done, to_prove = done + 1, to_prove and not proven
                if time.monotonic() - self.read_s > LOOK_S:
                    self._read_telemetry()
                if blocks is None and done == 1:
                    total = self.blocks = self._blocks_in_round(index, took_s)
            self._read_telemetry()

    def _block(self, index: int, done: int, proven: bool) -> float:
        """Sample each variant twice, in mirrored order, and prove one sample of each if asked; seconds of sampling."""
        compared = sampling_plan.has_control(done, self.result.clock)
        names = self.roster.with_control() if compared else self.roster.active()
        order = self.rng.sample(names, len(names))
        order += reversed(order)
        started = time.monotonic()
        probes = [order.index(name) for name in self.roster.active()] if proven else []
        answer = self.pool.block(order, self.steps, probes)
        wall_s, proof_s = time.monotonic() - started, float(answer["proof_s"])
        self._spend("samples", -proof_s)
        self._spend("proof", proof_s)
        taken = {key: answer[key] for key in ("samples", "walls", "late", "retaken", "paces", "waited_us")}
        block = Block(round=index, steps=self.steps, **taken)
        self.result.blocks.append(block)
        self.unread.append(block)
        if reason := timing_sanity.beyond_wall(block, wall_s):
            self.roster.exclude_all(reason)
        self.result.best_pace_us = min([*block.paces, self.result.best_pace_us or math.inf])
        self.roster.take_proofs(answer["proofs"])
        return wall_s - proof_s

    def _blocks_in_round(self, index: int, first_s: float) -> int:
        """By what the round's first block took; the later ones have no walls, and may have no control."""
        seconds, first = self.result.seconds, self.result.blocks[-1]
        beside_s = (sampling_plan.beside_s(seconds) - self.opened_s) / index if index else 0.0
        again = [s for s in first.samples if s.variant != CONTROL or sampling_plan.has_control(1, self.result.clock)]
        later_s = first_s * len(again) / (len(first.samples) + len(first.walls) or 1)
        return sampling_plan.blocks_in_round(self.settings.budget_s, first_s, later_s, beside_s)

    def _read_telemetry(self) -> None:
        """What NVML sees now counts for all blocks since it was last read."""
        if self.unread and self.settings.monitors:
            own = self.pool.pids()
            gpus = [monitor.read(own) for monitor in self.settings.monitors]
            for block in self.unread:
                block.telemetry, block.gpus = worst(gpus), gpus if self.pair.gpus > 1 else []
                block.discarded = harmful(block.telemetry)
        self.unread, self.read_s = [], time.monotonic()

    def _enough(self, rounds: int) -> bool:
        late = sampling_plan.out_of_time(self.result.seconds, self.settings.budget_s, self.opened_s)
        rungs = [name for name in self.roster.active() if self.roster.row(name).role in ("optimized", "ref")]
        return enough(self.result, rungs, rounds, late)

    # After the last round.

    def _find_memories(self) -> None:
        """Test the variants that took longer on new inputs, for whether they remember answers."""
        tested = [name for name in self.roster.active() if timing_sanity.is_suspect(self.result, name)]
        if not tested or self.pair.gpus > 1 or self.settings.reproducible:  # with it what is drawn may not vary
            return
        limit_s = min(timing_sanity.LIMIT_PART * self.settings.time_limit_s, self.pool.left_s() / 2)
        with self._phase("proof"):
            for name, trios in self.pool.trios(tested, limit_s).items():
                self.roster.row(name).trios = [Trio(**trio) for trio in trios]

    def _explain(self) -> None:
        """Profile one more step of each variant."""
        traces = str(self.settings.folder / "profiles") if self.settings.profile else None
        with self._phase("why"):
            answer = self.pool.each("why", self.roster.active(), traces=traces)
        for name, why in answer["why"].items():
            self.roster.row(name).why = Why(**why)
        self.result.notes += [f"not deterministic: {text}" for text in sorted({*answer["refused"]})]
