"""One round: inputs drawn afresh and every variant prepared anew on them.

Where buffers land moves a copy by 0.4% (measured on an H200), and no number of samples of one allocation can see that:
so a round frees everything, allocates a pad of random size and prepares the variants in random order.
"""

import gc
import math
import os
import random
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from common.python.proof.comparison import Rejected, files_in, in_order, leaves, same
from common.python.proof.compile_facts import watched
from common.python.proof.global_state import Settings, put_back, settings
from common.python.proof.originals import now_s, restore
from common.python.proof.ranks import ALONE, Ranks
from common.python.workload import Draw, Inputs, Metered, Output, Prepare, Step, Workload

PAD_BYTES = 64 << 20


class VariantError(Exception):
    """A variant (or `inputs`, `reference`) that raised: who, what, and where in its own file."""

    def __init__(self, who: str, error: BaseException) -> None:
        others = ("<", "/common/python/", "site-packages", "/lib/python")
        own = [f for f in traceback.extract_tb(error.__traceback__) if not any(part in f.filename for part in others)]
        place = f" at {Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""
        message = str(error).strip().splitlines()
        super().__init__(f"{type(error).__name__}{place}: {message[0] if message else 'no message'}")
        self.who = who
        self.out_of_memory = isinstance(error, torch.OutOfMemoryError)

    def told(self) -> dict[str, Any]:
        """As a worker answers it."""
        return {"error": str(self), "who": self.who, "out_of_memory": self.out_of_memory}


@dataclass
class Prepared:
    """A variant ready to be timed."""

    name: str
    step: Step
    inputs: Inputs  # the shared inputs, with copies of its own of those it may write
    prepare_s: float
    first_call_s: float
    metrics: Callable[[], Mapping[str, float]] | None = None
    compiled: dict[str, float] = field(default_factory=dict)  # by torch.compile, in prepare and the first call
    output: list[Tensor] = field(default_factory=list)  # of the last proven call
    returned: Output = ()  # the same, as it was returned
    files: list[Path] = field(default_factory=list)  # in what was returned last
    held_bytes: float | None = None  # device memory that stays between its steps
    called_s: float = math.inf  # seconds of the quickest second call of a proof; none has been made yet


