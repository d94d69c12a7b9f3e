"""What torch.compile and Triton compile is compiled before the first pair, side by side, as .cu files are.

Cold compilations, one after the other in every pair, took more of a suite than anything else. Short-lived workers
prepare these variants once at both sizes; what they compiled stays in the caches of Inductor and Triton on disk, and
the pair's own worker finds it there. How they fare is nobody's result: what fails or hangs is told of by its own pair.

What went well is noted, so that no later suite does it again. Whoever empties the caches of Inductor and Triton alone
leaves these notes, and so does a restart that empties /tmp: pairs then compile in their own time, until `cleanup.py`
removes the notes or a change of the file asks for another.
"""

import contextlib
import hashlib
import math
import re
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from common.python.base.machine import Machine
from common.python.base.manifest import versions
from common.python.base.paths import build_folder
from common.python.base.toolkit import ROOT
from common.python.corpus.discovery import Pair, Variant
from common.python.run.eligibility import assign, chosen_size
from common.python.workers.launch import Launch
from common.python.workers.members import part_from
from common.python.workers.process import Worker, WorkerError

GPU_GIB, PART = 10.0, 0.5  # of memory, for one variant and its inputs; and of what its pair needs, with a reference
SHARE = 0.25  # of the time that the suite has left, at most
COMPILES, CHOOSES = b"torch.compile", re.compile(rb"max[-_]autotune(?!_pointwise)")
COMPILING = re.compile(r"\b(torch\.compile|[Cc]ompile[sd]?|Inductor|Dynamo)\b")


@dataclass
class Ahead:
    """Workers at work for pairs that have not begun. Times in seconds; `deadline`, a monotonic one, is the suite's."""

    root: Path
    machine: Machine  # without GPUs where the device is the CPU
    size: str | None  # if one was asked for
    seed: int
    reproducible: bool
    limit_s: float  # for one variant
    deadline: float = math.inf
    share: float = SHARE  # of the time until then, at most
    workers: list[Worker] = field(default_factory=list)
    notes: Path = field(default_factory=lambda: build_folder(ROOT) / "ahead")

    def compile(self, pairs: Sequence[Pair], launch: Launch, say: Callable[[str], None]) -> None:
        """Prepare all that compiles, in a share of the suite's time; `say` hears how many, and how long it took.

        Of a single variant nothing is: its pair does as well. The large come first, which take longest.
        """
        started = time.monotonic()
        everything = [(pair, variant) for pair in pairs for variant in self._of(pair, launch)]
        if launch.follows or len(everything) < 2:
            return
        work = [(pair, variant) for pair, variant in everything if not self._note(pair, variant).exists()]
        if not work:
            return
        work.sort(key=lambda one: -one[1].required.memory_gib)
        until = started + self.share * (self.deadline - started)
        with tempfile.TemporaryDirectory(prefix="benchmark-", ignore_cleanup_errors=True) as scratch:
            done = self._side_by_side(work, Path(scratch), until)
        say(f"prepared {done} variants that compile, ahead of their pairs, in {time.monotonic() - started:.0f} s")

    def _of(self, pair: Pair, launch: Launch) -> list[Variant]:
        timed, _, _ = assign(pair, self.machine, bool(self.machine.gpus), launch)
        return [] if pair.gpus > 1 or teaches_compiling(pair) else [variant for variant in timed if compiles(variant)]

    def _side_by_side(self, work: Sequence[tuple[Pair, Variant]], scratch: Path, until: float) -> int:
        waiting = Waiting(work, self.machine.gpus[0].memory_gib if self.machine.gpus else math.inf)

        def some() -> int:
            done = 0
            while one := waiting.next():
                try:
                    done += self._prepare(*one, scratch, until)
                finally:
                    waiting.ended(one)
            return done

        with ThreadPoolExecutor(jobs(self.machine)) as pool:
            parts = [pool.submit(some) for _ in range(jobs(self.machine))]
            try:
                return sum(part.result() for part in parts)
            except BaseException:  # Ctrl-C most of all: threads cannot be stopped, but they end when their workers do
                waiting.clear()
                while not all(part.done() for part in parts):
                    for worker in list(self.workers):
                        worker.give_up()
                    time.sleep(0.1)
                raise

    def _note(self, pair: Pair, variant: Variant) -> Path:
        """The file that says that this variant, with these libraries, has been compiled for this device."""
        device = self.machine.gpus[0].name if self.machine.gpus else "cpu"
        files = [one.path.read_bytes() for one in (pair.baseline, variant) if one is not None]
        size = chosen_size(self.size, bool(self.machine.gpus))
        about = (str(self.root), variant.name, files, versions(), device, size)
        return self.notes / hashlib.sha256(repr(about).encode()).hexdigest()

    def _prepare(self, pair: Pair, variant: Variant, scratch: Path, until: float) -> bool:
        """Whether it could be prepared at both sizes in its time."""
        deadline = min(time.monotonic() + self.limit_s, until)
        if time.monotonic() >= deadline or pair.baseline is None:
            return False
        settings = {"seed": self.seed, "reproducible": self.reproducible}
        place = scratch / f"{pair.chapter}_{variant.name}"
        size = chosen_size(self.size, bool(self.machine.gpus))
        asked = {"baseline": pair.baseline.module, "name": variant.name, "module": variant.module, "size": size}
        try:
            worker = Worker(self.root, place, place.with_suffix(".log"), settings)
        except (OSError, EOFError):  # too many processes, a full disk
            return False
        self.workers.append(worker)
        try:
            note = self._note(pair, variant)  # of the file as it is before it is compiled
            chooses = bool(CHOOSES.search(variant.path.read_bytes()))
            done = bool(worker.call("fill_caches", deadline - time.monotonic(), **asked, chooses=chooses))
            if done:
                with contextlib.suppress(OSError):  # where nothing can be written, it is done each time
                    note.parent.mkdir(parents=True, exist_ok=True)
                    note.touch()
            return done
        except (WorkerError, OSError):
            return False
        finally:
            with contextlib.suppress(ValueError):
                self.workers.remove(worker)
            part_from([worker])


