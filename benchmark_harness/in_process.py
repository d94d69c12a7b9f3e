"""`compare`: two functions of this process, proven and timed by the session that `benchmark_cli run` gives a pair.

A notebook's functions cannot be imported elsewhere, so here no worker process is started: `Here` does a worker's work.
"""

import gc
import io
import math
import os
import random
import re
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import ValidationError
from rich.console import Console, ConsoleOptions
from rich.table import Table

from common.python.base.lock import hold
from common.python.base.machine import machine
from common.python.base.results import ClockName, Cost, Interval, PairResult, Role, Verdict
from common.python.base.safe_read import first_of
from common.python.corpus.discovery import Pair, Variant
from common.python.corpus.targets import Folder
from common.python.peaks import store
from common.python.performance_targets import Peaks, datasheet_peaks
from common.python.proof.preparation import VariantError
from common.python.report.rows import pair_line, suite_table
from common.python.requirements import Requirements
from common.python.run.session import Session, Settings
from common.python.run.variant_status import Roster, new_result
from common.python.stats.sampling_plan import BUDGET_S
from common.python.timing.telemetry import Monitor
from common.python.workers.commands import Commands, failure
from common.python.workers.process import Worker, WorkerError
from common.python.workload import Inputs, Output, Prepare, Workload

ONE_SIZE: dict[str, dict[str, Any]] = {"bench": {}, "test": {}}
UNGUARDED = (
    "timed in this process: what it had loaded, allocated and set before is part of these times, and a hang or a crash "
    "would have ended it; `benchmark_cli run` gives a pair a process of its own, with a time limit"
)
TOO_LARGE = "the functions do not fit in memory together: `benchmark_cli run` gives each a process of its own"


@dataclass(frozen=True)
class Compared:
    """What `compare` found. Shown as the table of a run, in a terminal, as HTML and as a line."""

    result: PairResult  # as a run writes it: proofs, rounds, every sample, notes

    @property
    def verdict(self) -> Verdict | str:
        """faster, same, slower, inconclusive, too noisy or invalid; `failed` where an exception came first."""
        return self.result.verdict or self.result.status

    @property
    def speedup(self) -> Interval | None:
        """Baseline time over optimized time, with its 95% interval over rounds; None where there is no verdict."""
        row = self.result.headline
        return row.speedup if row else None

    def frame(self) -> Any:
        """A row a sample, for pandas: round, block, variant, us on the headline clock, steps, fresh, discarded.

        `fresh` samples were proven on inputs that no call had seen; `discarded` says why a block does not count.
        """
        import pandas

        rows = [
            {
                "round": block.round,
                "block": index,
                "variant": sample.variant.split("_")[0],
                "us": sample.device_us if self.result.clock == "device" else sample.wall_us,
                "steps": block.steps,
                "fresh": sample.fresh,
                "discarded": block.discarded,
            }
            for index, block in enumerate(self.result.blocks)
            for sample in block.samples
        ]
        return pandas.DataFrame(rows)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        yield suite_table([self.result], options.max_width)

    def __repr__(self) -> str:
        return "\n".join([str(pair_line(self.result)), *self.result.notes])

    def _repr_html_(self) -> str:
        console = Console(record=True, file=io.StringIO(), width=160)
        console.print(self)
        return console.export_html(inline_styles=True, code_format='<pre style="line-height:1.2">{code}</pre>')


def compare(
    baseline: Callable[..., Output],
    optimized: Callable[..., Output],
    *,
    inputs: Callable[..., Inputs],
    reference: Callable[..., Output],
    tolerance: float,
    cost: Cost | Callable[..., Cost | list[Cost]] | None = None,
    sizes: Mapping[str, Mapping[str, Any]] = ONE_SIZE,
    clock: ClockName = "device",
    frozen: Sequence[str] = (),
    mutates: Sequence[str] = (),
    name: str | None = None,
    budget_s: float = BUDGET_S,
    seed: int | None = None,
    artifacts_dir: Path | str = "artifacts",
) -> Compared:
    """Prove that two functions of the same inputs give the right answer, and time them in turns, in this process.

    The whole call is timed, with what it allocates. `inputs(draw, **size)`, `reference(**inputs)`, `tolerance` and the
    rest are those of `Workload`; both functions get the inputs by name. Without `sizes` there is one size, which has no
    figures and which is proven as well. `cost` is what the limit is made of, with the peaks that `benchmark_cli peak`
    left in `artifacts_dir`, else the datasheet's. What a function does wrong is in the result. Raises ValueError for a
    workload that cannot be, TypeError for what is no function.
    """
    example = ", as in inputs=lambda draw: {...}"
    for given, what in ((baseline, "baseline"), (optimized, "optimized"), (inputs, "inputs"), (reference, "reference")):
        if not callable(given):
            raise TypeError(f"{what} must be a function{example * (what == 'inputs')}; it is {type(given).__name__}")
    least: Any = Cost() if cost is None else cost
    if not (isinstance(least, Cost) or callable(least)):
        raise TypeError(f"cost must be Cost(...) or a function of the size's figures; it is {type(cost).__name__}")
    try:
        workload = Workload(
            inputs=inputs,
            reference=reference,
            cost=least if callable(least) else lambda **size: least,
            sizes=sizes,
            tolerance=tolerance,
            clock=clock,
            frozen=frozen,
            mutates=mutates,
        )
    except ValidationError as error:
        raise ValueError(first_of(error)) from None
    pair, modules = _pair(name or str(getattr(optimized, "__name__", "")), workload, baseline, optimized)
    with tempfile.TemporaryDirectory(prefix="benchmark-") as scratch, _as_found(modules):
        here = Here(Path(scratch), random.randrange(2**31) if seed is None else seed)
        return Compared(_measured(pair, here, sizes, budget_s, None if cost is None else Path(artifacts_dir)))