@dataclass
class Preparation:
    """Everything that one round measures. Build with `prepare_all`."""

    workload: Workload
    size: dict[str, Any]
    size_name: str
    device: torch.device
    scratch: Path
    seeds: random.Random
    ranks: Ranks = ALONE
    everyone: list[Inputs] = field(default_factory=list)  # inputs by rank, for the reference; `inputs` is one of them
    inputs: Inputs = field(default_factory=dict)
    frozen: Inputs = field(default_factory=dict)  # what the frozen ones must hold: a second copy, for the whole round
    variants: dict[str, Prepared] = field(default_factory=dict)
    dtypes: list[torch.dtype] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)  # that `inputs` drew
    pad: Tensor | None = None
    before: Settings = field(default_factory=dict)  # of the process, before anything was prepared

    def prepare_all(self, prepares: dict[str, Prepare], at: Callable[[str, str], None]) -> dict[str, "VariantError"]:
        """Draw inputs, then prepare every variant and call its step once, in random order; `at` hears who is at work.

        Returns what the variants raised that could not be prepared. Raises VariantError when inputs cannot be drawn.
        """
        free()
        self.pad = torch.empty(self.seeds.randrange(1, PAD_BYTES), dtype=torch.uint8, device=self.device)
        self.before = settings()
        at("workload", "inputs")
        self.everyone = self.draw()
        self.inputs = self.everyone[self.ranks.rank]
        self.frozen = {key: clone(self.inputs[key]) for key in self.workload.frozen}
        order = self.seeds.sample(list(prepares), len(prepares))
        failures = {}
        for name in order:
            at(name, "prepare")
            try:
                self.variants[name] = self._prepare(name, prepares[name])
            except VariantError as error:
                if self.ranks.size > 1:
                    raise  # the other ranks may be waiting for this one in a collective
                failures[name] = error
                try:
                    settle(self.device)  # whoever is next would be told of this one's error
                    self.overwrote("prepare or step")  # the others are to find what was drawn
                except (RuntimeError, Rejected) as lost:  # the device, by an illegal access, or the form of an input:
                    raise error from lost  # nobody works in this process any more
        return failures

    def draw(self) -> list[Inputs]:
        """Inputs of every rank, drawn here from one seed, since the reference of one rank depends on all of them."""
        seed, size = self.seeds.getrandbits(48), self.ranks.size
        try:
            inputs = [
                self.workload.inputs(Draw(self.device, seed, self.scratch, rank, size), **self.size)
                for rank in range(size)
            ]
            unknown = {*self.workload.frozen, *self.workload.mutates, *self.workload.as_drawn} - set(inputs[0])
            if unknown:
                named = "frozen, mutates or as_drawn names"
                raise Rejected(f"{named} {sorted(unknown)}, the inputs are {sorted(inputs[0])}")
            self.files = [path for path in self.scratch.rglob("*") if path.is_file()]
            if self.files:
                os.sync()  # pages still to be written cannot be dropped from the page cache
            return inputs
        except Exception as error:
            raise VariantError("workload", error) from error

    def _prepare(self, name: str, prepare: Prepare) -> Prepared:
        clear_workspaces()
        given = self.inputs | {key: clone(self.inputs[key]) for key in self.workload.mutates}
        before = allocated_bytes()
        try:
            compiled: dict[str, float] = {}
            with watched(compiled):
                started = now_s()
                made = prepare(**given)
                step, metrics = (made.step, made.metrics) if isinstance(made, Metered) else (made, None)
                if not callable(step):
                    raise Rejected(f"prepare returned {type(step).__name__}, not a step: end it with `return step`")
                settle(self.device)
                prepared = now_s()
                files = files_in(step())
                settle(self.device)
                called = now_s()
            if replaced := restore():
                raise Rejected(f"prepare or step replaced {', '.join(replaced)}")
            if overwrote := self.overwrote("prepare or step"):
                raise Rejected(overwrote)
            if left := self.left_changed("prepare or step"):
                raise Rejected(left)
        except Exception as error:
            self.left_changed("prepare or step")
            raise VariantError(name, error) from error
        result = Prepared(name, step, given, prepared - started, called - prepared, metrics, compiled, files=files)
        if self.device.type == "cuda":
            gc.collect()
            result.held_bytes = allocated_bytes() - before
        return result

    def left_changed(self, what: str) -> str | None:
        """Why a variant cannot stand beside others after `what` ran; the settings are then as they were before it."""
        changed = [] if self.workload.isolated else put_back(self.before)
        many = "put it back, or declare isolated=True, which gives each variant a process of its own"
        return f"{what} left {' and '.join(changed)} changed: {many}" if changed else None

    def overwrote(self, what: str) -> str | None:
        """Which frozen inputs `what` overwrote, if any; they hold again what was drawn."""
        spoilt = differing(self.inputs, self.frozen)
        for key in spoilt:
            overwrite(self.inputs[key], self.frozen[key], key)
        return f"{what} overwrote the input {' and '.join(map(repr, spoilt))}, which is frozen" if spoilt else None

    def pristine(self) -> Inputs:
        """What the inputs hold now, where no step can reach it.

        The frozen are not copied again for every trial, and what steps may write is out of reach as it is.
        """
        apart = self.frozen | {key: self.inputs[key] for key in self.workload.mutates}
        return {key: apart[key] if key in apart else clone(value) for key, value in self.inputs.items()}

    def refill(self) -> None:
        """Overwrite every input that is not frozen, in place, with fresh data; each variant's own copies too."""
        for inputs, fresh in zip(self.everyone, self.draw()):
            for key, value in inputs.items():
                if key not in self.workload.frozen:
                    overwrite(value, fresh[key], key)
        for variant in self.variants.values():
            for key in self.workload.mutates:
                overwrite(variant.inputs[key], self.inputs[key], key)

    def reference(self, inputs: Inputs) -> list[Tensor]:
        """The float64 answer for clones of these inputs, this rank's, beside those that the other ranks have.

        It is computed on the device under test, which is quicker than its host.
        """
        try:
            by_rank = [*self.everyone[: self.ranks.rank], inputs, *self.everyone[self.ranks.rank + 1 :]]
            doubled = [self._doubled(one) for one in by_rank]
            output: Output
            if self.ranks.size > 1:
                output = self.workload.reference(self.ranks.rank, **{key: [d[key] for d in doubled] for key in inputs})
            else:
                output = self.workload.reference(**doubled[0])
            return in_order(output, [leaf.detach() for leaf in leaves(output)])
        except Rejected:
            raise
        except Exception as error:
            raise VariantError("workload", error) from error

    def _doubled(self, inputs: Inputs) -> Inputs:
        """Clones in float64, but for the inputs that the reference widens itself."""
        wide = {key: value for key, value in inputs.items() if key not in self.workload.as_drawn}
        return inputs | pytree.tree_map(lambda leaf: _doubled(leaf, self.device), wide)

    def evict_files(self) -> None:
        """Drop the scratch files from the page cache, as the flush drops data from L2."""
        for path in self.files:
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def free() -> None:
    """Give back what earlier rounds held, so that the next ones' buffers land elsewhere.

    What is left is no variant's, so later collections need not look at it again: what compiled a variant leaves objects
    behind that took 15 to 45 ms to scan on an H200's host, once for each variant of each round.
    """
    gc.collect()
    gc.freeze()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def clear_workspaces() -> None:
    """Let every variant allocate its own cuBLAS workspaces, or their 32 MiB would count for whoever comes first."""
    if torch.cuda.is_initialized():
        torch._C._cuda_clearCublasWorkspaces()


def settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def allocated_bytes() -> int:
    return torch.cuda.memory_allocated() if torch.cuda.is_initialized() else 0


def clone(tree: Any) -> Any:
    return pytree.tree_map(lambda leaf: leaf.detach().clone() if isinstance(leaf, Tensor) else leaf, tree)


def differing(inputs: Inputs, kept: Inputs) -> list[str]:
    """The inputs among `kept` that no longer hold the values kept of them."""
    pairs = [(key, pair) for key in kept for pair in zip(tensors(inputs[key]), tensors(kept[key]))]
    alike = same(pair for _, pair in pairs)
    return list(dict.fromkeys(key for (key, _), unchanged in zip(pairs, alike) if not unchanged))


def tensors(tree: Any) -> list[Tensor]:
    """The tensors of an input, be it one or a list or dict of them."""
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]


def _doubled(leaf: Any, device: torch.device) -> Any:
    if not isinstance(leaf, Tensor):
        return leaf
    moved = leaf.detach().to(device)  # as it is: in one call torch widens it on the host, and sends twice as much
    wide = torch.float64 if leaf.dtype.is_floating_point else leaf.dtype
    return moved.to(wide, copy=leaf.device.type == device.type)


def overwrite(target: Any, source: Any, key: str) -> None:
    """Copy an input in place. Raises Rejected when shapes, dtypes or what is not a tensor differ between draws."""
    old, new = pytree.tree_leaves(target), pytree.tree_leaves(source)
    if len(old) != len(new):
        raise Rejected(f"input {key!r} has {len(new)} parts in one draw and {len(old)} in another")
    for a, b in zip(old, new):
        if isinstance(a, Tensor):
            if a.shape != b.shape or a.dtype != b.dtype:
                raise Rejected(f"input {key!r} changes from {a.dtype} {tuple(a.shape)} to {b.dtype} {tuple(b.shape)}")
            if a.device.type != b.device.type:
                raise Rejected(f"input {key!r} changes from {a.device.type} to {b.device.type}")
            with torch.no_grad():
                a.copy_(b)
        elif a != b:
            raise Rejected(f"input {key!r} is {a!r} in one draw and {b!r} in another: only tensors and files may vary")
