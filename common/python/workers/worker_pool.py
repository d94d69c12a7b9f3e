"""The workers of one session: one that holds all variants, or one for each where they may not share a process."""

import itertools
import time
from collections.abc import Callable
from typing import Any

from common.python.base.results import AFTER
from common.python.workers.process import Worker, end_all

Hire = Callable[[int, bool], Worker]


class WorkerPool:
    """Sends a command to the workers that hold the named variants and merges the answers."""

    turns = False

    def __init__(self, hire: Hire, modules: dict[str, str], apart: bool, limit_s: float, load: dict[str, str]) -> None:
        """Start the workers (`hire(index, fresh)`) and have each import its variants.

        `apart` gives each variant a process of its own. All calls together take `limit_s` seconds at most. `load` names
        the baseline's module and the size. Raises WorkerError when the workload cannot be loaded.
        """
        self._hire, self._modules, self._load = hire, modules, load
        self._deadline = time.monotonic() + limit_s
        self._workers: list[tuple[Worker, list[str]]] = []
        self._log = ""
        self.facts: dict[str, Any] = {}
        try:
            groups = [[name] for name in modules] if apart else [list(modules)]
            for index, names in enumerate(groups if modules else []):
                self._workers.append((hire(index, apart), names))
            for worker, names in self._workers:  # at the same time, since fresh interpreters import torch
                self._ask_to_load(worker, names)
            for worker, _ in self._workers:
                self._loaded(worker)
        except BaseException:
            self.dismiss()
            raise

    def _ask_to_load(self, worker: Worker, names: list[str]) -> None:
        worker.ask("load", modules={name: self._modules[name] for name in names}, **self._load)

    def _loaded(self, worker: Worker) -> None:
        answer = worker.answer(self.left_s())
        self.facts = answer | {"failures": self.facts.get("failures", {}) | answer["failures"]}

    def _call(self, worker: Worker, command: str, **arguments: Any) -> Any:
        return worker.call(command, self.left_s(), **arguments)

    def left_s(self) -> float:
        """Seconds left of the limit."""
        return self._deadline - time.monotonic()

    def pids(self) -> set[int]:
        """All processes of the workers."""
        return {pid for worker, _ in self._workers for pid in worker.pids()}

    def first(self, command: str) -> Any:
        """Ask the worker that holds the baseline."""
        return self._call(self._workers[0][0], command)

    def apart(self, names: list[str]) -> list[list[str]]:
        """The groups to prove in: all together, or the baseline first where others must be told its dtypes."""
        return [names] if len(self._workers) == 1 and not self.turns else [names[:1], names[1:]]

    def each(self, command: str, names: list[str], **arguments: Any) -> dict[str, Any]:
        """Have every worker run it for the names it holds; the answers, merged. They prove at the same time."""
        busy = [(worker, own) for worker, held in self._workers if (own := [name for name in names if name in held])]
        if command == "prove":
            for worker, own in busy:
                worker.ask(command, names=own, **arguments)
            answers = [worker.answer(self.left_s()) for worker, _ in busy]
        else:
            answers = [self._call(worker, command, names=own, **arguments) for worker, own in busy]
        merged: dict[str, Any] = {}
        for answer in answers:
            merged = _merge(merged, answer)
        return merged

    def start_clocks(self) -> float:
        """The floor of the headline clock, in microseconds."""
        return float(max(self._call(worker, "start_clock") for worker, _ in self._workers))

    def warm(self, names: list[str], limit_s: float, passes: int | None) -> int:
        """Warm up, one worker after the other within one limit; the number of steps that a sample must hold."""
        shares = [own for _, held in self._workers if (own := [name for name in names if name in held])]
        counts = [
            self._call(self._owner(own[0]), "warm", names=own, limit_s=limit_s / len(shares), passes=passes)
            for own in shares
        ]
        return int(max(counts))

    def block(self, order: list[str], count: int, probes: list[int]) -> dict[str, Any]:
        """A block over all: workers take turns wherever the order passes from one's variants to another's."""
        merged: dict[str, Any] = {}
        for owner, run in itertools.groupby(enumerate(order), key=lambda item: self._owner(item[1])):
            turn = list(run)
            mine = [position for position, (index, _) in enumerate(turn) if index in probes]
            how = {"count": count, "probes": mine, "waken": len(self._workers) > 1}
            merged = _merge(merged, self._call(owner, "block", order=[name for _, name in turn], **how))
        return merged

    def _owner(self, name: str) -> Worker:
        return next(worker for worker, held in self._workers if name in held)

    def in_turn(self) -> "TurnPool":
        """Dismiss these workers for a pool in which only one lives at a time."""
        self.dismiss()
        return TurnPool(self._hire, self._modules, self.left_s(), self._load)

    def refusals(self) -> list[str]:
        """What the workers could not do deterministically, each once."""
        return sorted({text for worker, _ in self._workers for text in self._call(worker, "refusals")})

    def logs(self) -> str:
        return self._log + "".join(worker.log_tail() for worker, _ in self._workers)

    def dismiss(self) -> None:
        """End the workers, and return when they are gone."""
        end_all([worker for worker, _ in self._workers])
        self._log += "".join(worker.log_tail() for worker, _ in self._workers)
        self._workers = []


