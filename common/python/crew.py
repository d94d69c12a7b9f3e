"""The workers of one session: one that holds all variants, or one for each where they may not share a process."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from common.python.results import AFTER
from common.python.sharing import Share
from common.python.worker import Worker

Hire = Callable[[int, bool], Worker]
LET_S = 1.0  # for each session, between two looks of one at whether others' kernels have ended
LOOK_S = 0.5  # of each but the first, in which a short queue of theirs can end
GRACE_S = 10.0  # beyond the limit, for a look: one in vain is none of the crew's own time


class Crew:
    """Sends a command to whoever holds the named variants and merges the answers."""

    turns = False

    def __init__(
        self, hire: Hire, modules: dict[str, str], apart: bool, limit_s: float, load: dict[str, str], share: Share
    ) -> None:
        """Start the workers (`hire(index, fresh)`) and have each import its variants.

        `apart` gives each variant a fresh process of its own. All calls together take `limit_s` at most, what
        others had the machine to themselves for aside. `load` names the baseline's module and the size. Raises
        WorkerError when the workload cannot be loaded.
        """
        self._hire, self._modules, self._load, self._share = hire, modules, load, share
        self._deadline = share.now_s + limit_s
        self._patience_s = limit_s  # with what others have on a GPU
        self._workers: list[tuple[Worker, list[str]]] = []
        self._log = ""
        self.facts: dict[str, Any] = {}
        try:
            groups = [[name] for name in modules] if apart else [list(modules)]
            for index, names in enumerate(groups if modules else []):
                self._workers.append((self._hired(index, apart), names))
            for worker, names in self._workers:  # side by side, as fresh interpreters import torch
                self._ask_to_load(worker, names)
            for worker, _ in self._workers:
                self._loaded(worker)
        except BaseException:
            self.dismiss()
            raise

    def _hired(self, index: int, fresh: bool) -> Worker:
        worker = self._hire(index, fresh)
        self._share.hired(worker)
        return worker

    def _ask_to_load(self, worker: Worker, names: list[str]) -> None:
        worker.ask("load", modules={name: self._modules[name] for name in names}, **self._load)

    def _loaded(self, worker: Worker) -> None:
        answer = worker.answer(self.left_s())
        before = self.facts or answer
        slowest = max(before["started"], answer["started"], key=lambda started: max(started.values(), default=0.0))
        self.facts = answer | {"failures": before["failures"] | answer["failures"], "started": slowest}

    def _call(self, worker: Worker, command: str, **arguments: Any) -> Any:
        return worker.call(command, self.left_s(), **arguments)

    def left_s(self) -> float:
        """Of the limit."""
        return self._deadline - self._share.now_s

    def first(self, command: str) -> Any:
        """Ask the worker that holds the baseline."""
        return self._call(self._workers[0][0], command)

    def apart(self, names: list[str]) -> list[list[str]]:
        """Who can be proven on one reference: all, but where the others have to be told the baseline's dtypes."""
        return [names] if len(self._workers) == 1 and not self.turns else [names[:1], names[1:]]

    def each(self, command: str, names: list[str], **arguments: Any) -> dict[str, Any]:
        """Have every worker run it for its share of `names`; what they answer is merged.

        They do so side by side where they prove or explain, and where they prepare if other sessions have been at work.
        """
        merged: dict[str, Any] = {}
        shares = [(worker, [name for name in names if name in held]) for worker, held in self._workers]
        busy = [(worker, share) for worker, share in shares if share]
        if command in ("prove", "why") or (command == "prepare" and self._share.beside):
            for worker, share in busy:
                worker.ask(command, names=share, **arguments)
            answers = [worker.answer(self.left_s()) for worker, _ in busy]
        else:
            answers = [self._call(worker, command, names=share, **arguments) for worker, share in busy]
        for answer in answers:
            merged = _merge(merged, answer)
        return merged

    def pose(self, names: list[str]) -> None:
        """Have all samples of each round proven, of this one first, if steps are long and one worker holds them all.

        Where each has its own, the control's could not tell, and would be the only one that nobody looks at.
        """
        if len(self._workers) == 1:
            self.each("pose", names)

    @contextmanager
    def alone(self, crowded: Callable[[], bool]) -> Iterator[bool]:
        """Have the machine to itself, with all done on its GPU that others had enqueued; False where that does not end.

        A kernel of another session that does not end by itself ends with that session. For this it is waited, while
        others go on, as long as this session's limit is, in all rounds together; that is no time of this session. Where
        the GPU is `crowded` by processes of no session, nobody waits.
        """
        look_s = 0.0
        while True:
            began_s = self._share.now_s
            with self._share.alone() as others:
                done = not others or self._await_device(look_s)
                waits = not (done or crowded()) and self._share.may_end(self._patience_s)
                if others:
                    self._share.drained(done, waits)
                if not waits:
                    yield done
                    return
            self._patience_s -= self._share.wait(LET_S * self._share.company(), began_s)
            look_s = LOOK_S

    def _await_device(self, least_s: float) -> bool:
        """Whether the GPU has done what others had enqueued, soon, or within `least_s` where that is longer."""
        if not self._workers:
            return True
        return bool(self._workers[0][0].call("await_device", self.left_s() + GRACE_S, least_s=least_s))

    def start_clocks(self) -> float:
        """The floor of the headline clock, in microseconds."""
        return float(max(self._call(worker, "start_clock") for worker, _ in self._workers))

    def warm(self, names: list[str], limit_s: float, passes: int | None) -> int:
        """Warm up, one worker after the other within one limit; the number of steps that a sample must hold."""
        shares = [(worker, [name for name in names if name in held]) for worker, held in self._workers]
        limit_s /= sum(bool(share) for _, share in shares)
        counts = [
            self._call(worker, "warm", names=share, limit_s=limit_s, passes=passes) for worker, share in shares if share
        ]
        return int(max(counts))

    def block(self, order: list[str], count: int, probes: list[int], enough_s: float | None = None) -> dict[str, Any]:
        """A block over all: workers take turns wherever the order passes from one's variants to another's.

        Where the samples of the first half, with both of its last variant, take `enough_s` seconds, that is all.
        """
        merged: dict[str, Any] = {"samples": []}
        for owner, run in itertools.groupby(enumerate(order), key=lambda item: self._owner(item[1])):
            turn = list(run)
            half = 2 * (turn[0][0] - 1) == len(order)  # the turn before this one had both samples at the middle
            if half and enough_s and sum(s["wall_us"] or 0.0 for s in merged["samples"]) * count > enough_s * 1e6:
                break
            mine = [position for position, (index, _) in enumerate(turn) if index in probes]
            how = {"count": count, "probes": mine, "waken": len(self._workers) > 1, "enough_s": enough_s}
            answer = self._call(owner, "block", order=[name for _, name in turn], **how)
            merged = _merge(merged, answer)
        return merged

    def _owner(self, name: str) -> Worker:
        return next(worker for worker, held in self._workers if name in held)

    def in_turn(self) -> "TurnCrew":
        """Dismiss these workers for a crew in which only one lives at a time."""
        self.dismiss()
        return TurnCrew(self._hire, self._modules, self.left_s(), self._load, self._share)

    def most_gib(self) -> float | None:
        """Of a GPU's memory, that the workers have held at most, each of them; None where nobody can tell."""
        return sum(self._call(worker, "most_gib") for worker, _ in self._workers)

    def refusals(self) -> list[str]:
        """What the workers could not do deterministically, each once."""
        return sorted({text for worker, _ in self._workers for text in self._call(worker, "refusals")})

    def logs(self) -> str:
        return self._log + "".join(worker.log_tail() for worker, _ in self._workers)

    def dismiss(self) -> None:
        """End the workers, and return when they are gone."""
        self._share.replace()
        self._forget()

    def see_off(self) -> None:
        """Tell the workers to end. Until their share has settled, their processes may still be there."""
        self._share.see_off()
        self._forget()

    def _forget(self) -> None:
        self._log += "".join(worker.log_tail() for worker, _ in self._workers)
        self._workers = []


