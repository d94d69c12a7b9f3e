"""The record that `build` keeps: which file became what for which architecture."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from common.python.base.results import SCHEMA_VERSION, Manifest, Model
from common.python.build.kernel_use import KernelUse

Language = Literal["CUDA", "Triton"]
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
    at_test_size: list[KernelUse] = Field(default=[], description="retired")

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
