"""What compilers make of the kernels, read from what ptxas says and from PTX."""

import re
import shutil
import subprocess
from typing import Literal

from pydantic import Field

from common.python.base.results import Model
from common.python.cuda import Library

Matrix = Literal["mma", "wgmma", "tcgen05"]


class KernelUse(Model):
    """What one kernel takes of a multiprocessor. Null is what ptxas did not say."""

    name: str = Field(description="demangled, without parameters")
    registers: int | None = Field(default=None, description="of a thread")
    spill_bytes: int | None = Field(default=None, description="of registers, stored and loaded, of a thread")
    stack_bytes: int | None = Field(default=None, description="local-memory stack frame of a thread")
    shared_bytes: int | None = Field(default=None, description="of a block: static, and for Triton all of it")
    matrix: Matrix | None = Field(default=None, description="the matrix instruction in its PTX")


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
