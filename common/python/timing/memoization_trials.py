"""Timed trials of whether a variant remembers answers; `stats.timing_sanity` decides on them."""

import random
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import torch

from common.python.base.results import Trio
from common.python.proof.preparation import Preparation, clone, overwrite, tensors
from common.python.stats.timing_sanity import remembers
from common.python.workload import Inputs

CALLS = 6  # of the step in a trio
FLUSH_BYTES = 1 << 24  # of a small flush: more than a core's own caches hold
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
TimedUs = Callable[[str], float]  # calls a variant's step once; microseconds


def run_trios(prep: Preparation, names: Sequence[str], timed_us: TimedUs, limit_s: float) -> dict[str, list[Trio]]:
    """Time trios of each variant until it is decided, or its share of `limit_s` and what others left of theirs is over.

    Whom a small flush convicts is tried anew with a large one: the host's caches may know what a seen input looks up.
    None are run on several ranks, which would have to agree on the order, and where inputs are files, since rewriting
    those changes how fast a disk reads them.
    """
    found: dict[str, list[Trio]] = {name: [] for name in names}
    if prep.ranks.size > 1 or prep.files:
        return found
    started = time.perf_counter()
    with suppress(torch.OutOfMemoryError):  # no room for copies of the inputs: undecided
        arms = Arms(prep)
        for number, name in enumerate(names, start=1):
            until = started + limit_s * number / len(names)
            took_s = CALLS * (_seconds(partial(timed_us, name)) + arms.drawing_s)
            for flush_bytes in arms.flushes:
                found[name], flush = [], torch.ones(flush_bytes // 4)
                while remembers(found[name]) is None and time.perf_counter() + took_s <= until:
                    began = time.perf_counter()
                    found[name].append(arms.trio(name, timed_us, flush))
                    took_s = time.perf_counter() - began
                if not remembers(found[name]):
                    break
    return found


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _large_flush() -> int:
    """Twice the bytes of the host's largest cache; of a small flush where Linux tells none."""
    told = [int(size.read_text().strip().removesuffix("K")) << 10 for size in CACHES.glob("index*/size")]
    return 2 * max([FLUSH_BYTES, *told])


class Arms:
    """The three arms of a trio, on the inputs that variants share."""

    def __init__(self, prep: Preparation) -> None:
        """Fill the inputs with fresh values; the frozen ones stay as they are.

        Integers and masks stay too where others are floating-point: new counts make a library choose kernels anew.
        """
        self.prep, self.mutated = prep, prep.workload.mutates
        inputs = {key: value for key, value in prep.inputs.items() if key not in prep.workload.frozen}
        self.drawn = [key for key, value in inputs.items() if any(x.is_floating_point() for x in tensors(value))]
        self.drawn = self.drawn or [*inputs]
        self.held, self.next = clone(inputs), clone(inputs)  # the values that the inputs hold, and will hold next
        on_host = any(leaf.device.type == "cpu" for leaf in tensors([*prep.inputs.values()]))
        self.flushes = [FLUSH_BYTES, _large_flush()] if on_host else [0]  # the GPU's clock flushes the GPU's cache
        self.drawing_s = _seconds(self._draw)
        _put(prep.inputs, self.held, self.held)

    def trio(self, name: str, timed_us: TimedUs, flush: torch.Tensor) -> Trio:
        """Run each arm: a call, a copy of all inputs in one direction or another, a flush, and the call that counts."""
        inputs = self.prep.variants[name].inputs
        self._draw()
        times = {}
        for arm in random.sample([*Trio.model_fields], len(Trio.model_fields)):
            _put(inputs, self.held, self.mutated)
            timed_us(name)
            if arm == "new_us":
                self.held, self.next = self.next, self.held
            if arm == "untouched_us":
                _put(inputs, self.held, self.mutated)  # which the step has written
                rest = [key for key in self.held if key not in self.mutated]
                _put(self.held, inputs, rest)  # reads as much as the other arms write
            else:
                _put(inputs, self.held, self.held)
            flush.sum()
            times[arm] = timed_us(name)
        return Trio(**times)

    def _draw(self) -> None:
        [drawn] = self.prep.draw()
        _put(self.next, drawn, self.drawn)


def _put(target: Inputs, source: Inputs, keys: Iterable[str]) -> None:
    for key in keys:
        overwrite(target[key], source[key], key)