class Waiting:
    """Variants in their order, of which each takes its part of a GPU's memory, in GiB, while it is at work."""

    def __init__(self, work: Sequence[tuple[Pair, Variant]], gib: float) -> None:
        self._work, self._whole, self._left = list(work), gib, gib
        self._changed = threading.Condition()

    def next(self) -> tuple[Pair, Variant] | None:
        """The first that there is memory for, as soon as there is any; None when all have begun."""
        with self._changed:
            while self._work:
                if one := next((one for one in self._work if self._needs(one) <= self._left), None):
                    self._work.remove(one)
                    self._left -= self._needs(one)
                    return one
                self._changed.wait()
        return None

    def ended(self, one: tuple[Pair, Variant]) -> None:
        """It is at work no more."""
        with self._changed:
            self._left += self._needs(one)
            self._changed.notify_all()

    def clear(self) -> None:
        """No more are to begin."""
        with self._changed:
            self._work.clear()
            self._changed.notify_all()

    def _needs(self, one: tuple[Pair, Variant]) -> float:
        return min(self._whole, max(GPU_GIB, PART * one[1].required.memory_gib))


def jobs(machine: Machine) -> int:
    """Variants at a time: those of a GPU mostly wait for the host."""
    return max(1, machine.cores // 2) if machine.gpus else machine.cores


def compiles(variant: Variant) -> bool:
    """Whether a file is compiled when it is prepared: by torch.compile, or a kernel by Triton."""
    return "Triton" in variant.kinds or COMPILES in variant.path.read_bytes()


def teaches_compiling(pair: Pair) -> bool:
    """Whether the sentence of its baseline, or of what speaks for it, is about a compiler.

    Then the time of a first compilation is part of what it shows, and is to be seen where nothing was compiled ahead.
    """
    speak = (f"baseline_{pair.name}", f"optimized_{pair.name}")
    return any(COMPILING.search(variant.sentence) for variant in pair.variants if variant.name in speak)
