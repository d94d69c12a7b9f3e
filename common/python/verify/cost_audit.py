"""Whether a cost is above what its problem needs: more bytes than its tensors have, more FLOPs than its reference does.

Both are counted where tensors are small: at `test` size, and with each whole number of it doubled, where a cost that
grows faster than the problem shows. How far a cost may be below is its author's to say.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.flop_counter import flop_registry

from common.python.base.results import Cost
from common.python.performance_targets import datasheet_peaks, limit, total
from common.python.proof.preparation import VariantError
from common.python.proof.ranks import Ranks
from common.python.workers.commands import Commands, cost_of, workload_of
from common.python.workload import AnyOrder, Draw, Workload

SEED = 1
ROUNDING = 1.0001
# torch has no formula for a matrix times a vector.
FORMULAS = {**flop_registry, torch.ops.aten.mv: lambda matrix, *_, **__: 2 * matrix.numel()}
GPU, PAST_CACHE = "H200", 240e6  # bytes: four times its L2 cache, which keeps a part of smaller sets between samples
MOST_RANKS = 64  # that a pair's cost may be asked for without any
BUSES = ("pcie_bytes", "nvlink_bytes", "disk_bytes", "host_bytes")


class Operations(TorchDispatchMode):
    """Counts FLOPs of products, convolutions and attention inside, and notes which memory any operator is given."""

    def __init__(self) -> None:
        super().__init__()
        self.flops, self.touched = 0, set[int]()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch imports dynamo, which takes seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        done = func(*args, **kwargs)
        if formula := FORMULAS.get(func.overloadpacket):
            self.flops += formula(*args, **kwargs, out_val=done)
        self.touched |= memory((args, kwargs))
        return done


def memory(value: Any) -> set[int]:
    """The storages of all tensors in it."""
    return {leaf.untyped_storage()._cdata for leaf in tree_leaves(value) if isinstance(leaf, Tensor)}


def bytes_of(leaf: Any) -> int:
    return leaf.stat().st_size if isinstance(leaf, Path) else leaf.nbytes if isinstance(leaf, Tensor) else 0


def widened(leaf: Any) -> Any:
    return leaf.double() if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf


def narrowed(leaf: Any) -> Any:
    leaf = leaf.rows if isinstance(leaf, AnyOrder) else leaf
    return leaf.float() if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf


def needed(workload: Workload, size: Mapping[str, Any], device: torch.device, scratch: Path) -> tuple[int, int, int]:
    """Bytes of the inputs that the reference looks at, bytes of its outputs (float64 counts as float32), and its FLOPs.

    Of ranks, the first one's. Whole numbers always count as looked at, since Python may read them past any operator.
    """
    ranks = range(workload.gpus)
    drawn = [workload.inputs(Draw(device, SEED, scratch, rank, len(ranks)), **size) for rank in ranks]
    given = [{n: v if n in workload.as_drawn else tree_map(widened, v) for n, v in one.items()} for one in drawn]
    with Operations() as done, sdpa_kernel(SDPBackend.MATH):
        if len(ranks) == 1:
            answer = workload.reference(**given[0])
        else:
            answer = workload.reference(0, **{name: [one[name] for one in given] for name in given[0]})
    seen = done.touched | memory(answer)
    read = 0
    for leaf, *wide in zip(tree_leaves(drawn[0]), *map(tree_leaves, given)):
        floats = isinstance(leaf, Tensor) and leaf.is_floating_point()
        read += bytes_of(leaf) if not floats or memory(wide) & seen else 0
    return read, sum(map(bytes_of, tree_leaves(tree_map(narrowed, answer)))), done.flops


def excess(cost: Cost, read: int, written: int, flops: int) -> Iterator[tuple[str, str]]:
    """Each resource of which a cost has more than is needed, and by how much."""
    tensors = dict.fromkeys(BUSES, (read + written, "bytes of its inputs and outputs"))
    needs = {"read": (read, "bytes of its inputs"), "write": (written, "bytes of its outputs"), **tensors}
    if flops:  # else its reference has no product
        needs["flops"] = (flops, "FLOPs of its reference")
    for resource, (need, what) in needs.items():
        stated, need = getattr(cost, resource), need * cost.passes
        if stated > ROUNDING * need:
            yield resource, f"its cost has {resource}={stated:,.0f}, above the {need:,} {what}"


def findings(workload: Workload, device: torch.device, scratch: Path) -> list[str]:
    """What is wrong with the workload's cost. Raises what `inputs` and `reference` do."""
    test: dict[str, Any] = dict(workload.sizes["test"])
    faults = dict[str, str]()
    for name in ("", *(name for name, figure in test.items() if isinstance(figure, int))):
        size = test | {name: 2 * test[name]} if name else test
        try:
            needs = needed(workload, size, device, scratch)
        except Exception:
            if not name:
                raise
            continue  # the size has figures that depend on each other
        for resource, above in excess(total(cost_of(workload, "workload", size)), *needs):
            where = f"with {name}={size[name]}" if name else "at test size"
            faults.setdefault(resource, f"{above}, {where}: state passes= where steps in turn need them again")
    return [*faults.values(), *cached(workload)]


def cached(workload: Workload) -> Iterator[str]:
    """A pair bound by device memory that moves too little for it at `bench` size."""
    cost, peaks = total(cost_of(workload, "workload", dict(workload.sizes["bench"]))), datasheet_peaks(GPU)
    bound, rated = limit([cost], peaks), peaks is not None and (not cost.flops or cost.dtype in peaks.values)
    if workload.clock != "device" or cost.launches or not rated or bound is None or bound.resource != "hbm":
        return
    if cost.hbm < PAST_CACHE:
        moved = f"its cost at bench size is {cost.hbm / 1e6:.3g} MB, which a cache of an {GPU} keeps in part"
        yield f"{moved}: move {PAST_CACHE / 1e6:.0f} MB, or declare launches="


def costs(worker: Commands, baselines: list[str], size: str) -> dict[str, list[Cost] | str]:
    """The cost of each baseline's workload at `size`, by phase, or the error."""
    found: dict[str, list[Cost] | str] = {}
    for baseline in baselines:
        worker.at(baseline.rpartition(".")[2], "import")
        try:
            workload = workload_of(baseline, Ranks(size=MOST_RANKS))
            found[baseline] = cost_of(workload, baseline, workload.shape(size) or {})
        except (VariantError, ValueError) as error:
            found[baseline] = str(error)
    return found


def audit(worker: Commands) -> dict[str, list[str]]:
    """In a worker that has loaded the workload: faults, or why the cost cannot be held against anything."""
    worker.at("workload", "audit of its cost")
    try:
        return {"faults": findings(worker.workload, worker.device, worker.scratch), "not_done": []}
    except Exception as error:
        return {"faults": [], "not_done": [f"{type(error).__name__}: {error}".split("\n")[0]]}
