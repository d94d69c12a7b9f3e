"""One pair from files to row: proven at `test` size, then rounds of prepare, warm up, sample and prove again."""

import math
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from common.python import memoization_check, schedule
from common.python.crew import Crew
from common.python.discovery import Pair
from common.python.judgement import enough, judge
from common.python.results import AFTER, BEFORE, CONTROL, NOT_ALONE, Block, Cost, PairResult, Trio, Why
from common.python.roster import Roster
from common.python.round_blocks import blocks_by
from common.python.schedule import move_seconds
from common.python.settings import Settings
from common.python.sharing import Share
from common.python.telemetry import harmful, host_load, pace_deviation, usual_pace_us, worst
from common.python.untrue_times import beyond_wall
from common.python.worker import Worker, WorkerError

SLOW_PREPARE_S = 1.0  # a variant that is so slow to prepare even a second time gets fewer rounds
FIRST_WARM_S = 0.03  # of warming up before the first round; before the others each variant runs once
LOOK_S = 0.03  # between two looks at the GPU's clocks and heat
PROBES = 2  # blocks, of as many rounds, in which a sample of each variant is proven while it is timed


@dataclass
class Session:
    """The state of one session; `run` is the story."""

    pair: Pair
    roster: Roster
    settings: Settings
    result: PairResult
    crew: Crew | None = None
    share: Share = field(init=False)
    dtypes: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    probes: list[tuple[int, float]] = field(default_factory=list)  # the round, and where in it
    count: int = 1  # steps in a sample
    usual: int = schedule.FEW_BLOCKS  # blocks of a round, until its first one tells
    opened_s: float = 0.0  # spent beside sampling until the first round had ended
    plan: list[int] | None = None  # blocks of each round, where their number was asked for
    looked: int = 0  # blocks whose telemetry has been read
    looked_s: float = 0.0  # when
    slow: set[str] = field(default_factory=set)
    rng: random.Random = field(default_factory=random.Random)

    def run(self) -> PairResult:
        """Prove, measure, judge. Whatever user code does ends up in the result, not as an exception.

        Raises Ended if all sessions are told to end, and Crowded if others' memory is needed.
        """
        self.rng.seed(self.settings.seed)
        self.plan, self.result.seed = schedule.fixed_plan(self.settings.iterations), self.settings.seed
        with nullcontext(given) if (given := self.settings.share) else Share() as self.share:
            self.result.seconds = self.share.seconds
            self._run()
            self.result.load = host_load()
            earlier = list(self.settings.earlier())
            self.result.usual_pace_us = usual_pace_us(earlier)
            self.result.pace_deviation = pace_deviation([*earlier, self.result])
        return judge(self.result, self.settings.peaks)

    def _run(self) -> None:
        try:
            with self._phase("start"):
                self._open()
            for size in self.settings.to_prove_at(timed=self.facts["shape"] is not None):
                self._prove_at(size)
            if self.roster.timed and not self.roster.nothing_left():
                self._measure()
        except WorkerError as error:
            self.roster.blame(error.who, error.reason)
        finally:
            if self.crew is not None:
                self.crew.see_off()
                self.result.log = self.crew.logs()
            self.roster.close(self.settings.launch.ranks(self.pair.gpus))

    def _open(self) -> None:
        apart = self.pair.isolated or self.settings.cold_start
        load = {"baseline": self.roster.baseline_module, "size": self.settings.size}
        self.crew = Crew(self._hire, self.roster.modules(), apart, self.settings.time_limit_s, load, self.share)
        self.facts = self.crew.facts
        self.roster.exclude_each(self.facts["failures"])
        result, facts = self.result, self.facts
        result.clock, result.goal, result.tolerance = facts["clock"], facts["goal"], facts["tolerance"]
        if self.settings.device == "cpu":
            result.clock = "end_to_end"  # the only clock there is
        if facts["shape"] is not None:
            result.size, result.shape = self.settings.size, facts["shape"]
            result.cost = Cost(**facts["cost"])
        before = 0.0
        for phase, done in facts["started"].items():  # of ranks: their processes, CUDA contexts and process group
            move_seconds(result.seconds, done - before, "start", phase)
            before = done

    def _hire(self, index: int, fresh: bool) -> Worker:
        fresh = fresh and bool(self.roster.timed)  # a fork is apart enough for a proof, and there ten times sooner
        if not self.settings.has_room():
            self.share.settle()
        return self.settings.hire(self.pair, index, fresh)

    def _prove_at(self, size: str) -> None:
        """The baseline first: its dtypes are everybody's, its answer tests the tolerance, no rung is at work yet."""
        names = self.roster.everybody
        self.dtypes = []  # a size may have its own
        for share in (names[:1], names[1:]):
            share = self.roster.living(share)
            if share and not self.roster.nothing_left():
                self._prepare(share, size)
                self._prove(self.roster.living(share), BEFORE, schedule.TRIALS)
                if names[0] in share:
                    self.dtypes = self._crew.first("dtypes")
                if names[0] in share and size == "test":
                    with self._phase("proof"):
                        accepted = self._crew.first("teeth")
                    if accepted:
                        self.roster.exclude_all(f"the tolerance would accept: {', '.join(accepted)}")

    def _measure(self) -> None:
        """Rounds until the interval is narrow, or the counts asked for are reached, or the time is up."""
        if self.facts["shape"] is None:
            self.result.notes.append(f"no {self.settings.size!r} size: proven at test size only")
            return
        plan = self.plan
        rounds = len(plan) if plan else schedule.FEWEST_ROUNDS
        self.probes = [(r % rounds, self.rng.random()) for r in self.rng.sample(range(max(rounds, PROBES)), PROBES)]
        self.dtypes, index, closing = [], 0, 0
        while index < (len(plan) if plan else schedule.MOST_ROUNDS):
            everybody = plan is not None or closing > 0 or not self.slow
            if not self._round(index, plan[index] if plan else None, everybody):
                return
            index += 1
            self.settings.progress("round", judge(self.result, self.settings.peaks))
            if plan is None and (closing == 1 or not self.slow) and self._enough(index):
                break
            if closing:
                closing = max(closing - 1, 1)
            elif plan is None and self._enough(index + schedule.CLOSING):
                closing = schedule.CLOSING
        self._find_memories()
        self.share.gib = self._crew.most_gib()
        with self._phase("why"):
            traces = str(self.settings.folder / "profiles") if self.settings.profile else None
            for name, why in self._crew.each("why", _proven(self.roster.active()), traces=traces).items():
                self.roster.row(name).why = Why(**why)
        if self.settings.reproducible:
            refused = self._crew.refusals()
            self.result.notes += [f"not deterministic: {text}" for text in refused]

    def _find_memories(self) -> None:
        """Test the variants that took longer on new inputs, for whether they remember answers."""
        tested = memoization_check.suspects(self.result, _proven(self.roster.active()))
        limit_s = min(memoization_check.LIMIT_PART * self.settings.time_limit_s, self._crew.left_s() / 2)
        if tested and self.pair.gpus == 1 and not self.settings.reproducible:  # with it what is drawn may not vary
            limit_s /= len(tested) if len(self._crew.apart(tested)) > 1 else 1  # by workers, one after the other
            with self._phase("proof"), self._crew.alone(partial(self.settings.crowded, self.share.pids)):
                for name, trios in self._crew.each("trios", tested, limit_s=limit_s).items():
                    self.roster.row(name).trios = [Trio(**trio) for trio in trios]

    def _round(self, index: int, blocks: int | None, everybody: bool) -> bool:
        """Fresh inputs and closures, warm-up, blocks, proof. False when nothing is left to measure."""
        self._prepare(self._partakers(everybody), self.settings.size, index)
        if index == 0:
            most_s = schedule.enough_of_proofs(self.settings.budget_s, self.share.company())
            enough_s = None if self.settings.reproducible else most_s  # with it what is drawn may vary
            for share in self._crew.apart(_proven(self.roster.active())):
                self._prove(share, BEFORE, schedule.TRIALS, enough_s)
                self.dtypes = self.dtypes or self._crew.first("dtypes")
            if not self.settings.reproducible:
                with self._phase("proof"):
                    self._crew.pose(self.roster.active())
        if self.roster.nothing_left():
            return False
        with ExitStack() as alone:
            self._sample(index, blocks, self._partakers(everybody), alone)
        self._prove(_proven(self._partakers(everybody)), AFTER, 1)
        if index == 0:
            self.opened_s = schedule.beside_s(self.result.seconds)
        return not self.roster.nothing_left()

    def _sample(self, index: int, blocks: int | None, names: list[str], alone: ExitStack) -> None:
        """Warm up and take the round's blocks, with the machine to itself as long as `alone` is open."""
        with self._phase("warm-up"):
            if not alone.enter_context(self._crew.alone(partial(self.settings.crowded, self.share.pids))):
                self.result.notes = list(dict.fromkeys([*self.result.notes, NOT_ALONE]))
            if index == 0:
                self.result.floor_us = self._crew.start_clocks()
            limit_s = FIRST_WARM_S if index == 0 else 0.0
            count = self._crew.warm(names, limit_s, schedule.warm_passes(self.plan, self.settings.warmup))
            self.count = count if index == 0 else self.count
        with self._phase("samples"):
            done, total = 0, blocks or self.usual
            while (done < total or schedule.due(self.probes, index, done, total)) and not self.roster.nothing_left():
                took = self._block(index, names, done, total)
                done += 1
                if time.monotonic() - self.looked_s > LOOK_S:
                    self._look()
                if blocks is None and done == 1:
                    beside_s = (schedule.beside_s(self.result.seconds) - self.opened_s) / index if index else 0.0
                    total = self.usual = blocks_by(self.result, self.settings.budget_s, took, beside_s)
                    if index == 0 and total == 1:  # which was not known when its only block began
                        self.probes = schedule.put_off(self.probes, index)
            self._look()

    def _look(self) -> None:
        """What NVML sees now counts for all blocks since it was last asked, which takes a millisecond."""
        unseen = self.result.blocks[self.looked :]
        if unseen and (gpus := self.settings.read_gpus(self.share.pids)):
            for block in unseen:
                block.telemetry, block.gpus = worst(gpus), gpus if self.pair.gpus > 1 else []
                block.discarded = harmful(block.telemetry)
        self.looked, self.looked_s = len(self.result.blocks), time.monotonic()

    def _block(self, index: int, names: list[str], done: int, total: int) -> float:
        controlled = schedule.has_control(done, self.result.clock)
        names = [name for name in names if name in self.roster.active() and (name != CONTROL or controlled)]
        order = self.rng.sample(names, len(names))
        order += reversed(order)
        probed = schedule.due(self.probes, index, done, total)
        self.probes = [probe for probe in self.probes if probe not in probed]
        probes = [order.index(name) for name in _proven(names)] if probed else []
        started = time.monotonic()
        enough_s = schedule.enough_of_a_pass(self.settings.budget_s, self.result.clock, self.plan)
        answer = self._crew.block(order, self.count, probes, enough_s)
        move_seconds(self.result.seconds, answer["proof_s"], "samples", "proof")
        wall_s = time.monotonic() - started
        took = wall_s - answer["proof_s"]
        taken = {key: answer[key] for key in ("samples", "walls", "late", "retaken", "paces")}
        self.result.blocks.append(Block(round=index, steps=self.count, **taken))
        if reason := beyond_wall(self.result.blocks[-1], wall_s):
            self.roster.exclude_all(reason)
        self.result.best_pace_us = min([*answer["paces"], self.result.best_pace_us or math.inf])
        self.roster.take_proofs(answer["proofs"])
        return took

    def _enough(self, rounds: int) -> bool:
        late = schedule.out_of_time(self.result.seconds, self.settings.budget_s, self.opened_s)
        rungs = [name for name in self.roster.active() if self.roster.row(name).role == "optimized"]
        return enough(self.result, [name for name in rungs if name not in self.slow], rounds, late)

    def _partakers(self, everybody: bool) -> list[str]:
        """Who is timed in this round: what takes seconds to prepare anew is in the first two and the last ones only."""
        return [name for name in self.roster.active() if everybody or name not in self.slow]

    def _prove(self, names: list[str], when: str, trials: int, enough_s: float | None = None) -> None:
        asked = {"when": when, "trials": trials, "dtypes": self.dtypes, "enough_s": enough_s}
        with self._phase("proof"):
            self.roster.take_proofs(self._crew.each("prove", names, **asked))

    def _prepare(self, names: list[str], size: str, index: int | None = None) -> None:
        """Prepare these for the round of this index, or for a proof. What compiles does so once: the second tells."""
        phase, spent_s = "proof" if index is None else "prepare", self.result.seconds
        before_s = spent_s.get(phase, 0.0)
        with self._phase(phase):
            answer = self._prepared(names, size)
        move_seconds(spent_s, (spent_s[phase] - before_s) * answer["asked_s"] / answer["took_s"], phase, "proof")
        self.roster.exclude_each(answer["failures"])
        spent = {name: answer["prepare_s"][name] + answer["first_call_s"][name] for name in answer["prepare_s"]}
        if index == 1 and not self.settings.iterations:
            timed = {name for name in spent if self.roster.row(name).role != "baseline"}
            self.slow = {name for name in timed if spent[name] > SLOW_PREPARE_S}
        for name in _proven(list(spent)) if index == 0 else ():
            self.roster.row(name).prepare_s = answer["prepare_s"][name]
            self.roster.row(name).first_call_s = answer["first_call_s"][name]

    def _prepared(self, names: list[str], size: str) -> dict[str, Any]:
        answer = self._crew.each("prepare", names, size=size, dtypes=self.dtypes)
        if answer["out_of_memory"] and self.share.find_room():
            return self._prepared(names, size)
        if answer["out_of_memory"] and len(names) > 1 and not self._crew.turns:
            self.result.notes.append("the variants do not fit in memory together: each ran alone, in its own process")
            self.crew = self._crew.in_turn()
            answer = self.crew.each("prepare", names, size=size, dtypes=self.dtypes)
        return answer

    @property
    def _crew(self) -> Crew:
        if self.crew is None:
            raise RuntimeError("the session has no workers before it is opened")
        return self.crew

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        """Add its part of the time that the sessions take to the phase's seconds."""
        self.settings.progress(name, self.result)
        with self.share.phase(name):
            yield


def _proven(names: list[str]) -> list[str]:
    """All but the control: it is the baseline's own code, prepared once more for nothing but to be timed."""
    return [name for name in names if name != CONTROL]
