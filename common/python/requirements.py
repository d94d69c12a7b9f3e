"""What a variant needs beyond its problem. An unmet need is `unsupported` with the reason, never worked around."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, fields
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from common.python.base.machine import Machine
from common.python.base.text import counted
from common.python.base.toolkit import find_header

HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
KINDS: dict[type, tuple[str, set[type]]] = {  # of needs, by the type of their defaults
    int: ("a whole number", {int}),
    float: ("a number of GiB", {int, float}),
    bool: ("True or False", {bool}),
    tuple: ("a list of words", {list, tuple}),
}
TARGET = re.compile(r"sm_\d+[af]?")


@dataclass(frozen=True, kw_only=True)
class Requirements:
    """What a variant declares: `requires = needs(sm=90, memory_gib=40, modules=["liger_kernel"])`.

    It is read from the source and not run, so the arguments must be literals. Raises TypeError for one of another type,
    ValueError for a target that is no architecture.
    """

    sm: int = 0  # least compute capability, as in sm_80: 80
    targets: Sequence[str] = ()  # the only architectures it is for, such as sm_90a
    gpus: int = 0
    memory_gib: float = 0.0  # of one GPU, at bench size; without a GPU the smaller sizes run
    host_memory_gib: float = 0.0
    cores: int = 1  # that this process may use
    modules: Sequence[str] = ()  # Python modules to import
    tools: Sequence[str] = ()  # programs on the PATH
    headers: Sequence[str] = ()  # C headers that nvcc must find
    direct_io: bool = False  # files of the scratch folder can be read past the page cache
    huge_pages: bool = False  # of 2 MiB, for memory that asks for them

    def __post_init__(self) -> None:
        for field in fields(self):
            value, (wanted, kinds) = getattr(self, field.name), KINDS[type(field.default)]
            words = value if type(value) in (list, tuple) else ()
            if type(value) not in kinds or not all(isinstance(word, str) for word in words):
                raise TypeError(f"needs({field.name}={value!r}) must be {wanted}")
            if type(value) is list:
                object.__setattr__(self, field.name, tuple(words))  # which can be hashed
        for target in self.targets:
            if not TARGET.fullmatch(target):
                raise ValueError(f"target {target!r} is not an architecture: write it as sm_90a")


needs = Requirements


def arch_of(sm: int) -> str:
    """What code for a GPU of this compute capability is compiled for: all that it has, where the compiler asks."""
    return f"sm_{sm}" + "a" * (sm >= 90)


def declared(source: Path, key: str) -> list[str]:
    """What a .cu file says of itself in its first lines, behind `// key:` in each."""
    lines = source.read_text(errors="replace").splitlines()[:12]
    return [found[1].strip() for line in lines if (found := re.fullmatch(rf"//\s*{key}:(.*)", line))]


def cuda_targets(source: Path) -> tuple[tuple[str, ...], str]:
    """The only architectures that a .cu file is for, and why; none means all.

    Read from its first lines: `// targets: sm_100a, sm_103a (tcgen05)`. Its Python file needs the same ones.
    """
    for text in declared(source, "targets"):
        names, _, why = text.partition("(")
        return tuple(name.strip() for name in names.split(",")), why.removesuffix(")").strip()
    return (), ""


def unmet(required: Requirements, machine: Machine) -> list[str]:
    """The needs this machine lacks, one phrase each, in the order a reader would check them; empty if it has all.

    Headers are looked for last, and only where nothing else is missing.
    """
    reasons = []
    gpus = machine.gpus
    wants_gpu = required.gpus or required.sm or required.targets
    if wants_gpu and len(gpus) < max(required.gpus, 1):
        reasons.append(f"needs {counted(max(required.gpus, 1), 'GPU')}, found {len(gpus)}")
    elif wants_gpu:
        gpu = gpus[0]
        if required.sm and gpu.sm < required.sm:
            reasons.append(f"needs sm_{required.sm} or later, found sm_{gpu.sm}")
        if required.targets and f"sm_{gpu.sm}" not in {target.rstrip("af") for target in required.targets}:
            reasons.append(f"is for {', '.join(required.targets)}, found sm_{gpu.sm}")
    if gpus and gpus[0].memory_gib < required.memory_gib:
        reasons.append(f"needs {required.memory_gib:g} GiB of GPU memory, found {gpus[0].memory_gib:.0f}")
    if machine.memory_gib < required.host_memory_gib:
        reasons.append(f"needs {required.host_memory_gib:g} GiB of host memory, found {machine.memory_gib:.0f}")
    if machine.cores < required.cores:
        reasons.append(f"needs {counted(required.cores, 'core')}, found {machine.cores}")
    if required.direct_io and not reads_directly(folder := Path(tempfile.gettempdir())):
        reasons.append(f"needs a scratch folder on a disk that takes O_DIRECT, {folder} is none: set TMPDIR")
    if required.huge_pages and not gives_huge_pages():
        reasons.append(f"needs huge pages on request, {HUGE_PAGES} does not give them: a superuser can")
    reasons += [f"needs the module {name}" for name in required.modules if not _importable(name)]
    reasons += [f"needs {tool} on the PATH" for tool in required.tools if shutil.which(tool) is None]
    if not reasons:  # asking nvcc where it looks takes a process
        reasons += [f"needs the header {header}" for header in required.headers if find_header(header) is None]
    return reasons


def imported(name: str, without: str) -> Any:
    """Import a module that a variant needs, as if another one that it only looks for were not there.

    Liger looks for peft by importing it, and with it transformers and all that this finds: a core's 1.3 s for 0.13.
    Raises ImportError, as an import does; also where the module cannot do without the other.
    """
    absent = without not in sys.modules
    if absent:
        sys.modules[without] = None  # type: ignore[assignment]  # which Python takes for "cannot be imported"
    try:
        return importlib.import_module(name)
    finally:
        if absent:
            del sys.modules[without]


def reads_directly(folder: Path) -> bool:
    """Whether a file in this folder can be opened with O_DIRECT, and is then read from a disk.

    Some layered filesystems refuse, and so did tmpfs, which takes the flag in newer kernels with only memory behind it.
    """
    kind = subprocess.run(["stat", "-f", "-c", "%T", str(folder)], capture_output=True, text=True, check=True).stdout
    if kind.strip() == "tmpfs":
        return False
    with tempfile.NamedTemporaryFile(dir=folder, prefix="benchmark-") as file:
        try:
            os.close(os.open(file.name, os.O_RDONLY | os.O_DIRECT))
        except OSError:
            return False
    return True


def gives_huge_pages(mode: Path = HUGE_PAGES) -> bool:
    """Whether the kernel, by what it says of itself, makes pages of 2 MiB for memory that madvise asks them for."""
    return mode.is_file() and "[never]" not in mode.read_text()


def _importable(module: str) -> bool:
    """Whether a module would be found, part by part: find_spec("a.b") would import the package a to look into it."""
    top, *parts = module.split(".")
    spec = importlib.util.find_spec(top)
    for part in parts:
        if spec is None or spec.submodule_search_locations is None:
            return False
        spec = PathFinder.find_spec(part, spec.submodule_search_locations)
    return spec is not None
