"""One pair, from its files to its row: `prove` at `test` size, then `measure` in rounds, each with fresh buffers."""

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from common.python.base.results import AFTER, BEFORE, CONTROL, NOT_ALONE, Block, Cost, PairResult, Trio, Why
from common.python.corpus.discovery import Pair
from common.python.performance_targets import total
from common.python.run.settings import Settings
from common.python.run.variant_status import Roster
from common.python.stats import memoization_check, sampling_plan
from common.python.stats.host_pace import pace_deviation, usual_pace_us
from common.python.stats.sampling_plan import move_seconds
from common.python.stats.timing_sanity import beyond_wall
from common.python.stats.verdict import enough, judge
from common.python.timing.telemetry import harmful, host_load, worst
from common.python.workers.process import WorkerError
from common.python.workers.worker_pool import WorkerPool

SLOW_PREPARE_S = 1.0  # a variant that is so slow to prepare even a second time gets fewer rounds
FIRST_WARM_S = 0.03  # of warming up before the first round; before the others each variant runs once
LOOK_S = 0.03  # between two looks at the GPU's clocks and heat
APART = "the variants do not fit in memory together: each ran alone, in its own process"
PROBES = 2  # blocks, of as many rounds, in which a sample of each variant is proven while it is timed


@dataclass
class Session:
    """The state of one session. User code cannot make it raise: whatever it does ends up in the result."""

    pair: Pair
    roster: Roster
    settings: Settings
    result: PairResult
    pool: WorkerPool | None = None
    dtypes: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    probes: list[tuple[int, float]] = field(default_factory=list)  # the round, and where in it
    count: int = 1  # steps in a sample
    usual: int = sampling_plan.FEW_BLOCKS  # blocks of a round, until its first one tells
    opened_s: float = 0.0  # spent beside sampling until the first round had ended
    plan: list[int] | None = None  # blocks of each round, where their number was asked for
    looked: int = 0  # blocks whose telemetry has been read
    looked_s: float = 0.0  # when
    slow: set[str] = field(default_factory=set)
    rng: random.Random = field(default_factory=random.Random)

    def prove(self, prebuild: list[str] | None = None) -> PairResult:
        """Prove every variant at the sizes of `settings.prove_at`, then compile these at the size that is timed."""
        self._in_workers(lambda: self._prove_and_compile(prebuild or []), apart=self.pair.isolated)
        return judge(self.result, self.settings.peaks)

    def _prove_and_compile(self, prebuild: list[str]) -> None:
        for size in self.settings.prove_at:
            self._prove_at(size)
        if prebuild and self.facts["shape"] is not None:
            with self._phase("compile"):
                self._pool.each("prepare", self.roster.living(prebuild), size=self.settings.size, dtypes=[])

    def measure(self, prove_first: bool = False) -> PairResult:
        """Time the variants in rounds and prove them at the size that is timed; then judge.

        `prove_first`: `prove` has not been called, so prove at the sizes of `settings.prove_at` in the same workers.
        """
        self.rng.seed(self.settings.seed)
        self.plan, self.result.seed = sampling_plan.fixed_plan(self.settings.iterations), self.settings.seed
        apart = self.pair.isolated or self.settings.cold_start
        self._in_workers(lambda: self._prove_and_time(self.settings.prove_at if prove_first else ()), apart, fresh=True)
        self.result.load = host_load()
        earlier = list(self.settings.earlier())
        self.result.usual_pace_us = usual_pace_us(earlier)
        self.result.pace_deviation = pace_deviation([*earlier, self.result])
        return judge(self.result, self.settings.peaks)

    def _prove_and_time(self, sizes: Sequence[str]) -> None:
        proven = any(row.proofs for row in self.result.variants)
        for size in self.settings.prove_at if self.facts["shape"] is None and not proven else sizes:
            self._prove_at(size)
        if self.facts["shape"] is None:
            self.result.notes.append(f"no {self.settings.size!r} size: proven at test size only")
        elif not self.roster.nothing_left():
            self._rounds()

    def _in_workers(self, work: Callable[[], None], apart: bool, fresh: bool = False) -> None:
        """Have workers load the variants and do this work; a fault of user code ends it and is blamed."""
        try:
            with self._phase("start"):
                self._open(apart, fresh)
            self._split_start()
            work()
        except WorkerError as error:
            self.roster.blame(error.who, error.reason)
        finally:
            if self.pool is not None:
                with self._phase("end"):
                    self.pool.dismiss()
                self.result.log += self.pool.logs()
            self.pool = None
            self.roster.close(self.settings.launch.ranks(self.pair.gpus))

    def _open(self, apart: bool, fresh: bool) -> None:
        load = {"baseline": self.roster.baseline_module, "size": self.settings.size}
        modules = self.roster.modules()
        living = self.roster.living([name for name in modules if fresh or name != CONTROL])  # which is timed only
        self.pool = WorkerPool(
            lambda index, own: self.settings.hire(self.pair, index, own and fresh),
            {name: modules[name] for name in living},
            apart,
            min(self.settings.time_limit_s, self.settings.suite_deadline - time.monotonic()),
            load,
        )
        self.facts = self.pool.facts
        self.roster.exclude_each(self.facts["failures"])
        result, facts = self.result, self.facts
        result.clock, result.goal, result.tolerance = facts["clock"], facts["goal"], facts["tolerance"]
        if self.settings.device == "cpu":
            result.clock = "end_to_end"  # the only clock there is
        if facts["shape"] is not None:
            result.size, result.shape = self.settings.size, facts["shape"]
            phases = [Cost(**phase) for phase in facts["cost"]]
            result.cost, result.phases = total(phases), phases if len(phases) > 1 else []

    def _split_start(self) -> None:
        """Of ranks: what their processes, their CUDA contexts and their process group took of the start."""
        before = 0.0
        for phase, done in self.facts["started"].items():
            move_seconds(self.result.seconds, done - before, "start", phase)
            before = done

    def _prove_at(self, size: str) -> None:
        """The baseline first: its dtypes are everybody's and its answer tests the tolerance."""
        names = self.roster.everybody
        self.dtypes = []  # a size may have its own
        for share in (names[:1], names[1:]):
            share = self.roster.living(share)
            if share and not self.roster.nothing_left():
                self._prepare(share, size)
                self._prove(self.roster.living(share), BEFORE, sampling_plan.TRIALS)
                if names[0] in share:
                    self.dtypes = self._pool.first("dtypes")
                if names[0] in share and size == "test":
                    with self._phase("proof"):
                        accepted = self._pool.first("teeth")
                    if accepted:
                        self.roster.exclude_all(f"the tolerance would accept: {', '.join(accepted)}")

    def _rounds(self) -> None:
        """Rounds until the interval is narrow, or the counts asked for are reached, or the time is up."""
        plan = self.plan
        rounds = len(plan) if plan else sampling_plan.FEWEST_ROUNDS
        self.probes = [(r % rounds, self.rng.random()) for r in self.rng.sample(range(max(rounds, PROBES)), PROBES)]
        self.dtypes, index, closing = [], 0, 0
        while index < (len(plan) if plan else sampling_plan.MOST_ROUNDS):
            everybody = plan is not None or closing > 0 or not self.slow
            if not self._round(index, plan[index] if plan else None, everybody):
                return
            index += 1
            self.settings.progress("round", judge(self.result, self.settings.peaks))
            if plan is None and (closing == 1 or not self.slow) and self._enough(index):
                break
            if closing:
                closing = max(closing - 1, 1)
            elif plan is None and self._enough(index + sampling_plan.CLOSING):
                closing = sampling_plan.CLOSING
        self._find_memories()
        with self._phase("why"):
            traces = str(self.settings.folder / "profiles") if self.settings.profile else None
            for name, why in self._pool.each("why", _proven(self.roster.active()), traces=traces).items():
                self.roster.row(name).why = Why(**why)
        if self.settings.reproducible:
            self.result.notes += [f"not deterministic: {text}" for text in self._pool.refusals()]

    def _find_memories(self) -> None:
        """Test the variants that took longer on new inputs, for whether they remember answers."""
        tested = memoization_check.suspects(self.result, _proven(self.roster.active()))
        limit_s = min(memoization_check.LIMIT_PART * self.settings.time_limit_s, self._pool.left_s() / 2)
        if tested and self.pair.gpus == 1 and not self.settings.reproducible:  # with it what is drawn may not vary
            limit_s /= len(tested) if len(self._pool.apart(tested)) > 1 else 1  # by workers, one after the other
            with self._phase("proof"):
                for name, trios in self._pool.each("trios", tested, limit_s=limit_s).items():
                    self.roster.row(name).trios = [Trio(**trio) for trio in trios]

    def _round(self, index: int, blocks: int | None, everybody: bool) -> bool:
        """Fresh inputs and closures, warm-up, blocks, proof. False when nothing is left to measure."""
        self._prepare(self._partakers(everybody), self.settings.size, index)
        if index == 0:
            enough_s = None if self.settings.reproducible else sampling_plan.ENOUGH * self.settings.budget_s
            for share in self._pool.apart(_proven(self.roster.active())):
                self._prove(share, BEFORE, sampling_plan.TRIALS, enough_s)
                self.dtypes = self.dtypes or self._pool.first("dtypes")
        if self.roster.nothing_left():
            return False
        self._sample(index, blocks, self._partakers(everybody))
        self._prove(_proven(self._partakers(everybody)), AFTER, 1)
        if index == 0:
            self.opened_s = sampling_plan.beside_s(self.result.seconds)
        return not self.roster.nothing_left()

    def _sample(self, index: int, blocks: int | None, names: list[str]) -> None:
        """Warm up and take the round's blocks."""
        with self._phase("warm-up"):
            if index == 0:
                if self.settings.crowded(self._pool.pids) and not self._pool.first("await_device"):
                    self.result.notes.append(NOT_ALONE)
                self.result.floor_us = self._pool.start_clocks()
            limit_s = FIRST_WARM_S if index == 0 else 0.0
            count = self._pool.warm(names, limit_s, sampling_plan.warm_passes(self.plan, self.settings.warmup))
            self.count = count if index == 0 else self.count
        with self._phase("samples"):
            done, total = 0, blocks or self.usual
            while (done < total or self._due(index, done, total)) and not self.roster.nothing_left():
                took = self._block(index, names, done, total)
                done += 1
                if time.monotonic() - self.looked_s > LOOK_S:
                    self._look()
                if blocks is None and done == 1:
                    total = self.usual = self._blocks_in_round(index, took)
            self._look()

    def _blocks_in_round(self, index: int, first_s: float) -> int:
        """By what the round's first block took; the later ones have no walls, and may have no control."""
        seconds, first = self.result.seconds, self.result.blocks[-1]
        beside_s = (sampling_plan.beside_s(seconds) - self.opened_s) / index if index else 0.0
        again = [s for s in first.samples if s.variant != CONTROL or sampling_plan.has_control(1, self.result.clock)]
        later_s = first_s * len(again) / (len(first.samples) + len(first.walls) or 1)
        return sampling_plan.blocks_in_round(self.settings.budget_s, first_s, later_s, beside_s)

    def _due(self, index: int, done: int, total: int) -> list[tuple[int, float]]:
        return sampling_plan.due(self.probes, index, done, total)

    def _look(self) -> None:
        """What NVML sees now counts for all blocks since it was last asked, which takes a millisecond."""
        unseen = self.result.blocks[self.looked :]
        if unseen and (gpus := self.settings.read_gpus(self._pool.pids)):
            for block in unseen:
                block.telemetry, block.gpus = worst(gpus), gpus if self.pair.gpus > 1 else []
                block.discarded = harmful(block.telemetry)
        self.looked, self.looked_s = len(self.result.blocks), time.monotonic()

    def _block(self, index: int, names: list[str], done: int, total: int) -> float:
        controlled = sampling_plan.has_control(done, self.result.clock)
        names = [name for name in names if name in self.roster.active() and (name != CONTROL or controlled)]
        order = self.rng.sample(names, len(names))
        order += reversed(order)
        probed = self._due(index, done, total)
        self.probes = [probe for probe in self.probes if probe not in probed]
        probes = [order.index(name) for name in _proven(names)] if probed else []
        started = time.monotonic()
        answer = self._pool.block(order, self.count, probes)
        move_seconds(self.result.seconds, answer["proof_s"], "samples", "proof")
        wall_s = time.monotonic() - started
        taken = {key: answer[key] for key in ("samples", "walls", "late", "retaken", "paces")}
        self.result.blocks.append(Block(round=index, steps=self.count, **taken))
        if reason := beyond_wall(self.result.blocks[-1], wall_s):
            self.roster.exclude_all(reason)
        self.result.best_pace_us = min([*answer["paces"], self.result.best_pace_us or math.inf])
        self.roster.take_proofs(answer["proofs"])
        return wall_s - float(answer["proof_s"])

    def _enough(self, rounds: int) -> bool:
        late = sampling_plan.out_of_time(self.result.seconds, self.settings.budget_s, self.opened_s)
        rungs = [name for name in self.roster.active() if self.roster.row(name).role == "optimized"]
        return enough(self.result, [name for name in rungs if name not in self.slow], rounds, late)

    def _partakers(self, everybody: bool) -> list[str]:
        """Who is timed in this round: variants that take seconds to prepare are in the first two and the last ones."""
        return [name for name in self.roster.active() if everybody or name not in self.slow]

    def _prove(self, names: list[str], when: str, trials: int, enough_s: float | None = None) -> None:
        asked = {"when": when, "trials": trials, "dtypes": self.dtypes, "enough_s": enough_s}
        with self._phase("proof"):
            self.roster.take_proofs(self._pool.each("prove", names, **asked))

    def _prepare(self, names: list[str], size: str, index: int | None = None) -> None:
        """Prepare these for the round of this index, or for a proof. What compiles does so once: the second tells."""
        with self._phase("proof" if index is None else "prepare"):
            answer = self._prepared(names, size)
        self.roster.exclude_each(answer["failures"])
        spent = {name: answer["prepare_s"][name] + answer["first_call_s"][name] for name in answer["prepare_s"]}
        if index == 1 and not self.settings.iterations:
            timed = {name for name in spent if self.roster.row(name).role != "baseline"}
            self.slow = {name for name in timed if spent[name] > SLOW_PREPARE_S}
        for name in _proven(list(spent)) if index == 0 else ():
            self.roster.row(name).prepare_s = answer["prepare_s"][name]
            self.roster.row(name).first_call_s = answer["first_call_s"][name]

    def _prepared(self, names: list[str], size: str) -> dict[str, Any]:
        answer = self._pool.each("prepare", names, size=size, dtypes=self.dtypes)
        if answer["out_of_memory"] and len(names) > 1 and not self._pool.turns:
            self.result.notes.append(APART)
            self.pool = self._pool.in_turn()
            answer = self.pool.each("prepare", names, size=size, dtypes=self.dtypes)
        return answer

    @property
    def _pool(self) -> WorkerPool:
        if self.pool is None:
            raise RuntimeError("the session has no workers before it is opened")
        return self.pool

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        """Add the time inside to the phase's seconds."""
        self.settings.progress(name, self.result)
        started = time.monotonic()
        try:
            yield
        finally:
            self.result.seconds[name] = self.result.seconds.get(name, 0.0) + time.monotonic() - started


def _proven(names: list[str]) -> list[str]:
    """All but the control: it is the baseline's own code, prepared once more for nothing but to be timed."""
    return [name for name in names if name != CONTROL]