def _pair(name: str, workload: Workload, *functions: Callable[..., Output]) -> tuple[Pair, dict[str, ModuleType]]:
    """The pair that these two make, and their modules by name, which stand for files."""
    pair = Pair(Folder(Path("python"), "python"), re.sub(r"\W+", "_", name).strip("_") or "pair")
    modules = {}
    roles: tuple[Role, ...] = ("baseline", "optimized")
    for role, function in zip(roles, functions):
        stem = f"{role}_{pair.name}"
        module = modules[pair.folder.module(stem)] = ModuleType(pair.folder.module(stem))
        module.__dict__.update(workload=workload, prepare=_prepare(function))
        said = str(function.__doc__ or getattr(function, "__name__", role)).strip().split("\n", 1)[0]
        where = pair.folder.path / f"{stem}.py", pair.folder.root, module.__name__
        pair.variants.append(Variant(stem, role, role, *where, said, ("PyTorch",), Requirements()))
    return pair, modules


def _prepare(function: Callable[..., Output]) -> Prepare:
    """A step calls the function on the inputs, which are overwritten in place."""
    return lambda **given: partial(function, **given)


def _measured(
    pair: Pair, here: "Here", sizes: Collection[str], budget_s: float, artifacts_dir: Path | None
) -> PairResult:
    """The session. Peaks are those known of this GPU, in `artifacts_dir`; without one there are no limits."""
    found = here.commands.describe()
    device, uuid = str(found["device"]), found.get("uuid")
    settings = Unguarded(
        folder=here.commands.scratch,
        scratch=here.commands.scratch,
        size="cpu" if device == "cpu" and "cpu" in sizes else "bench",
        seed=here.seed,
        device=device,
        budget_s=budget_s,
        time_limit_s=math.inf,
        peaks=_peaks(device, uuid, artifacts_dir) if uuid and artifacts_dir else None,
        monitors=tuple(filter(None, [Monitor.open(uuid)])) if uuid else (),
        here=here,
    )
    result = new_result(pair, device)
    result.notes, result.best_pace_us = [UNGUARDED], float(found["best_pace_us"])
    with closing(hold(uuid, print)):
        return Session(pair, Roster(result, pair.variants, []), settings).measure()


def _peaks(device: str, uuid: str, artifacts_dir: Path) -> Peaks | None:
    """Those that were measured, else the datasheet's: to measure them takes a minute, and processes."""
    stored, _ = store.known(artifacts_dir, uuid, machine())
    return store.peaks_of(stored) if stored else datasheet_peaks(device)


@contextmanager
def _as_found(modules: Mapping[str, ModuleType]) -> Iterator[None]:
    """Modules that can be imported inside; then all that a worker would have taken with it is as it was."""
    path = [*sys.path]
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name in modules:
            del sys.modules[name]
        sys.path[:] = path
        gc.unfreeze()  # `proof.preparation.free` froze what was there


class Here(Worker):
    """A worker without a process: it answers in this one, as long as that takes, and there is one of it."""

    def __init__(self, scratch: Path, seed: int) -> None:
        self.seed, self.hired, self._asked = seed, False, ("", dict[str, Any]())
        self.commands = Commands(scratch, scratch, {"seed": seed, "reproducible": False}, lambda who, what: None)

    def ask(self, command: str, **arguments: Any) -> None:
        self._asked = command, arguments

    def answer(self, timeout_s: float) -> Any:
        try:
            answer = self.commands.perform(*self._asked)
        except SystemExit as error:
            answer = failure(VariantError(self.commands.who, error))
        if "error" in answer:
            raise WorkerError(answer["who"], answer["error"])
        return answer["value"]

    def pids(self) -> set[int]:
        return {os.getpid()}

    def part(self) -> None:
        self.commands.prep = None  # with the buffers of the last round

    def await_end(self, limit_s: float) -> None:
        """It has no end of its own."""

    def kill(self) -> None:
        """It has no end of its own."""

    def log_tail(self, characters: int = 4000) -> str:
        """What it writes is seen at once."""
        return ""


@dataclass(frozen=True, kw_only=True)
class Unguarded(Settings):
    """Settings of a session in this process."""

    here: Here

    def hire(self, pair: Pair, index: int = 0, fresh: bool = False, name: str = "") -> Worker:
        """The one worker. Raises WorkerError for a second one, which would be for what does not fit into memory."""
        if self.here.hired:
            raise WorkerError("workload", TOO_LARGE)
        self.here.hired = True
        return self.here
