"""What compilers make of the kernels: the record that `build` keeps, read from what ptxas says and from PTX."""

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from common.python.base.hardware import KIB
from common.python.base.manifest import digest
from common.python.base.results import SCHEMA_VERSION, Manifest, Model

Language = Literal["CUDA", "Triton"]
Outcome = Literal["compiled", "skipped", "failed"]
Matrix = Literal["mma", "wgmma", "tcgen05"]


@dataclass(frozen=True)
class Chip:
    """What a kernel, or the code that launches it, may ask of a GPU: multiprocessors, shared memory of a block."""

    multiprocessors: int
    shared_bytes: int


# By compute capability without its dot. Shared memory: CUDA programming guide, technical specifications; from 9.0 on
# ptxas 13.0 refuses more. Multiprocessors are those of one board, and only grids depend on them: A100, RTX 3090,
# RTX 4090, H200, B200, Blackwell Ultra (the whole chip, as NVIDIA describes it), RTX 5090, GB10 (6144 cores, 128 each).
CHIPS = {
    80: Chip(108, 163 * KIB),
    86: Chip(82, 99 * KIB),
    89: Chip(128, 99 * KIB),
    90: Chip(132, 227 * KIB),
    100: Chip(148, 227 * KIB),
    103: Chip(160, 227 * KIB),
    120: Chip(170, 99 * KIB),
    121: Chip(48, 99 * KIB),
}
# `a` is for one architecture alone (wgmma, tcgen05), which exists from 9.0 on; `f` for its family, from 10.0 on.
ARCHS = tuple(f"sm_{sm}{kind}" for sm in CHIPS for kind in ("", *("a" * (sm >= 90)), *("f" * (sm >= 100))))


def sm_of(arch: str) -> int:
    """The compute capability of an architecture's name: 90 for sm_90a."""
    return int(re.sub(r"\D", "", arch))


class KernelUse(Model):
    """What one kernel takes of a multiprocessor. Null is what ptxas did not say."""

    name: str = Field(description="demangled, without parameters")
    registers: int | None = Field(default=None, description="of a thread")
    spill_bytes: int | None = Field(default=None, description="of registers, stored and loaded, of a thread")
    stack_bytes: int | None = Field(default=None, description="local-memory stack frame of a thread")
    shared_bytes: int | None = Field(default=None, description="of a block: static, and for Triton all of it")
    matrix: Matrix | None = Field(default=None, description="the matrix instruction in its PTX")


class Compiled(Model):
    """One file compiled for one architecture, or the reason why it was not."""

    source: str = Field(description="relative to the root: ch07/baseline_transpose.cu")
    language: Language
    arch: str
    status: Outcome
    reason: str | None = Field(default=None, description="why not; of what is compiled, what was left out")
    line: int | None = Field(default=None, description="of the first error in the file")
    cached: bool = False
    seconds: float = 0.0
    kernels: list[KernelUse] = Field(default=[], description="as they are timed")
    at_test_size: list[KernelUse] = Field(default=[], description="which Triton specialises otherwise: never timed")

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


COMPILING = re.compile(r"Compiling entry function '(\S+)' for")
FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
ENTRY = re.compile(r"\.entry\s+([\w$]+)")
# The first that is found names a kernel: those with tcgen05 or wgmma may do lesser products with mma.
MATRIX: dict[Matrix, str] = {"tcgen05": r"\btcgen05\.mma\b", "wgmma": r"\bwgmma\.mma_async\b", "mma": r"\bmma\.s"}


def kernel_uses(log: str, ptx: str) -> list[KernelUse]:
    """The kernels of one compilation, from the log of `ptxas -v` and the PTX, in the order of the log."""
    _, *blocks = COMPILING.split(log)
    names, texts = blocks[::2], blocks[1::2]
    matrix = matrix_instructions(ptx)
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


def matrix_instructions(ptx: str) -> dict[str, Matrix | None]:
    """By the mangled name of each kernel, the matrix instruction that its PTX holds."""
    _, *blocks = ENTRY.split(ptx)
    return {
        name: next((matrix for matrix, pattern in MATRIX.items() if re.search(pattern, text)), None)
        for name, text in zip(blocks[::2], blocks[1::2])
    }


def demangled(names: list[str]) -> list[str]:
    """C++ names as they were written, without parameters; as they stand where binutils' c++filt is missing."""
    if shutil.which("c++filt") is None or not any(name.startswith("_Z") for name in names):
        return names
    done = subprocess.run(["c++filt", "-p"], input="\n".join(names), capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def keep(library: Path, kernels: list[KernelUse], read: list[Path]) -> None:
    """Write beside a library what it holds and which files it was made of; only with that is the library whole."""
    sources = {str(file): digest(file) for file in read}
    told = {"sha256": digest(library), "read": sources, "kernels": [kernel.model_dump() for kernel in kernels]}
    library.with_suffix(".json").write_text(json.dumps(told))


def kept(library: Path) -> list[KernelUse] | None:
    """The kernels of a cached library; None if it or its record is not whole, or a file it was made of has changed."""
    try:
        told = json.loads(library.with_suffix(".json").read_text())
        whole = all(digest(Path(name)) == sha256 for name, sha256 in {library: told["sha256"], **told["read"]}.items())
        return [KernelUse(**kernel) for kernel in told["kernels"]] if whole else None
    except (OSError, ValueError, KeyError, TypeError):  # pydantic's ValidationError is a ValueError
        return None
