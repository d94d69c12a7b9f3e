"""One round: inputs drawn afresh and every variant prepared anew on them.

Where buffers land moves a copy by 0.4% (measured on an H200), which no number of samples of one allocation shows. So a
round frees everything, allocates a pad of random size and prepares the variants in random order.
"""

import gc
import os
import random
import secrets
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor
from torch.utils import _pytree as pytree

from common.python.base.safe_read import first_of
from common.python.proof.comparison import Rejected, files_in, fingerprint, in_order, leaves, same
from common.python.proof.originals import Settings, left_changed, now_s, settings
from common.python.proof.ranks import ALONE, Ranks
from common.python.workload import Draw, Inputs, Metered, Output, Prepare, Step, Workload

PAD_BYTES = 64 << 20
DYNAMO = "torch._dynamo.utils"  # importing it takes seconds, which a process that compiles nothing should not spend
RECOMPILES = 16  # in a round: the 8 of one function that torch allows, for the baseline and for the control
OVERLAPS = 1  # says torch of a tensor that has two elements in one place
RESUMED = "torch_dynamo_resume_in"  # how dynamo names the code behind a graph break


class VariantError(Exception):
    """A variant (or "workload": its `inputs` or `reference`) that failed: `who`, and the reason or what it raised."""

    def __init__(self, who: str, error: BaseException | str, called: object = None) -> None:
        super().__init__(error if isinstance(error, str) else _described(error, called))
        self.who, self.out_of_memory = who, isinstance(error, torch.OutOfMemoryError)


