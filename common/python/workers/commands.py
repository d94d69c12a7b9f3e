"""The commands that a worker answers: load, prove, prepare, warm, block, why. Arguments and answers are plain JSON."""

import importlib
import inspect
import random
import sys
import traceback
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from pydantic_core import to_jsonable_python

from common.python.base.manifest import versions
from common.python.base.results import Trio, Why
from common.python.profile.profiled_why import metrics_of, why, write_snapshot
from common.python.proof.comparison import Rejected
from common.python.proof.originals import be_deterministic, left_changed, settings
from common.python.proof.preparation import Preparation, VariantError, settle
from common.python.proof.ranks import ALONE, Ranks
from common.python.proof.trials import prove, toothless
from common.python.timing.clock import Clock, is_alone, pace_us, waited_us
from common.python.timing.memoization_trials import run_trios
from common.python.timing.sampler import Sampler
from common.python.workload import Cost, Prepare, Workload

PACES, PACE_SLACK = 40, 1.15  # runs of the host's loop, and how much slower than the best of them it runs beside work


class Commands:
    """What a worker holds: one workload, its variants' `prepare` functions, and the round that is being measured."""

    def __init__(
        self, root: Path, scratch: Path, settings: dict[str, Any], say: Callable[[str, str], None], ranks: Ranks = ALONE
    ) -> None:
        """`settings` holds seed and reproducible; `say` hears which variant is at work, and on what."""
        sys.path.insert(0, str(root))  # chapters are imported as packages of the root that was asked for
        self.scratch, self.say, self.ranks = scratch, say, ranks
        self.who = "workload"  # whose code is at work
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.prepares: dict[str, Prepare] = {}
        self.prep: Any = None  # the Preparation of this round
        self.long = dict[str, float]()  # long steps, which need no warm-up
        self.held_bytes = defaultdict[tuple[str, str], list[float]](list)  # of each round, by variant and size
        self._dtypes = defaultdict[str, list[torch.dtype]](list)  # of every variant's outputs, by size
        self.refused = list[str]()  # what torch said it cannot do deterministically
        self.compiled: dict[tuple[Prepare, str], dict[str, float]] = {}  # by variant and size, the first time
        self.seeds = random.Random(settings["seed"])
        if settings["reproducible"]:
            be_deterministic(settings["seed"], self.refused)

    def perform(self, command: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Do what one of the commands that follow asks for: its value, or the error and in whose code it arose."""
        try:
            return {"value": to_jsonable_python(getattr(self, command)(**arguments))}
        except SystemExit:
            traceback.print_exc()  # the parent finds in the log which line it was
            raise
        except Exception as error:
            return failure(error if isinstance(error, VariantError) else VariantError(self.who, error))

    def at(self, who: str, what: str) -> None:
        """Note whose code is at work from here on, and on what."""
        self.who = who
        self.say(who, what)

    def describe(self) -> dict[str, Any]:
        """The device as torch sees it, versions, and the pace to hold the first pair against, in microseconds."""
        told = {"versions": versions(), "best_pace_us": PACE_SLACK * min(pace_us() for _ in range(PACES))}
        if self.device.type == "cpu":
            return told | {"device": "cpu"}
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        return told | {"device": properties.name, "uuid": str(properties.uuid)}

    def call(self, module: str, function: str, **arguments: Any) -> Any:
        """Call a function of the harness, which gets these commands first: what few workers are asked for."""
        self.at(str(arguments.get("name", function)), "measuring a peak")
        return getattr(importlib.import_module(module), function)(self, **arguments)

    def load(self, baseline: str, modules: dict[str, str], size: str) -> dict[str, Any]:
        """Import the module `baseline` and the variants' modules; facts of the workload, and who failed to load."""
        self.at(baseline.rpartition(".")[2], "import")
        self.workload = workload = workload_of(baseline, self.ranks)
        failures = {}
        for name, module in modules.items():
            self.at(name, "import")
            try:
                self.prepares[name] = prepare_of(module, workload)
            except Exception as error:
                failures[name] = str(VariantError(name, error))
        self.at("workload", "load")
        settle(self.device)  # makes the CUDA context here, and not where the first variant is prepared
        chosen = workload.shape(size)
        return {
            "failures": failures,
            "clock": workload.clock,
            "goal": workload.goal,
            "tolerance": workload.tolerance,
            "shape": chosen,
            "cost": cost_of(workload, baseline, chosen, self.ranks.size) if chosen is not None else None,
        }

    def teeth(self) -> list[str]:
        """Corruptions of a right answer that the tolerance accepts."""
        return toothless(self.prep) if self.prep.dtypes else []

    def prepare(self, names: list[str], size: str) -> dict[str, Any]:
        """Begin a round: free the last one, draw inputs, prepare the variants."""
        self.prep = None
        shape = self.workload.shape(size)
        assert shape is not None, size
        place = (self.device, self.scratch, self.seeds, self.ranks, self.at)
        prep = Preparation(self.workload, shape, size, *place, dtypes=self._dtypes[size])
        failures = prep.prepare_all({name: self.prepares[name] for name in names})
        self.prep = prep
        for name, variant in prep.variants.items():
            if first := self.compiled.get(key := (self.prepares[name], size)):  # which a later round needs no more of
                first["recompilations"] = first.get("recompilations", 0) + variant.compiled.get("graphs", 0)
            elif variant.compiled:
                self.compiled[key] = variant.compiled
            if variant.held_bytes is not None:  # a thread of autograd's may free gradients after the step returned
                self.held_bytes[name, size].append(variant.held_bytes)
                variant.held_bytes = median(self.held_bytes[name, size])
        return {
            "failures": {name: str(error) for name, error in failures.items()},
            "out_of_memory": any(error.out_of_memory for error in failures.values()),
            "prepare_s": {name: variant.prepare_s for name, variant in prep.variants.items()},
            "first_call_s": {name: variant.first_call_s for name, variant in prep.variants.items()},
        }

    def start_clock(self) -> float:
        """Calibrate the clocks. Returns what the headline clock reads for an empty step, in microseconds."""
        self.sampler = Sampler(Clock(self.device, self.ranks), self.workload.clock, long=self.long)
        return self.sampler.floor_us()

    def warm(self, names: list[str], limit_s: float, passes: int | None) -> int:
        """Warm up for `limit_s` seconds, or `passes` times. Returns the number of steps that one sample must hold."""
        return self.sampler.warm(self.prep, names, limit_s, passes)

    def block(self, order: list[str], count: int, probes: list[int], waken: bool) -> dict[str, Any]:
        """Take samples in this order; those at `probes` are proven as well.

        `waken` runs one step untimed first, for a process that has slept while others had their turn.
        """
        if waken:
            self.prep.variants[order[0]].step()
            settle(self.device)
        before, alone = pace_us(), self.sampler.on_device() or is_alone()
        waited = 0.0 if alone else waited_us()
        taken = self.sampler.block(self.prep, order, count, probes)
        waited = 0.0 if alone else waited_us() - waited
        return taken | {"paces": [before, pace_us()], "waited_us": max(0.0, waited)}

    def prove(
        self, names: list[str], when: str, trials: int, dtypes: list[str], enough_s: float | None = None
    ) -> dict[str, Any]:
        """Prove the prepared closures, the very ones that are timed. Asked and answered: the baseline's `dtypes`."""
        if dtypes:
            self.prep.dtypes[:] = [getattr(torch, name) for name in dtypes]
        proofs = prove(self.prep, names, when, trials, enough_s)
        return {"proofs": proofs, "dtypes": [str(dtype).removeprefix("torch.") for dtype in self.prep.dtypes]}

    def why(self, names: list[str], traces: str | None) -> dict[str, Any]:
        """Profile one step of each variant; traces, and memory snapshots, go to the folder `traces`, if named."""
        prepared = [self.prep.variants[name] for name in names]
        groups = [[one] for one in prepared] if traces else [prepared]  # with `traces`, a trace for each variant
        found = dict[str, Why]()
        for group in groups:
            stem = group[0].name + (f".rank{self.ranks.rank}" if self.ranks.size > 1 else "")
            trace = Path(traces) / f"{stem}.trace.json" if traces else self.scratch / "trace.json"
            long = self.long if self.ranks.size == 1 else ()  # several would have to agree on what is long
            metrics = {one.name: metrics_of(one, self.device, self.at, one.name in long) for one in group}
            found |= why(group, self.device, trace, self.at, self.ranks, self.workload.isolated)
            for name, own in metrics.items():
                found[name].metrics |= self.compiled.get((self.prepares[name], self.prep.size_name), {}) | own
        if traces and self.workload.goal == "memory" and self.device.type == "cuda":
            for one in prepared:
                write_snapshot(one.step, Path(traces) / f"{one.name}.memory.json")
        return {"why": found, "refused": self.refused}

    def trios(self, names: list[str], limit_s: float) -> dict[str, list[Trio]]:
        """Time these variants on seen and on new inputs until it is clear who remembers, or for `limit_s`."""

        def timed_us(name: str) -> float:
            self.at(name, "timing on new inputs")
            return self.sampler.step_us(self.prep, name, self.prep.variants[name].step)

        return run_trios(self.prep, names, timed_us, limit_s)


def failure(error: VariantError) -> dict[str, Any]:
    """The answer to a command that failed."""
    return {"error": str(error), "who": error.who}


# Modules of pairs: what they must have, and what importing them may not leave behind.


def workload_of(baseline: str, ranks: Ranks) -> Workload:
    """What the module `baseline` states. Raises VariantError."""
    name = baseline.rpartition(".")[2]
    before = settings()
    try:
        loaded = importlib.import_module(baseline)
        if not isinstance(getattr(loaded, "workload", None), Workload):
            raise Rejected("the baseline has no `workload = Workload(...)`: it states the problem")
        if left := left_changed("importing it", None if loaded.workload.isolated else before):
            raise Rejected(left)
        if loaded.workload.gpus > ranks.size:
            raise Rejected("gpus must stand in the baseline's `workload = Workload(...)` as a number")
    except Exception as error:
        raise VariantError(name, error) from error
    return loaded.workload


def prepare_of(module: str, workload: Workload) -> Prepare:
    """The `prepare` of a variant of this workload. Raises Rejected, and whatever importing the module raises."""
    before = settings()
    try:
        loaded = importlib.import_module(module)
    finally:
        left = left_changed("importing it", None if workload.isolated else before)
    if left:
        raise Rejected(left)
    if getattr(loaded, "workload", None) is not workload:
        raise Rejected("its workload is not its baseline's: import it from there (`import workload as workload`)")
    if not callable(getattr(loaded, "prepare", None)):
        raise Rejected("it has no `prepare`: a function of the inputs that returns a step")
    return loaded.prepare


def cost_of(workload: Workload, baseline: str, shape: dict[str, Any], ranks: int = 1) -> list[Cost]:
    """The least traffic and work at this shape, by phase; with `ranks` 1, of the fewest ranks. Raises VariantError."""
    try:
        told = {"ranks": ranks} if ranks > 1 and "ranks" in inspect.signature(workload.cost).parameters else {}
        cost = workload.cost(**shape, **told)
        return [Cost.model_validate(phase) for phase in (cost if isinstance(cost, list) else [cost])]
    except Exception as error:
        name = baseline.rpartition(".")[2]
        raise VariantError(name, f"its cost fails at {shape}: {VariantError(name, error, workload.cost)}") from error