class TurnCrew(Crew):
    """For variants that do not fit in memory together: each runs alone, in a fresh process for every turn."""

    turns = True

    def __init__(self, hire: Hire, modules: dict[str, str], limit_s: float, load: dict[str, str], share: Share) -> None:
        super().__init__(hire, {}, True, limit_s, load, share)
        self._modules = modules
        self._prepared: dict[str, Any] = {}
        self._proofs: dict[str, Any] = {}
        self._warm: dict[str, Any] = {}

    def see_off(self) -> None:
        """End the worker at once: what fills the memory leaves none to the next."""
        self.dismiss()

    def _alone(self, name: str) -> Worker:
        self.dismiss()
        worker = self._hired(0, False)
        self._workers = [(worker, [name])]
        self._ask_to_load(worker, [name])
        self._loaded(worker)
        return worker

    def each(self, command: str, names: list[str], **arguments: Any) -> dict[str, Any]:
        """What needs a prepared variant prepares it first; proof after timing was made at the end of each turn."""
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

    def pose(self, names: list[str]) -> None:
        """Each turn ends with a proof of its own."""

    def most_gib(self) -> float | None:
        """One of them has had the memory to itself."""
        return None

    def start_clocks(self) -> float:
        return float(self.first("start_clock"))

    def warm(self, names: list[str], limit_s: float, passes: int | None) -> int:
        """Every turn warms up as the first one does, one step a sample: what fills the memory is not short."""
        self._warm = self._warm or {"limit_s": limit_s, "passes": passes}
        return 1

    def block(self, order: list[str], count: int, probes: list[int], enough_s: float | None = None) -> dict[str, Any]:
        """Each run of one variant in `order` is a turn: start, prepare, warm up, sample, prove. It is never halved."""
        merged: dict[str, Any] = {}
        for name, run in itertools.groupby(order):
            worker = self._alone(name)
            self._call(worker, "prepare", names=[name], **self._prepared)
            self._call(worker, "start_clock")
            self._call(worker, "warm", names=[name], **self._warm)
            answer = self._call(worker, "block", order=list(run), count=count, probes=[], waken=False)
            merged = _merge(merged, answer)
            proofs = self._call(worker, "prove", names=[name], when=AFTER, trials=1, dtypes=self._prepared["dtypes"])
            self._proofs = _merge(self._proofs, proofs)
        return merged


def _merge(a: Any, b: Any) -> Any:
    if isinstance(a, dict):
        return a | {key: _merge(a[key], value) if key in a else value for key, value in b.items()}
    return a or b if isinstance(a, bool) else a + b
