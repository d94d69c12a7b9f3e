"""The workers of one session: one that holds all variants, or one for each where they may not share a process."""

import itertools
import time
from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any, Literal

from common.python.base.results import AFTER
from common.python.workers.process import Worker, end_all

Hire = Callable[[int, str], Worker]
Ready = Literal["loaded", "prepared", "warm"]  # what a worker is that begins its turn


class WorkerPool:
    """Sends a command to the workers that hold the named variants, one after the other, and merges the answers."""

    def __init__(self, hire: Hire, modules: dict[str, str], apart: bool, limit_s: float, load: dict[str, str]) -> None:
        """Start the workers (`hire(index, its first variant)`) and have each import its variants.

        `apart` gives each variant a process of its own. All calls together take `limit_s` seconds at most. `load` names
        the baseline's module and the size. Raises WorkerError when the workload cannot be loaded.
        """
        self._hire, self._modules, self._load = hire, modules, load
        self._deadline = time.monotonic() + limit_s
        self._workers: list[Worker] = []
        self._log = ""
        self.facts: dict[str, Any] = {}
        self.turns = False
        self._size, self._dtypes = "", list[str]()  # that is prepared; of all outputs, once the baseline has told
        self._warm: dict[str, Any] = {}  # how each turn warms up
        self._proofs: dict[str, Any] = {}  # made at the end of each turn
        groups = [[name] for name in modules] if apart else [list(modules)]
        self._place = {name: index for index, names in enumerate(groups) for name in names}  # of its worker
        self._start(groups)

    def _start(self, groups: list[list[str]]) -> None:
        try:
            for index, names in enumerate(groups):
                self._workers.append(self._hire(index, names[0]))
            for worker, names in zip(self._workers, groups):  # all at once, since fresh interpreters import torch
                worker.ask("load", modules={name: self._modules[name] for name in names}, **self._load)
            for worker in self._workers:
                answer = worker.answer(self.left_s())
                self.facts = answer | {"failures": self.facts.get("failures", {}) | answer["failures"]}
        except BaseException:
            self.dismiss()
            raise

    def take_turns(self) -> None:
        """From here on each variant runs alone, in a fresh process for every turn: memory does not hold all of them."""
        self.dismiss()
        self.turns, self._place = True, {name: index for index, name in enumerate(self._modules)}

    def _turn(self, names: list[str], ready: Ready) -> Worker:
        self.dismiss()
        self._start([names])
        [worker] = self._workers
        if ready != "loaded":
            self._call(worker, "prepare", names=names, size=self._size)
        if ready == "warm":
            self._call(worker, "start_clock")
            self._call(worker, "warm", names=names, **self._warm)
        return worker

    def left_s(self) -> float:
        return self._deadline - time.monotonic()

    def pids(self) -> set[int]:
        return {pid for worker in self._workers for pid in worker.pids()}

    def first(self, command: str, **arguments: Any) -> Any:
        """Ask the worker that holds the baseline."""
        return self._call(self._workers[0], command, **arguments)

    def prepare(self, names: list[str], size: str) -> dict[str, Any]:
        """Begin a round."""
        self._size, self._dtypes = size, self._dtypes if size == self._size else []
        return self.each("prepare", names, "loaded", size=size)

    def prove(self, names: list[str], when: str, trials: int, enough_s: float | None) -> dict[str, Any]:
        """Prove what is prepared, the baseline first: all must return its dtypes. A turn is proven AFTER as it ends."""
        if self.turns and when == AFTER:
            proofs, self._proofs = self._proofs, {}
            return proofs
        how = {"when": when, "trials": trials, "enough_s": enough_s}
        return merged([self._prove(worker, names=own, **how) for worker, own in self._holding(names)])

    def _prove(self, worker: Worker, **asked: Any) -> Any:
        answer = self._call(worker, "prove", dtypes=self._dtypes, **asked)
        self._dtypes = answer["dtypes"]
        return answer["proofs"]

    def start_clocks(self) -> float:
        """The floor of the headline clock, in microseconds."""
        return float(max(self._call(worker, "start_clock") for worker in self._workers))

    def warm(self, names: list[str], limit_s: float, passes: int | None) -> int:
        """Warm up, all workers within one limit; the number of steps that a sample must hold.

        Every turn warms up as the first one does, one step a sample: what fills the memory is not short.
        """
        self._warm = self._warm or {"limit_s": limit_s, "passes": passes}
        if self.turns:
            return 1
        how = {"limit_s": limit_s / self._shares(names), "passes": passes}
        return max(int(self._call(worker, "warm", names=own, **how)) for worker, own in self._holding(names))

    def block(self, order: list[str], count: int, probes: list[int]) -> dict[str, Any]:
        """A block over all: workers take turns wherever the order passes from one's variants to another's."""
        answers, begun = [], 0
        for worker, own in self._holding(order, "warm"):
            mine = [place - begun for place in probes if 0 <= place - begun < len(own) and not self.turns]
            waken = len(self._workers) > 1
            answers.append(self._call(worker, "block", order=own, count=count, probes=mine, waken=waken))
            if self.turns:
                self._proofs = merged([self._proofs, self._prove(worker, names=own[:1], when=AFTER, trials=1)])
            begun += len(own)
        return merged(answers)

    def trios(self, names: list[str], limit_s: float) -> dict[str, Any]:
        """Time variants on seen and on new inputs, all workers within one limit."""
        return self.each("trios", names, "warm", limit_s=limit_s / self._shares(names))

    def each(self, command: str, names: list[str], ready: Ready = "prepared", **arguments: Any) -> dict[str, Any]:
        """Have every worker run it for the names it holds; in turns, one that is made `ready` for it."""
        holding = self._holding(names, ready)
        return merged([self._call(worker, command, names=own, **arguments) for worker, own in holding])

    def logs(self) -> str:
        return self._log + "".join(worker.log_tail() for worker in self._workers)

    def dismiss(self) -> None:
        """End the workers, and return when they are gone."""
        end_all(self._workers)
        self._log, self._workers = self.logs(), []

    def _shares(self, names: list[str]) -> int:
        """How many workers hold these."""
        return len({self._place[name] for name in names})

    def _holding(self, names: list[str], ready: Ready = "prepared") -> Iterator[tuple[Worker, list[str]]]:
        """Each run of names that one worker holds, with this worker."""
        for index, run in itertools.groupby(names, key=self._place.__getitem__):
            own = list(run)
            yield self._turn(own[:1], ready) if self.turns else self._workers[index], own

    def _call(self, worker: Worker, command: str, **arguments: Any) -> Any:
        return worker.call(command, self.left_s(), **arguments)


def merged(answers: list[dict[str, Any]]) -> dict[str, Any]:
    """Answers of several workers as one: numbers and lists are added, key by key."""
    return reduce(_merge, answers, {})


def _merge(a: Any, b: Any) -> Any:
    if isinstance(a, dict):
        return a | {key: _merge(a[key], value) if key in a else value for key, value in b.items()}
    return a or b if isinstance(a, bool) else a + b
