"""What a pair's session asks of its worker first, asked and answered before the pair's turn, while nothing is timed.

To load a pair and to prove it at `test` size takes as long whenever it is done. So a worker in reserve does it, and the
session is given those answers for the same questions. They are what was found, failed proofs and errors as well: it
asks for itself from there on, of a worker that has come as far.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from common.python.preparation import VariantError
from common.python.rehearsal import rehearse
from common.python.results import BEFORE

At = Callable[[str, str], None]
Perform = Callable[[str, dict[str, Any]], Any]
Answered = dict[str, Any]  # a command, its arguments and its answer


class Turning(Exception):
    """What the session asks next depends on what it makes of the last answer."""


def get_ready(device: torch.device, scratch: Path, at: At, perform: Perform, **script: Any) -> list[Answered]:
    """Rehearse, on a GPU, and answer ahead; `at` hears what the worker is at, and that it then waits."""
    if device.type == "cuda":
        at("workload", "rehearsal")
        rehearse(device, scratch)
    answered = foretell(perform, **script) if script else []
    at("workload", "reserve")
    return answered


def foretell(perform: Perform, load: dict[str, Any], names: list[str], sizes: list[str], trials: int) -> list[Answered]:
    """Each command, its arguments and its answer, in the order of `Session.run`, up to the first that found a fault.

    `load` has the arguments of that command; `names`, the baseline first, are then proven at these sizes. What lacked
    memory, which others may hold, is not among the answers: it is asked again.
    """
    answered: list[Answered] = []

    def ask(command: str, **arguments: Any) -> Any:
        value = None
        try:
            value = perform(command, arguments)
            answer, short = {"value": value}, command == "prepare" and value["out_of_memory"]
        except VariantError as error:
            answer, short = error.told(), error.out_of_memory
        if short:
            raise Turning
        answered.append({"command": command, "arguments": arguments, "answer": answer})
        if "error" in answer or _faulty(command, value):
            raise Turning
        return value

    try:
        ask("load", **load)
        for size in sizes:
            _prove_at(ask, size, names, trials)
    except Turning:
        pass
    return answered


def _prove_at(ask: Callable[..., Any], size: str, names: list[str], trials: int) -> None:
    dtypes: list[str] = []
    for share in filter(None, (names[:1], names[1:])):
        ask("prepare", names=share, size=size, dtypes=dtypes)
        ask("prove", names=share, when=BEFORE, trials=trials, dtypes=dtypes, enough_s=None)
        if share == names[:1]:
            dtypes = ask("dtypes")
            if size == "test":
                ask("teeth")


def _faulty(command: str, value: Any) -> bool:
    if command in ("load", "prepare"):
        return bool(value["failures"])
    if command == "prove":
        return any(proof["reason"] for found in value.values() for proof in found)
    return command == "teeth" and bool(value)
