"""The commands that a worker answers: load, prove, prepare, warm, block, why. Arguments and answers are plain JSON."""

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from common.python.clock import CpuClock, GpuClock, await_others, pace_us, restore
from common.python.compile_caches import choose_alone, keep_no_choices, share_kernels
from common.python.held_memory import HeldMemory
from common.python.loading import cost_of, prepare_of, workload_of
from common.python.memoization_check import run_trios
from common.python.memory_history import write_snapshot
from common.python.preparation import Preparation, VariantError, free, settle
from common.python.process_settings import be_deterministic
from common.python.profiling import metrics_of, why
from common.python.proof import prove, toothless
from common.python.quiet_core import QuietCore
from common.python.ranks import ALONE, Ranks
from common.python.results import AFTER, Proof, Why
from common.python.round_proof import RoundProof, pose, worth_it
from common.python.sampling import Sampler, stay
from common.python.verification import Rejected
from common.python.workload import Prepare

PATIENCE_S, NO_MORE_S = 3.0, 0.05  # with what other processes have on the GPU
CONTEXT_GIB = 1.0  # more than a process has beside what its allocator reserves, which is hundreds of MiB


class Bench:
    """What a worker holds: one workload, its variants' `prepare` functions, and the round that is being measured."""

    def __init__(
        self,
        root: Path,
        scratch: Path,
        settings: dict[str, Any],
        at: Callable[[str, str], None],
        ranks: Ranks = ALONE,
        want: Callable[[], AbstractContextManager[bool]] = lambda: nullcontext(False),
        stopped_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`want` asks for the machine to itself: inside, no other session is at work, but its kernels still may be.

        `stopped_s` says for how long this process has been stopped, for others to have it.
        """
        sys.path.insert(0, str(root))  # chapters are imported as packages of the root that was asked for
        share_kernels()
        self.want, self.stopped_s, self.patience_s, self.quiet = want, stopped_s, PATIENCE_S, True  # no others
        choose_alone(self.alone)
        self.scratch, self.settings, self.at, self.ranks = scratch, settings, at, ranks
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.prepares: dict[str, Prepare] = {}
        self.prep: Preparation | None = None
        self.long, self.asks = dict[str, float](), False  # steps not to warm up; whether all samples are proven
        self.asked: RoundProof | None = None  # what those of this one are asked
        self.held, self.refused = HeldMemory(), list[str]()
        self.compiled: dict[tuple[Prepare, str], dict[str, float]] = {}  # first at a size; the control may be first
        self.seeds = random.Random(settings["seed"])
        self.seek = QuietCore().seek if ranks.size == 1 else stay  # ranks would all find the same core
        if settings["reproducible"]:
            be_deterministic(settings["seed"], self.refused)

    def perform(self, command: str, arguments: dict[str, Any]) -> Any:
        """Answer one of the commands that follow."""
        return getattr(self, command)(**arguments)

    def describe(self) -> dict[str, Any]:
        """The device as torch sees it."""
        if self.device.type == "cpu":
            return {"device": "cpu", "cuda_build": torch.version.cuda, "torch": torch.__version__}
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        return {"device": properties.name, "uuid": str(properties.uuid), "torch": torch.__version__}

    def quiet_pace_us(self) -> float | None:
        """What the first pair's pace is held against."""
        return QuietCore().quiet_us()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Have the machine to itself inside, for what is timed or profiled on this worker's own account."""
        with self.want() as others:
            self.quiet &= not others or self.await_device()
            yield

    def most_gib(self) -> float:
        """Of the GPU's memory, that this process has held at most: what its allocator had reserved, and its context."""
        return torch.cuda.max_memory_reserved() / 2**30 + CONTEXT_GIB if self.device.type == "cuda" else 0.0

    def await_device(self, least_s: float = 0.0) -> bool:
        """Return when the GPU has done what other processes, which have been stopped, had enqueued; False if not soon.

        Then somebody is on it who stays: as long as he does, he is given `least_s` to be gone.
        """
        done = self.device.type == "cpu" or await_others(max(self.patience_s, least_s))
        self.patience_s = PATIENCE_S if done else NO_MORE_S
        return done

    def peak_plan(self) -> dict[str, Any]:
        """The peaks that can be asked for."""
        from common.python import peaks  # few workers are asked for peaks, and each imports this module

        return peaks.plan()

    def peak(self, name: str) -> dict[str, Any]:
        """Measure one of them."""
        from common.python import peaks

        self.at(name, "measuring a peak")
        return peaks.measure(name, self.scratch).model_dump()

    def link(self, name: str, sizes: list[int]) -> dict[str, Any]:
        """Measure what a kind of message between ranks takes, over these sizes in bytes: its peak and its curve."""
        from common.python import peaks_ranks

        self.at(name, "measuring a peak")
        peak, curve = peaks_ranks.measure(name, sizes, self.ranks)
        return {"peak": peak.model_dump(), "curve": curve and curve.model_dump()}

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
        settle(self.device)  # which makes the CUDA context here, and not where the first variant is prepared
        chosen = dict(workload.sizes[size]) if size in workload.sizes else None
        return {
            "failures": failures,
            "started": self.ranks.started,
            "clock": workload.clock,
            "goal": workload.goal,
            "gpus": workload.gpus,
            "isolated": workload.isolated,
            "mutates": list(workload.mutates),
            "tolerance": workload.tolerance,
            "shape": chosen,
            "cost": cost_of(workload, baseline, chosen) if chosen is not None else None,
        }

    def teeth(self) -> list[str]:
        """Corruptions of a right answer that the tolerance accepts."""
        return toothless(self._prepared) if self._prepared.dtypes else []

    def dtypes(self) -> list[str]:
        """What the baseline returned, and so every variant must."""
        return [str(dtype).removeprefix("torch.") for dtype in self._prepared.dtypes]

    @property
    def _prepared(self) -> Preparation:
        assert self.prep is not None
        return self.prep

    def _expect(self, dtypes: list[str]) -> None:
        if self.prep is not None and dtypes:
            self.prep.dtypes = [getattr(torch, name) for name in dtypes]

    def prepare(self, names: list[str], size: str, dtypes: list[str]) -> dict[str, Any]:
        """Begin a round: free the last one, draw inputs, prepare the variants."""
        self.prep = self.asked = None
        place = (dict(self.workload.sizes[size]), size, self.device, self.scratch, self.seeds, self.ranks)
        prep = Preparation(self.workload, *place, stopped_s=self.stopped_s, drawn=self._ask)
        started = prep.now_s()
        failures = prep.prepare_all({name: self.prepares[name] for name in names}, self.at)
        self.prep = self.held.over_rounds(prep)
        self._expect(dtypes)
        for name in (ready := [name for name in names if name in prep.variants]):
            self._note_compiled((self.prepares[name], size), prep.variants[name].compiled)
        return {
            "failures": {name: str(error) for name, error in failures.items()},
            "out_of_memory": any(error.out_of_memory for error in failures.values()),
            "prepare_s": {name: prep.variants[name].prepare_s for name in ready},
            "first_call_s": {name: prep.variants[name].first_call_s for name in ready},
            "took_s": prep.now_s() - started,
            "asked_s": self.asked.took_s if self.asked else 0.0,
        }

    def _ask(self, prep: Preparation) -> None:
        if self.asks:
            self.asked = pose(prep)
            free()  # so that variants prepare in a memory like that of other rounds

    def pose(self, names: list[str]) -> dict[str, Any]:
        """From this round on prove all samples, if that is worth it; else, and until then, a few are."""
        self.asks = self.workload.clock == "end_to_end" and worth_it(self._prepared, names)
        self.asked = pose(self._prepared) if self.asks else None
        return {}

    def fill_caches(self, baseline: str, name: str, module: str, size: str, chooses: bool) -> bool:
        """Compile what the variant compiles at `test` size and at this one, for other processes to find on disk.
        `chooses`: it times kernels against each other while it compiles. Whether all of it worked.
        """
        keep_no_choices(self.scratch / "graphs" if chooses else None)
        if self.load(baseline, {name: module}, size)["failures"]:
            return False
        sizes = [each for each in dict.fromkeys(["test", size]) if each in self.workload.sizes]
        return not any(self.prepare([name], each, [])["failures"] for each in sizes)

    def _note_compiled(self, key: tuple[Prepare, str], compiled: dict[str, float]) -> None:
        """What is compiled of it after the first time is compiled again, which no later round should have to."""
        if first := self.compiled.get(key):
            first["recompilations"] = first.get("recompilations", 0) + compiled.get("graphs", 0)
        elif compiled:
            self.compiled[key] = compiled

    def start_clock(self) -> float:
        """Calibrate the clocks; the time an empty step reads on the headline clock, in microseconds."""
        meetings = [self.ranks.meet, self.ranks.enqueue_meeting] if self.ranks.size > 1 else []
        clock = GpuClock(*meetings) if self.device.type == "cuda" else CpuClock(*meetings[:1])
        self.sampler = Sampler(clock, self.workload.clock, self.seek)
        self.long = self.sampler.long
        return self.sampler.floor_us()

    def warm(self, names: list[str], limit_s: float, passes: int | None) -> int:
        """Warm up until steady, or `passes` times; the number of steps that one sample must hold."""
        return self.sampler.warm(self._prepared, names, limit_s, self.at, passes)

    def block(
        self, order: list[str], count: int, probes: list[int], waken: bool, enough_s: float | None = None
    ) -> dict[str, Any]:
        """Take samples in this order; those at `probes` are proven as well; half of it, where that takes `enough_s`.

        `waken` runs one step untimed first, for a process that has slept while others had their turn.
        """
        if waken:
            self._prepared.variants[order[0]].step()
            settle(self.device)
        self.sampler.find_core()
        before = pace_us()
        taken = self.sampler.block(self._prepared, order, count, probes, self.at, enough_s, self.asked)
        return {
            "paces": [before, pace_us()],
            "samples": [sample.model_dump() for sample in taken.samples],
            "walls": [sample.model_dump() for sample in taken.walls],
            "late": taken.late,
            "retaken": taken.retaken,
            "proofs": _dump(taken.proofs),
            "proof_s": taken.proof_s,
        }

    def prove(
        self, names: list[str], when: str, trials: int, dtypes: list[str], enough_s: float | None = None
    ) -> dict[str, Any]:
        """Prove the prepared closures, the very ones that are timed; after a round its samples may be the proof."""
        self._expect(dtypes)
        if self.asked and when == AFTER:
            proofs, self.asked = self.asked.finish(names), None
        else:
            proofs = prove(self._prepared, names, when, trials, at=self.at, enough_s=enough_s)
        if replaced := restore():
            raise VariantError(names[-1], Rejected(f"a step replaced {', '.join(replaced)}"))
        return _dump(proofs)

    def why(self, names: list[str], traces: str | None) -> dict[str, Any]:
        """Profile one step of each variant; traces, and memory snapshots, go to the folder `traces`, if named."""
        prepared = [self._prepared.variants[name] for name in names]
        groups = [[one] for one in prepared] if traces else [prepared]  # a trace of its own for whoever asked for it
        found, self.quiet = dict[str, Why](), True
        for group in groups:
            stem = group[0].name + (f".rank{self.ranks.rank}" if self.ranks.size > 1 else "")
            trace = Path(traces) / f"{stem}.trace.json" if traces else self.scratch / "trace.json"
            with self.alone() if any(one.metrics for one in group) else nullcontext():  # they may be times
                told = {one.name: metrics_of(one, self.device, self.at, one.name in self.long) for one in group}
            found |= why(group, self.device, trace, self.at, self.ranks, self.workload.isolated, self.alone)
            for name, metrics in told.items():
                found[name].busy_us = found[name].busy_us if self.quiet else None  # others' are in it
                found[name].metrics = self.compiled.get((self.prepares[name], self._prepared.size_name), {}) | metrics
        if traces and self.workload.goal == "memory" and self.device.type == "cuda":
            for one in prepared:
                write_snapshot(one.step, Path(traces) / f"{one.name}.memory.json")
        return {name: seen.model_dump() for name, seen in found.items()}

    def trios(self, names: list[str], limit_s: float) -> dict[str, Any]:
        """Time these variants on seen and on new inputs until it is clear who remembers, or for `limit_s`."""

        def timed_us(name: str) -> float:
            self.at(name, "timing on new inputs")
            return self.sampler.step_us(self._prepared, name, self._prepared.variants[name].step)

        found = run_trios(self._prepared, names, timed_us, limit_s)
        return {name: [trio.model_dump() for trio in trios] for name, trios in found.items()}

    def refusals(self) -> list[str]:
        """What torch said it cannot do deterministically, with --reproducible."""
        return self.refused


def _dump(proofs: dict[str, list[Proof]]) -> dict[str, Any]:
    return {name: [proof.model_dump() for proof in found] for name, found in proofs.items()}
