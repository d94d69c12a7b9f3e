"""The record that `build` keeps: which file became what for which architecture, by what ptxas says and by PTX."""

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from common.python.base.results import SCHEMA_VERSION, Manifest, Model, optional
from common.python.cuda import Library

Language = Literal["CUDA", "Triton"]
Matrix = Literal["mma", "wgmma", "tcgen05"]
Outcome = Literal["compiled", "skipped", "failed"]


@dataclass(frozen=True, kw_only=True)
class Chip:
    """A compute capability: its units, and what a kernel or the code that launches it may ask of the GPU."""

    units: list[str]  # of UNITS, which techniques of the corpus need
    multiprocessors: int = 0  # of one board; 0 where nothing is compiled for it
    shared_bytes: int = 0  # of a block, at most


_CHIPS = json.loads(Path(__file__).with_name("chips.json").read_text())  # with its sources
UNITS: list[str] = _CHIPS["units"]
CHIPS = {row.pop("sm"): Chip(**row) for row in _CHIPS["chips"]}
BUILT = [sm for sm, chip in CHIPS.items() if chip.multiprocessors]
# `a` is for one architecture alone (wgmma, tcgen05), which exists from 9.0 on; `f` for its family, from 10.0 on.
ARCHS = tuple(f"sm_{sm}{kind}" for sm in BUILT for kind in ("", *("a" * (sm >= 90)), *("f" * (sm >= 100))))


def sm_of(arch: str) -> int:
    """The compute capability of an architecture's name: 90 for sm_90a."""
    return int(re.sub(r"\D", "", arch))


class KernelUse(Model):
    """What one kernel takes of a multiprocessor. Null is what ptxas did not say."""

    name: str = Field(description="demangled, without parameters")
    registers: int | None = optional("of a thread")
    spill_bytes: int | None = optional("of registers, stored and loaded, of a thread")
    stack_bytes: int | None = optional("local-memory stack frame of a thread")
    shared_bytes: int | None = optional("of a block: static, and for Triton all of it")
    matrix: Matrix | None = optional("the matrix instruction in its PTX")


class Compiled(Model):
    """One file compiled for one architecture, or the reason why it was not."""

    source: str = Field(description="relative to the root: ch07/baseline_transpose.cu")
    language: Language
    arch: str
    status: Outcome
    reason: str | None = optional("why not; of what is compiled, what was left out")
    line: int | None = optional("of the first error in the file")
    cached: bool = False
    seconds: float = 0.0
    kernels: list[KernelUse] = optional("as they are timed", [])
    at_test_size: list[KernelUse] = optional("retired", [])

    @property
    def warnings(self) -> list[str]:
        """Kernels that go through local memory: each with its file and architecture."""
        found = []
        for kernel in self.kernels:
            local = [f"spills {kernel.spill_bytes} bytes"] * bool(kernel.spill_bytes)
            local += [f"has a stack frame of {kernel.stack_bytes} bytes"] * bool(kernel.stack_bytes)
            if local:
                found.append(f"{self.source}, {self.arch}: {kernel.name} {' and '.join(local)} in local memory")
        return found


class Build(Model):
    """A sweep: every file for every architecture that was asked for."""

    schema_version: int = SCHEMA_VERSION
    manifest: Manifest
    finished: str
    seconds: float
    archs: list[str]
    warnings: list[str]
    compiled: list[Compiled]


# What compilers make of the kernels.

COMPILING = re.compile(r"Compiling entry function '(\S+)' for")
FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
ENTRY = re.compile(r"\.entry\s+([\w$]+)")
# The first that is found names a kernel: those with tcgen05 or wgmma may do lesser products with mma.
MATRIX: dict[Matrix, str] = {"tcgen05": r"\btcgen05\.mma\b", "wgmma": r"\bwgmma\.mma_async\b", "mma": r"\bmma\.s"}


def kernels_of(library: Library) -> list[KernelUse]:
    return kernel_uses(library.log, library.path.with_suffix(".ptx").read_text())


def kernel_uses(log: str, ptx: str) -> list[KernelUse]:
    """The kernels of one compilation, from the log of `ptxas -v` and the PTX, in the order of the log."""
    _, *blocks = COMPILING.split(log)
    names, texts = blocks[::2], blocks[1::2]
    _, *entries = ENTRY.split(ptx)  # mangled names and what follows each
    matrix: dict[str, Matrix | None] = {
        name: next((one for one, pattern in MATRIX.items() if re.search(pattern, text)), None)
        for name, text in zip(entries[::2], entries[1::2])
    }
    return [_use(shown, text, matrix.get(name)) for name, shown, text in zip(names, demangled(names), texts)]


def _use(name: str, text: str, matrix: Matrix | None) -> KernelUse:
    frames = [tuple(map(int, found)) for found in FRAME.findall(text)]  # its own, and of functions that it calls
    registers = re.search(r"Used (\d+) registers", text)
    shared = re.search(r"(\d+) bytes smem", text)
    return KernelUse(
        name=name,
        registers=int(registers[1]) if registers else None,
        spill_bytes=sum(stores + loads for _, stores, loads in frames) if frames else None,
        stack_bytes=sum(frame for frame, _, _ in frames) if frames else None,
        shared_bytes=(int(shared[1]) if shared else 0) if registers else None,
        matrix=matrix,
    )


def demangled(names: list[str]) -> list[str]:
    """C++ names as they were written, without parameters; as they stand where binutils' c++filt is missing."""
    if shutil.which("c++filt") is None or not any(name.startswith("_Z") for name in names):
        return names
    done = subprocess.run(["c++filt", "-p"], input="\n".join(names), capture_output=True, text=True, check=True)
    return done.stdout.splitlines()
