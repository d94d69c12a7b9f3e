"""All that a pair's author meets: the problem, stated once, and the shape of a solution.

The unit is a function that returns a function: `prepare(**inputs)` does what may be done ahead and returns `step`,
and only calls of `step` are timed. Inputs, reference, cost and tolerance belong to the problem, never to a solution.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pydantic.dataclasses
import torch
from pydantic import Field
from torch import Tensor

from common.python.base.results import ClockName, Cost, Figure, Goal

__all__ = ["AnyOrder", "Cost", "Draw", "Metered", "Output", "Prepare", "Step", "Workload"]

SHORT = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp64": "float64"}
NUMBER = r"[+-]?([0-9]{1,99}\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,2})?"  # a finite one


@dataclass(frozen=True)
class AnyOrder:
    """An output whose rows may come in any order; they are compared as a multiset.

    Where rows are rounded, two of them must differ by more than that in the first column that tells them apart.
    """

    rows: Tensor


# A path is a file, compared by content: by the tensors in it where torch.save wrote it, by its bytes (uint8) otherwise.
Part = Tensor | AnyOrder | Path
Output = Part | tuple[Part, ...]
Step = Callable[[], Output]
Inputs = dict[str, Any]  # tensors, paths, and lists or dicts of them


@dataclass(frozen=True)
class Metered:
    """A step that has more to tell than its time: latencies of the requests in it, what rounding cost, pages in use.

    `metrics` gives finite numbers by name and unit ("first token p50 ms"), of the step that was called last. It is
    asked once, after an untimed call, while no other pair is at work; what it needs must not make timed ones slower.
    """

    step: Step
    metrics: Callable[[], Mapping[str, float]]


Prepare = Callable[..., Step | Metered]


@dataclass(frozen=True)
class Draw:
    """A seeded source of inputs on the device under test: it carries device, generator and scratch folder."""

    device: torch.device
    seed: int
    scratch: Path
    rank: int = 0  # whose inputs these are, where a pair is on several GPUs
    ranks: int = 1
    onto_host: bool = False  # drawn on the device all the same: a GPU draws a gigabyte before a CPU has drawn a tenth
    kept: Mapping[str, Any] = field(default_factory=dict)  # frozen inputs of an earlier draw, to return as they are

    @cached_property
    def generator(self) -> torch.Generator:
        apart = self.seed + 2 * self.rank  # beside `host`; a CPU's generator takes notice of the lower 32 bits alone
        return torch.Generator(self.device).manual_seed(apart)

    @cached_property
    def host(self) -> "Draw":
        """The same source in pageable host memory, for inputs whose way to the device is the subject."""
        return Draw(self.device, self.seed + 1, self.scratch, self.rank, self.ranks, onto_host=True)

    @cached_property
    def shared(self) -> "Draw":
        """A source that gives every rank the same, for what is replicated: the weights of data parallelism."""
        return Draw(self.device, self.seed - 2, self.scratch, ranks=self.ranks)

    def _placed(self, drawn: Tensor) -> Tensor:
        if not self.onto_host or not drawn.is_cuda:
            return drawn
        staging = torch.empty_like(drawn, device="cpu", pin_memory=True)  # torch keeps it for the next draw
        return staging.copy_(drawn).clone()

    def normal(self, *shape: int, std: float = 1.0, dtype: torch.dtype = torch.float32) -> Tensor:
        """Normal noise of mean 0; zeros would not do: on an H200 the same bf16 GEMM runs 13% faster on zeros."""
        return self._placed(torch.randn(shape, generator=self.generator, device=self.device, dtype=dtype).mul_(std))

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0, dtype: torch.dtype = torch.float32) -> Tensor:
        """Uniform noise from low to high; low-precision types may round up to high itself."""
        unit = torch.rand(shape, generator=self.generator, device=self.device, dtype=dtype)
        return self._placed(unit.mul_(high - low).add_(low))

    def integers(self, *shape: int, low: int = 0, high: int, dtype: torch.dtype = torch.int64) -> Tensor:
        """Uniform integers in [low, high)."""
        return self._placed(torch.randint(low, high, shape, generator=self.generator, device=self.device, dtype=dtype))

    def permutation(self, n: int) -> Tensor:
        """The numbers 0..n-1 in random order, int64."""
        return self._placed(torch.randperm(n, generator=self.generator, device=self.device))

    def file(self, name: str, data: Tensor) -> Path:
        """A scratch file of `data`'s bytes, overwritten by the next draw; no sample finds it in the page cache."""
        path = (self.scratch / f"of_rank{self.rank}" if self.ranks > 1 else self.scratch) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.detach().cpu().flatten().view(torch.uint8).numpy().tobytes())
        return path


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True)
class Workload:
    """A problem: what goes in, what must come out, the least that it costs, and at which sizes.

    inputs: `(draw, **size)` to a dict of tensors (or lists, dicts, paths), passed by name to `prepare` and `reference`.
    reference: the answer; it gets clones of the inputs on the device, with every floating tensor in float64.
    cost: `(**size)` to the least that the problem needs, whatever a variant happens to do. A list holds phases that
        depend on each other and so cannot overlap: their least times add up.
    sizes: `bench` (timed, fits a 24 GB card), `test` (tiny and odd), and `cpu` where a CPU can time it.
    tolerance: largest normwise relative error against the reference; 0.0 is bit-exact.
    frozen: inputs that `prepare` may digest ahead (weights); they are not refilled. One seed always gives the same.
    mutates: inputs that a step may write (parameters, a KV cache); each variant has its own copy.
    as_drawn: inputs that the reference gets as they are, not in float64, and widens part by part: 16 GB of bf16 weights
        would be 64 GB. It must not write them.
    gpus: the fewest GPUs that it needs. With more than one, `prepare` runs in a process for each, a rank, in which
        torch.distributed is initialised (NCCL; gloo on a CPU). `inputs` is called for each rank: what it draws differs
        by rank, but for `draw.shared`; `draw.rank` and `draw.ranks` say whose they are. `reference(rank, **inputs)`
        gets each input as a list, by rank, and gives what this rank must return: `lambda rank, a: sum(a)` is an
        all-reduce. `cost` is that of one rank; it may take `ranks`, their number. A sample is the slowest rank's time.
    isolated: each variant runs in a process of its own, for pairs about process-wide settings.
    rungs: names of the rungs in the order to learn them, separated by spaces; by default alphabetical.
    """

    inputs: Callable[..., Inputs]
    reference: Callable[..., Output]
    cost: Callable[..., Cost | list[Cost]]
    sizes: Mapping[str, Mapping[str, Figure]]
    tolerance: float = Field(ge=0.0, lt=1.0, allow_inf_nan=False)
    frozen: Sequence[str] = ()
    mutates: Sequence[str] = ()
    as_drawn: Sequence[str] = ()
    gpus: int = Field(default=1, ge=1)
    clock: ClockName = "device"
    goal: Goal = "speed"
    isolated: bool = False
    rungs: str = ""

    def __post_init__(self) -> None:
        for name, part in (("inputs", self.inputs), ("reference", self.reference), ("cost", self.cost)):
            if getattr(part, "__name__", "") == "<lambda>":
                part.__qualname__ = name  # by which Python tells of wrong arguments
        for name in ("bench", "test"):
            if name not in self.sizes:
                raise ValueError(f"Workload.sizes has no {name!r}: give bench, test and, where a CPU can time it, cpu")
        if unknown := set(self.sizes) - {"bench", "test", "cpu"}:
            raise ValueError(f"Workload.sizes has {sorted(unknown)}: the sizes are bench, test and cpu")
        if both := set(self.frozen) & set(self.mutates):
            raise ValueError(f"Workload has {sorted(both)} both frozen and mutated; a step may not write the frozen")

    def shape(self, size: str) -> dict[str, Any] | None:
        """The figures of a size, if it has that one; `bench,tokens=64` is bench with another number of tokens.

        Raises ValueError where the size has no scalar of that name, or one of another type.
        """
        name, *changes = size.split(",")
        if name not in self.sizes:
            return None
        shape = dict(self.sizes[name])
        scalars = [key for key, figure in shape.items() if not isinstance(figure, list | dict)]
        for key, _, text in (change.partition("=") for change in changes):
            if key not in scalars:
                raise ValueError(f"its size has no scalar {key!r}: it has {', '.join(scalars) or 'none'}")
            shape[key] = _like(key, shape[key], text)
        return shape


def _like(name: str, own: Any, text: str) -> Any:
    """What a text says as a value of the type of the pair's own. Raises ValueError."""
    value: Any = text
    right = ""
    if isinstance(own, bool):
        value, right = {"true": True, "false": False}.get(text.lower()), "true or false"
    elif isinstance(own, int):
        value, right = int(text) if re.fullmatch("[1-9][0-9]*", text) else None, "a whole number from 1 on"
    elif isinstance(own, float):
        value, right = float(text) if re.fullmatch(NUMBER, text) else None, "a number"
    elif isinstance(vars(torch).get(own), torch.dtype):
        dtype = vars(torch).get(SHORT.get(text, text))
        value = str(dtype).removeprefix("torch.") if isinstance(dtype, torch.dtype) else None
        right = f"a dtype of torch's ({', '.join(SHORT)} for short)"
    if value is None:
        raise ValueError(f"{name} is {right}, such as {own}, and not {text!r}")
    return value
