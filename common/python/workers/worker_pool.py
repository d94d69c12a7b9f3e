"""The workers of one session: one that holds all variants, or one for each where they may not share a process."""

import itertools
import time
from collections.abc import Callable
from functools import reduce
from typing import Any

from common.python.base.results import AFTER
from common.python.workers.process import Worker, end_all

Hire = Callable[[int, str], Worker]


class WorkerPool:
    """Sends a command to the workers that hold the named variants, one after the other, and merges the answers."""

    turns = False

    def __init__(self, hire: Hire, modules: dict[str, str], apart: bool, limit_s: float, load: dict[str, str]) -> None:
        """Start the workers (`hire(index, its first variant)`) and have each import its variants.

        `apart` gives each variant a process of its own. All calls together take `limit_s` seconds at most. `load` names
        the baseline's module and the size. Raises WorkerError when the workload cannot be loaded.
        """
        self._hire, self._modules, self._load = hire, modules, load
        self._deadline = time.monotonic() + limit_s
        self._workers: list[tuple[Worker, list[str]]] = []
        self._log = ""
        self.facts: dict[str, Any] = {}
        self._start([[name] for name in modules] if apart else [list(modules)])

    def _start(self, groups: list[list[str]]) -> None:
        try:
            for index, names in enumerate(groups):
                self._workers.append((self._hire(index, names[0]), names))
            for worker, names in self._workers:  # all at the same time, since fresh interpreters import torch
                worker.ask("load", modules={name: self._modules[name] for name in names}, **self._load)
            for worker, _ in self._workers:
                answer = worker.answer(self.left_s())
                self.facts = answer | {"failures": self.facts.get("failures", {}) | answer["failures"]}
        except BaseException:
            self.dismiss()
            raise

    def left_s(self) -> float:
        return self._deadline - time.monotonic()

    def pids(self) -> set[int]:
        return {pid for worker, _ in self._workers for pid in worker.pids()}

    def first(self, command: str, **arguments: Any) -> Any:
        """Ask the worker that holds the baseline."""
        return self._call(self._workers[0][0], command, **arguments)

    def apart(self, names: list[str]) -> list[list[str]]:
        """The groups to prove in: all together, or the baseline first where other workers must hear its dtypes."""
        return [names] if len(self._workers) == 1 and not self.turns else [names[:1], names[1:]]

    def each(self, command: str, names: list[str], **arguments: Any) -> dict[str, Any]:
        """Have every worker run it for the names it holds; the answers, merged."""
        return merged([self._call(worker, command, names=own, **arguments) for worker, own in self._holding(names)])

    def start_clocks(self) -> float:
        """The floor of the headline clock, in microseconds."""
        return float(max(self._call(worker, "start_clock") for worker, _ in self._workers))

    def warm(self, names: list[str], limit_s: float, passes: int | None) -> int:
        """Warm up, all workers within one limit; the number of steps that a sample must hold."""
        shares = self._holding(names)
        how = {"limit_s": limit_s / len(shares), "passes": passes}
        return max(int(self._call(worker, "warm", names=own, **how)) for worker, own in shares)

    def block(self, order: list[str], count: int, probes: list[int]) -> dict[str, Any]:
        """A block over all: workers take turns wherever the order passes from one's variants to another's."""
        answers, begun = [], 0
        holders = {name: worker for worker, held in self._workers for name in held}
        for owner, run in itertools.groupby(order, key=holders.__getitem__):
            own = list(run)
            mine = [place - begun for place in probes if 0 <= place - begun < len(own)]
            waken = len(self._workers) > 1
            answers.append(self._call(owner, "block", order=own, count=count, probes=mine, waken=waken))
            begun += len(own)
        return merged(answers)

    def in_turn(self) -> "TurnPool":
        """Dismiss these workers for a pool in which only one lives at a time."""
        self.dismiss()
        return TurnPool(self._hire, self._modules, self.left_s(), self._load)

    def logs(self) -> str:
        return self._log + "".join(worker.log_tail() for worker, _ in self._workers)

    def dismiss(self) -> None:
        """End the workers, and return when they are gone."""
        end_all([worker for worker, _ in self._workers])
        self._log, self._workers = self.logs(), []

    def _holding(self, names: list[str]) -> list[tuple[Worker, list[str]]]:
        return [(worker, own) for worker, held in self._workers if (own := [name for name in names if name in held])]

    def _call(self, worker: Worker, command: str, **arguments: Any) -> Any:
        return worker.call(command, self.left_s(), **arguments)


class TurnPool(WorkerPool):
    """For variants that do not fit in memory together: each runs alone, in a fresh process for every turn."""

    turns = True

    def __init__(self, hire: Hire, modules: dict[str, str], limit_s: float, load: dict[str, str]) -> None:
        super().__init__(hire, {}, True, limit_s, load)
        self._modules = modules
        self._prepared: dict[str, Any] = {}
        self._warm: dict[str, Any] = {}
        self._dtypes: list[str] = []  # what was last asked for
        self._proofs: list[dict[str, Any]] = []  # made at the end of each turn

    def _turn(self, name: str, timed: bool = False) -> tuple[Worker, dict[str, Any]]:
        """A fresh worker that has prepared this variant, and warmed it up if it is `timed`; what `prepare` said."""
        self.dismiss()
        self._start([[name]])
        [(worker, _)] = self._workers
        prepared: dict[str, Any] = self._call(worker, "prepare", names=[name], **self._prepared)
        if timed:
            self._call(worker, "start_clock")
            self._call(worker, "warm", names=[name], **self._warm)
        return worker, prepared

    def each(self, command: str, names: list[str], **arguments: Any) -> dict[str, Any]:
        """A command that needs a prepared variant prepares it first; each turn ended with its proof after timing."""
        if command == "prove" and arguments["when"] == AFTER:
            proofs, self._proofs = self._proofs, []
            return merged(proofs)
        if command == "prepare":
            self._prepared = arguments
        self._dtypes = arguments.get("dtypes", self._dtypes)
        answers = []
        for name in names:
            worker, prepared = self._turn(name, timed=command == "trios")
            done = prepared if command == "prepare" else self._call(worker, command, names=[name], **arguments)
            answers.append(done)
        return merged(answers)

    def warm(self, names: list[str], limit_s: float, passes: int | None) -> int:
        """Every turn warms up as the first one does, one step a sample: what fills the memory is not short."""
        self._warm = self._warm or {"limit_s": limit_s, "passes": passes}
        return 1

    def block(self, order: list[str], count: int, probes: list[int]) -> dict[str, Any]:
        """Each run of one variant in `order` is a turn: start, prepare, warm up, sample, prove."""
        answers = []
        for name, run in itertools.groupby(order):
            worker, _ = self._turn(name, timed=True)
            answers.append(self._call(worker, "block", order=list(run), count=count, probes=[], waken=False))
            asked = {"when": AFTER, "trials": 1, "dtypes": self._dtypes}
            self._proofs.append(self._call(worker, "prove", names=[name], **asked))
        return merged(answers)


def merged(answers: list[dict[str, Any]]) -> dict[str, Any]:
    """Answers of several workers as one: numbers and lists are added, key by key."""
    return reduce(_merge, answers, {})


def _merge(a: Any, b: Any) -> Any:
    if isinstance(a, dict):
        return a | {key: _merge(a[key], value) if key in a else value for key, value in b.items()}
    return a or b if isinstance(a, bool) else a + b
