"""The commands that a worker answers: load, prove, prepare, warm, block, why. Arguments and answers are plain JSON."""

import importlib
import math
import random
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from common.python import foretold
from common.python.clock import CpuClock, GpuClock, pace_us, restore
from common.python.compile_caches import keep_no_choices, share_kernels
from common.python.memory_history import write_snapshot
from common.python.preparation import Preparation, Prepared, VariantError, settle
from common.python.process_settings import put_back, settings
from common.python.profiling import why
from common.python.proof import prove, toothless
from common.python.quiet_core import QuietCore
from common.python.ranks import ALONE, Ranks
from common.python.results import Proof, Why
from common.python.sampling import Sampler, stay
from common.python.verification import Rejected
from common.python.workload import Prepare, Workload


class Bench:
    """What a worker holds: one workload, its variants' `prepare` functions, and the round that is being measured."""

    def __init__(
        self, root: Path, scratch: Path, settings: dict[str, Any], at: Callable[[str, str], None], ranks: Ranks = ALONE
    ) -> None:
        sys.path.insert(0, str(root))  # chapters are imported as packages of the root that was asked for
        share_kernels()
        self.scratch, self.settings, self.at, self.ranks = scratch, settings, at, ranks
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.prepares: dict[str, Prepare] = {}
        self.prep: Preparation | None = None
        self.refused: list[str] = []
        self.compiled: dict[tuple[Prepare, str], dict[str, float]] = {}  # first at a size; the control may be first
        self.seeds = random.Random(settings["seed"])
        self.seek = QuietCore().seek if ranks.size == 1 else stay  # ranks would all find the same core
        if settings["reproducible"]:
            self._reproducible()

    def _reproducible(self) -> None:
        torch.manual_seed(self.settings["seed"])
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cudnn.benchmark = False

        def note(message: Warning | str, *_: Any, **__: Any) -> None:
            if "deterministic" in str(message) and str(message) not in self.refused:
                self.refused.append(str(message))

        warnings.showwarning = note
        warnings.simplefilter("always")

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

    def get_ready(self, **script: Any) -> list[dict[str, Any]]:
        """What `foretold.get_ready` does, which only workers in reserve are asked."""
        return foretold.get_ready(self.device, self.scratch, self.at, self.perform, **script)

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
        self.workload = workload = self._workload_of(baseline)
        failures = {}
        for name, module in modules.items():
            self.at(name, "import")
            try:
                self.prepares[name] = self._prepare_of(module)
            except Exception as error:
                failures[name] = str(VariantError(name, error))
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
            "cost": self._cost(baseline, chosen) if chosen is not None else None,
        }

    def _cost(self, baseline: str, shape: dict[str, Any]) -> dict[str, Any]:
        try:
            return self.workload.cost(**shape).model_dump()
        except Exception as error:
            wrong = Rejected(f"its cost fails at {shape}: {type(error).__name__}: {error}")
            raise VariantError(baseline.rpartition(".")[2], wrong) from error

    def _workload_of(self, baseline: str) -> Workload:
        name = baseline.rpartition(".")[2]
        self.at(name, "import")
        before = settings()
        try:
            loaded = importlib.import_module(baseline)
            if not isinstance(getattr(loaded, "workload", None), Workload):
                raise Rejected("the baseline has no `workload = Workload(...)`: it states the problem")
            if not loaded.workload.isolated and (left := put_back(before)):
                raise Rejected(f"importing it left {' and '.join(left)} changed")
            if loaded.workload.gpus > self.ranks.size:
                raise Rejected("gpus must stand in the baseline's `workload = Workload(...)` as a number")
        except Exception as error:
            raise VariantError(name, error) from error
        workload: Workload = loaded.workload
        return workload

    def _prepare_of(self, module: str) -> Prepare:
        before = settings()
        try:
            loaded = importlib.import_module(module)
        finally:
            left = [] if self.workload.isolated else put_back(before)
        if left:
            raise Rejected(f"importing it left {' and '.join(left)} changed")
        if replaced := restore():
            raise Rejected(f"importing it replaced {', '.join(replaced)}")
        if getattr(loaded, "workload", None) is not self.workload:
            raise Rejected("its workload is not its baseline's: import it from there (`import workload as workload`)")
        if not callable(getattr(loaded, "prepare", None)):
            raise Rejected("it has no `prepare`: a function of the inputs that returns a step")
        prepare: Prepare = loaded.prepare
        return prepare

    def teeth(self) -> list[str]:
        """Corruptions of a right answer that the tolerance accepts."""
        assert self.prep is not None
        return toothless(self.prep) if self.prep.dtypes else []

    def dtypes(self) -> list[str]:
        """What the baseline returned, and so every variant must."""
        assert self.prep is not None
        return [str(dtype).removeprefix("torch.") for dtype in self.prep.dtypes]

    def _expect(self, dtypes: list[str]) -> None:
        if self.prep is not None and dtypes:
            self.prep.dtypes = [getattr(torch, name) for name in dtypes]

    def prepare(self, names: list[str], size: str, dtypes: list[str]) -> dict[str, Any]:
        """Begin a round: free the last one, draw inputs, prepare the variants."""
        self.prep = None
        shape = dict(self.workload.sizes[size])
        prep = Preparation(self.workload, shape, size, self.device, self.scratch, self.seeds, self.ranks)
        failures = prep.prepare_all({name: self.prepares[name] for name in names}, self.at)
        self.prep = prep
        self._expect(dtypes)
        ready = [name for name in names if name in prep.variants]
        for name in ready:
            self._note_compiled((self.prepares[name], size), prep.variants[name].compiled)
        return {
            "failures": {name: str(error) for name, error in failures.items()},
            "out_of_memory": any(error.out_of_memory for error in failures.values()),
            "prepare_s": {name: prep.variants[name].prepare_s for name in ready},
            "first_call_s": {name: prep.variants[name].first_call_s for name in ready},
        }

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
        return self.sampler.floor_us()

    def warm(self, names: list[str], limit_s: float, passes: int | None) -> int:
        """Warm up until steady, or `passes` times; the number of steps that one sample must hold."""
        assert self.prep is not None
        return self.sampler.warm(self.prep, names, limit_s, self.at, passes)

    def block(self, order: list[str], count: int, probes: list[int], waken: bool) -> dict[str, Any]:
        """Take samples in this order; those at the indices `probes` are proven as well.

        `waken` runs one step untimed first, for a process that has slept while others had their turn.
        """
        assert self.prep is not None
        if waken:
            self.prep.variants[order[0]].step()
            settle(self.device)
        self.sampler.find_core()
        before = pace_us()
        taken = self.sampler.block(self.prep, order, count, probes, self.at)
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
        """Prove the prepared closures, the very ones that are timed, `trials` times or for `enough_s` seconds."""
        assert self.prep is not None
        self._expect(dtypes)
        proofs = prove(self.prep, names, when, trials, at=self.at, enough_s=enough_s)
        if replaced := restore():
            raise VariantError(names[-1], Rejected(f"a step replaced {', '.join(replaced)}"))
        return _dump(proofs)

    def why(self, names: list[str], traces: str | None) -> dict[str, Any]:
        """Profile one step of each variant; traces, and memory snapshots, go to the folder `traces`, if named."""
        assert self.prep is not None
        prepared = [self.prep.variants[name] for name in names]
        groups = [[one] for one in prepared] if traces else [prepared]  # a trace of its own for whoever asked for it
        found: dict[str, Why] = {}
        for group in groups:
            stem = group[0].name + (f".rank{self.ranks.rank}" if self.ranks.size > 1 else "")
            trace = Path(traces) / f"{stem}.trace.json" if traces else self.scratch / "trace.json"
            told = {one.name: self._metrics(one) for one in group}
            found |= why(group, self.device, trace, self.at, self.ranks, self.workload.isolated)
            for name, metrics in told.items():
                found[name].metrics = metrics
        if traces and self.workload.goal == "memory" and self.device.type == "cuda":
            for one in prepared:
                write_snapshot(one.step, Path(traces) / f"{one.name}.memory.json")
        return {name: seen.model_dump() for name, seen in found.items()}

    def _metrics(self, one: Prepared) -> dict[str, float]:
        assert self.prep is not None
        compiled = self.compiled.get((self.prepares[one.name], self.prep.size_name), {})
        if one.metrics is None:
            return compiled
        self.at(one.name, "metrics")
        try:
            one.step()
            settle(self.device)
            told = {str(name): float(value) for name, value in one.metrics().items()}
            if wrong := sorted(name for name, value in told.items() if not math.isfinite(value)):
                raise Rejected(f"metrics gave what is no finite number for {', '.join(wrong)}")
        except Exception as error:
            raise VariantError(one.name, error) from error
        return compiled | told

    def refusals(self) -> list[str]:
        """What torch said it cannot do deterministically, with --reproducible."""
        return self.refused


def _dump(proofs: dict[str, list[Proof]]) -> dict[str, Any]:
    return {name: [proof.model_dump() for proof in found] for name, found in proofs.items()}