def _described(error: BaseException, called: object) -> str:
    """The type and message of what user code raised, and where in its own file; if nowhere, where `called` stands."""
    others = ("<", "/common/python/", "site-packages", "/lib/python")
    found = [(f.filename, f.lineno) for f in traceback.extract_tb(error.__traceback__)]
    own = [(file, line) for file, line in found if not any(part in file for part in others)]
    if not own and isinstance(error, TypeError) and (code := getattr(called, "__code__", None)):  # of other arguments
        own = [(code.co_filename, code.co_firstlineno)]
    place = f" at {Path(own[-1][0]).name}:{own[-1][1]}" if own else ""
    why = first_of(error) if isinstance(error, ValidationError) else [*str(error).strip().splitlines(), "no message"][0]
    return why if isinstance(error, Rejected) and not place else f"{type(error).__name__}{place}: {why}"


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
    at: Callable[[str, str], None] = lambda who, what: None  # hears whose code is at work, and on what
    everyone: list[Inputs] = field(default_factory=list)  # inputs by rank, for the reference; `inputs` is one of them
    inputs: Inputs = field(default_factory=dict)
    seed: int = 0  # of the first draw, whose frozen inputs stay
    frozen: dict[str, list[object]] = field(default_factory=dict)  # their fingerprints
    secret: int = field(default_factory=lambda: secrets.randbits(63))  # seeds the numbers of the fingerprints
    variants: dict[str, Prepared] = field(default_factory=dict)
    dtypes: list[torch.dtype] = field(default_factory=list)  # of every variant's outputs
    files: list[Path] = field(default_factory=list)  # that `inputs` drew
    pad: Tensor | None = None
    before: Settings = field(default_factory=dict)  # of the process, before anything was prepared

    def prepare_all(self, prepares: dict[str, Prepare]) -> dict[str, VariantError]:
        """Draw inputs, then prepare every variant and call its step once, in random order.

        Returns the errors of the variants that could not be prepared. Raises VariantError where inputs cannot be drawn
        or the process cannot go on.
        """
        free()
        self.pad = torch.empty(self.seeds.randrange(1, PAD_BYTES), dtype=torch.uint8, device=self.device)
        if DYNAMO in sys.modules:  # in one process of its own each round could recompile as often as torch allows
            config = sys.modules[DYNAMO].config
            config.recompile_limit += RECOMPILES
            config.accumulated_recompile_limit += RECOMPILES
        self.before = settings()
        self.at("workload", "inputs")
        self.everyone = self.draw()
        self.inputs = self.everyone[self.ranks.rank]
        self.frozen = {key: self._fingerprint(key) for key in self.workload.frozen}
        failures = {}
        for name in self.seeds.sample(list(prepares), len(prepares)):
            self.at(name, "prepare")
            try:
                self.variants[name] = self._prepare(name, prepares[name])
            except VariantError as error:
                if self.ranks.size > 1:
                    raise  # the other ranks may be waiting for this one in a collective
                failures[name] = error
                try:
                    settle(self.device)  # else the next variant would get this one's error
                    self.overwrote("prepare or step")  # and restore what it overwrote
                except (RuntimeError, Rejected, VariantError) as lost:  # after an illegal access, or of another form
                    raise error from lost
        return failures

    def draw(self, apart: str = "") -> list[Inputs]:
        """Inputs of every rank, since the reference of one depends on all; with a folder `apart`, the first again."""
        seed, size = self.seed if apart else self.seeds.getrandbits(48), self.ranks.size
        self.seed, scratch = self.seed or seed, Path(apart or self.scratch)
        there = self.everyone if self.everyone and not apart else [{}] * size
        kept = [{key: one[key] for key in one.keys() & {*self.workload.frozen}} for one in there]
        try:
            draws = [Draw(self.device, seed, scratch, rank, size, kept=kept[rank]) for rank in range(size)]
            inputs = [self.workload.inputs(draw, **self.size) for draw in draws]
            if not isinstance(inputs[0], dict):
                raise Rejected(f"inputs must return a dict of tensors by name, not a {type(inputs[0]).__name__}")
            if unknown := {*self.workload.frozen, *self.workload.mutates, *self.workload.as_drawn} - set(inputs[0]):
                named = "frozen, mutates or as_drawn names"
                raise Rejected(f"{named} {sorted(unknown)}, the inputs are {sorted(inputs[0])}")
            for key, value in inputs[0].items():
                self._refuse(key, value)
            self.files = [path for path in self.scratch.rglob("*") if path.is_file()]
            if self.files:
                os.sync()  # pages still to be written cannot be dropped from the page cache
            return inputs
        except Exception as error:
            raise VariantError("workload", error, self.workload.inputs) from error

    def _refuse(self, key: str, value: Any) -> None:
        """Raises Rejected for an input that cannot be overwritten in place with other values."""
        for tensor in tensors(value):
            if tensor.layout != torch.strided:
                raise Rejected(f"input {key!r} is {tensor.layout}: give its parts (values, indices) as inputs")
            if key not in self.workload.frozen and torch._debug_has_internal_overlap(tensor) == OVERLAPS:
                raise Rejected(f"input {key!r} overlaps itself, as an expanded view does: make it contiguous")

    def _prepare(self, name: str, prepare: Prepare) -> Prepared:
        if torch.cuda.is_initialized():  # else the 32 MiB of cuBLAS workspaces would count for the first variant
            torch._C._cuda_clearCublasWorkspaces()
        given = self.inputs | {key: clone(self.inputs[key]) for key in self.workload.mutates}
        before = torch.cuda.memory_allocated()  # 0 without CUDA
        try:
            with compilation() as compiled:
                started = now_s()
                made = prepare(**given)
                step, metrics = (made.step, made.metrics) if isinstance(made, Metered) else (made, None)
                if not callable(step):
                    raise Rejected(f"prepare returned {type(step).__name__}, not a step: end it with `return step`")
                settle(self.device)
                self.at(name, "its first step")
                prepared = now_s()
                files = files_in(step())
                settle(self.device)
                called = now_s()
            if reason := self.overwrote("prepare or step") or self.left_changed("prepare or step"):
                raise Rejected(reason)
        except Exception as error:
            self.left_changed("prepare or step")
            raise VariantError(name, error, prepare) from error
        result = Prepared(name, step, given, prepared - started, called - prepared, metrics, compiled, files=files)
        if self.device.type == "cuda":
            gc.collect()
            result.held_bytes = torch.cuda.memory_allocated() - before
        return result

    def left_changed(self, what: str) -> str | None:
        """Restore what measures and the settings of the process; the reason why `what` must not leave them changed."""
        return left_changed(what, None if self.workload.isolated else self.before)

    def overwrote(self, what: str) -> str | None:
        """Restore the frozen inputs, and name those that `what` overwrote."""
        names = self.restore_inputs({})
        return f"{what} overwrote the input {names}, which is frozen" if names else None

    def restore_inputs(self, kept: Inputs) -> str:
        """Restore the frozen inputs and those of `kept`; the names of the inputs that had changed."""
        lost = [key for key, seen in self.frozen.items() if self._fingerprint(key) != seen]
        changed = [key for key in kept if not all(map(same, tensors(self.inputs[key]), tensors(kept[key])))] + lost
        names = " and ".join(map(repr, changed))
        if lost:
            self.scratch.mkdir(parents=True, exist_ok=True)
            try:
                with TemporaryDirectory(dir=self.scratch) as folder:
                    kept = self.draw(folder)[self.ranks.rank] | kept
            except VariantError as error:  # such as too little memory for both
                raise Rejected(f"input {names} was overwritten and cannot be drawn again: {error}") from error
        for key in changed:
            overwrite(self.inputs[key], kept[key], key)
        if any(self._fingerprint(key) != self.frozen[key] for key in lost):
            raise Rejected(f"overwrote the input {names}; one seed gives `inputs` other values each time: it is lost")
        return names

    def _fingerprint(self, key: str) -> list[object]:
        return fingerprint(tensors(self.inputs[key]), self.device, self.secret)

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
        """The float64 answer for clones of this rank's inputs, computed on the device, which is quicker than its host.

        With several ranks it also gets the inputs of the others.
        """
        try:
            by_rank = [*self.everyone[: self.ranks.rank], inputs, *self.everyone[self.ranks.rank + 1 :]]
            doubled = [self._doubled(one) for one in by_rank]
            if self.ranks.size > 1:
                output = self.workload.reference(self.ranks.rank, **{key: [d[key] for d in doubled] for key in inputs})
            else:
                output = self.workload.reference(**doubled[0])
            return in_order(output, [leaf.detach() for leaf in leaves(output)])
        except Rejected:
            raise
        except Exception as error:
            raise VariantError("workload", error, self.workload.reference) from error

    def _doubled(self, inputs: Inputs) -> Inputs:
        """Clones in float64, except of inputs that the reference widens itself."""
        wide = {key: value for key, value in inputs.items() if key not in self.workload.as_drawn}
        return inputs | pytree.tree_map_only(Tensor, lambda leaf: _doubled(leaf, self.device), wide)

    def evict_files(self) -> None:
        """Drop the files that inputs name by a Path, not a str, from the page cache, as the flush drops L2's data."""
        for path in (leaf for leaf in pytree.tree_leaves(self.everyone) if isinstance(leaf, Path)):
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


