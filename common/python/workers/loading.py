"""Baselines and variants as modules: what they must have, and what importing them may not leave behind."""

import importlib
from typing import Any

from common.python.proof.comparison import Rejected
from common.python.proof.global_state import put_back, settings
from common.python.proof.originals import restore
from common.python.proof.preparation import VariantError
from common.python.proof.ranks import Ranks
from common.python.workload import Cost, Prepare, Workload


def workload_of(baseline: str, ranks: Ranks) -> Workload:
    """What the module `baseline` states. Raises VariantError."""
    name = baseline.rpartition(".")[2]
    before = settings()
    try:
        loaded = importlib.import_module(baseline)
        if not isinstance(getattr(loaded, "workload", None), Workload):
            raise Rejected("the baseline has no `workload = Workload(...)`: it states the problem")
        if not loaded.workload.isolated and (left := put_back(before)):
            raise Rejected(f"importing it left {' and '.join(left)} changed")
        if loaded.workload.gpus > ranks.size:
            raise Rejected("gpus must stand in the baseline's `workload = Workload(...)` as a number")
    except Exception as error:
        raise VariantError(name, error) from error
    workload: Workload = loaded.workload
    return workload


def prepare_of(module: str, workload: Workload) -> Prepare:
    """The `prepare` of a variant of this workload. Raises Rejected, and whatever importing the module raises."""
    before = settings()
    try:
        loaded = importlib.import_module(module)
    finally:
        left = [] if workload.isolated else put_back(before)
    if left:
        raise Rejected(f"importing it left {' and '.join(left)} changed")
    if replaced := restore():
        raise Rejected(f"importing it replaced {', '.join(replaced)}")
    if getattr(loaded, "workload", None) is not workload:
        raise Rejected("its workload is not its baseline's: import it from there (`import workload as workload`)")
    if not callable(getattr(loaded, "prepare", None)):
        raise Rejected("it has no `prepare`: a function of the inputs that returns a step")
    prepare: Prepare = loaded.prepare
    return prepare


def cost_of(workload: Workload, baseline: str, shape: dict[str, Any]) -> list[Cost]:
    """The workload's least traffic and work at this shape, by phase. Raises VariantError."""
    try:
        cost = workload.cost(**shape)
        return [Cost.model_validate(phase) for phase in (cost if isinstance(cost, list) else [cost])]
    except Exception as error:
        wrong = Rejected(f"its cost fails at {shape}: {type(error).__name__}: {error}")
        raise VariantError(baseline.rpartition(".")[2], wrong) from error