class TurnPool(WorkerPool):
    """For variants that do not fit in memory together: each runs alone, in a fresh process for every turn."""

    turns = True

    def __init__(self, hire: Hire, modules: dict[str, str], limit_s: float, load: dict[str, str]) -> None:
        super().__init__(hire, {}, True, limit_s, load)
        self._modules = modules
        self._prepared: dict[str, Any] = {}
        self._proofs: dict[str, Any] = {}
        self._warm: dict[str, Any] = {}

    def _alone(self, name: str) -> Worker:
        self.dismiss()
        worker = self._hire(0, False)
        self._workers = [(worker, [name])]
        self._ask_to_load(worker, [name])
        self._loaded(worker)
        return worker

    def each(self, command: str, names: list[str], **arguments: Any) -> dict[str, Any]:
        """A command that needs a prepared variant prepares it first; each turn ended with its proof after timing."""
        if command == "prove" and arguments["when"] == AFTER:
            proofs, self._proofs = self._proofs, {}
            return proofs
        if command == "prepare":
            self._prepared = arguments
        merged: dict[str, Any] = {}
        for name in names:
            worker = self._alone(name)
            if command != "prepare":
                self._call(worker, "prepare", names=[name], **self._prepared)
            if command == "trios":
                self._call(worker, "start_clock")
                self._call(worker, "warm", names=[name], **self._warm)
            merged = _merge(merged, self._call(worker, command, names=[name], **arguments))
        return merged

    def start_clocks(self) -> float:
        return float(self.first("start_clock"))

    def warm(self, names: list[str], limit_s: float, passes: int | None) -> int:
        """Every turn warms up as the first one does, one step a sample: what fills the memory is not short."""
        self._warm = self._warm or {"limit_s": limit_s, "passes": passes}
        return 1

    def block(self, order: list[str], count: int, probes: list[int]) -> dict[str, Any]:
        """Each run of one variant in `order` is a turn: start, prepare, warm up, sample, prove."""
        merged: dict[str, Any] = {}
        for name, run in itertools.groupby(order):
            worker = self._alone(name)
            self._call(worker, "prepare", names=[name], **self._prepared)
            self._call(worker, "start_clock")
            self._call(worker, "warm", names=[name], **self._warm)
            merged = _merge(merged, self._call(worker, "block", order=list(run), count=count, probes=[], waken=False))
            proofs = self._call(worker, "prove", names=[name], when=AFTER, trials=1, dtypes=self._prepared["dtypes"])
            self._proofs = _merge(self._proofs, proofs)
        return merged


def _merge(a: Any, b: Any) -> Any:
    if isinstance(a, dict):
        return a | {key: _merge(a[key], value) if key in a else value for key, value in b.items()}
    return a or b if isinstance(a, bool) else a + b