@contextmanager
def compilation() -> Iterator[dict[str, float]]:
    """What torch.compile does inside, filled in at the end: graphs, breaks in them, cache hits, seconds; else empty.

    It is read from dynamo's own records of its last 64 compilations.
    """
    told: dict[str, float] = {}
    if DYNAMO in sys.modules:
        sys.modules[DYNAMO].clear_compilation_metrics()
    yield told
    events = sys.modules[DYNAMO].get_compilation_metrics() if DYNAMO in sys.modules else []
    if seen := [event for event in events if not event.is_runtime]:
        told["graphs"] = sum(event.fail_type is None for event in seen)
        told["graph breaks"] = sum((event.co_name or "").startswith(RESUMED) for event in seen)
        told["graphs from the cache"] = sum(bool(event.inductor_fx_local_cache_hit_count) for event in seen)
        told["compilation s"] = sum(event.duration_us or 0 for event in seen) / 1e6


def free() -> None:
    """Release what earlier rounds held, so that the next one's buffers land elsewhere.

    What remains belongs to no variant, so later collections skip it: scanning what a compiler leaves behind took 15 to
    45 ms for each variant of each round on an H200's host.
    """
    gc.collect()
    gc.freeze()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def settle(device: torch.device) -> None:
    """Wait until the device is idle."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def clone(tree: Any) -> Any:
    """A copy of an input, its tensors with the strides that they have."""

    def copied(one: Tensor) -> Tensor:
        if torch._debug_has_internal_overlap(one) == OVERLAPS:
            return one.detach().clone()
        return torch.empty_strided(one.shape, one.stride(), dtype=one.dtype, device=one.device).copy_(one.detach())

    return pytree.tree_map_only(Tensor, copied, tree)


def tensors(tree: Any) -> list[Tensor]:
    """The tensors of an input, be it one or a list or dict of them."""
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]


def _doubled(leaf: Tensor, device: torch.device) -> Tensor:
    moved = leaf.detach().to(device)  # first: in one call torch widens it on the host, and sends twice as much
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
