"""Every .cu file and every Triton kernel of the pairs, compiled for every architecture: no GPU is needed for that.

CUDA goes through the cache and the locks of `cuda`. Triton kernels are compiled by workers (`triton_targets`), for this
process imports neither torch nor a pair; what they answer is kept by a hash of the files that the variant is made of,
so that a sweep in which nothing changed starts no process at all.
"""

import ast
import hashlib
import importlib.metadata
import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from multiprocessing import forkserver
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from common.python.base import toolkit
from common.python.base.journal import write
from common.python.base.machine import Machine, crowding, machine
from common.python.base.paths import build_folder
from common.python.base.toolkit import find_nvcc
from common.python.build.record import ARCHS, Compiled, Language, Outcome, kernels_of, sm_of
from common.python.corpus.discovery import Pair, Variant
from common.python.cuda import CudaError, compile_source
from common.python.report.live_view import SILENCE, LiveView
from common.python.requirements import Requirements, arch_of, cuda_targets, unmet
from common.python.workers.parallel import at_once
from common.python.workers.process import START_LIMIT_S, WorkerError, one_worker, warm_up_forkserver

TARGETS = ("sm_80", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_120a", "sm_121a")
LIMIT_S = 300  # for a Triton variant and one architecture; a kernel takes a second or two
RECORD = {"module": "common.python.build.triton_targets", "function": "record"}
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"\n]+)"', re.MULTILINE)
STACK = re.compile("Fatal Python error|Thread 0x|Current thread")  # as faulthandler begins
LIBRARY = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, eq=False)
class Task:
    """One file to be compiled for one architecture."""

    pair: Pair
    variant: Variant
    language: Language
    arch: str

    @property
    def path(self) -> Path:
        return self.variant.path.with_suffix(".cu") if self.language == "CUDA" else self.variant.path

    @property
    def name(self) -> str:
        return f"{self.source} for {self.arch}"

    @property
    def source(self) -> str:
        return f"{self.pair.chapter}/{self.path.name}"

    def ended(self, status: Outcome, reason: str | None = None, **fields: Any) -> Compiled:
        """The result; of a failure with the line, if it names one of this file: `x.cu(3): error`, `x.py:3: message`."""
        if status == "failed" and reason:
            place = re.search(rf"{re.escape(self.path.name)}[:(](\d+)", reason)
            fields["line"] = int(place[1]) if place else None
            reason = reason.replace(f"{self.pair.folder.path}/", f"{self.pair.folder.name}/")
        fields |= {"source": self.source, "language": self.language, "arch": self.arch}
        return Compiled(status=status, reason=reason, **fields)


def compile_pairs(
    pairs: list[Pair],
    archs: Sequence[str],
    jobs: int | None = None,
    view: LiveView = SILENCE,
) -> list[Compiled]:
    """Compile the .cu files and Triton kernels of these pairs for each architecture, as many at a time as cores.

    `jobs` sets another number. One result for each file and architecture, in the order of the pairs; `view` shows how
    far it is.
    """
    here = machine()
    tasks = [task for pair in pairs for task in tasks_of(pair, archs)]
    results = {task: ended for task in tasks if (ended := _not_compiled(task, here))}
    places = {task: _place(task) for task in tasks if task not in results and task.language == "Triton"}
    for task, place in places.items():
        with suppress(OSError, ValueError):  # there is none, or not a whole one
            kept = Compiled.model_validate_json(place.read_text())
            results[task] = kept.model_copy(update={"source": task.source, "cached": True, "seconds": 0.0})
    todo = [task for task in tasks if task not in results]
    view.expect(len(todo), "compilations")
    with TemporaryDirectory(prefix="benchmark-triton-", ignore_cleanup_errors=True) as scratch:

        def compiled(task: Task) -> Compiled:
            view.begin(task.name)
            started, place = time.monotonic(), places.get(task)
            done = _compile_kernels(task, Path(scratch), place) if place else _compile_source(task)
            return done.model_copy(update={"seconds": time.monotonic() - started})

        with _compilers(Path(scratch)) if {*todo} & {*places} else nullcontext():
            for task, each in at_once(compiled, todo, jobs or here.cores):
                results[task] = each
                view.end(task.name)
    return [results[task] for task in tasks]


def tasks_of(pair: Pair, archs: Sequence[str]) -> Iterator[Task]:
    for variant in pair.variants:
        languages: list[Language] = ["CUDA"] * ("CUDA" in variant.kinds or variant.path.with_suffix(".cu").exists())
        languages += ["Triton"] * ("Triton" in variant.kinds)
        for language in languages:
            for arch in archs:
                yield Task(pair, variant, language, arch)


def _not_compiled(task: Task, here: Machine) -> Compiled | None:
    """The result of a task that need not be tried: for other architectures, for want of something, or wrong."""
    variant, required = task.variant, task.variant.required
    only, why = required.targets, ""
    if task.language == "CUDA":
        if not task.path.is_file():
            return task.ended("failed", reason=f"{variant.path.name} loads it, but there is no {task.source}")
        only, why = cuda_targets(task.path)
        if unknown := [arch for arch in only if arch not in ARCHS]:
            return task.ended("failed", f"// targets: names {unknown[0]!r}; known: {', '.join(ARCHS)}")
        if not variant.problem and set(only) != set(required.targets):
            written = f"needs(targets={list(required.targets)})"
            return task.ended("failed", f"// targets: says {list(only)}, but {variant.path.name} {written}")
        wants = Requirements(headers=required.headers)
    else:
        if variant.problem:
            return task.ended("failed", variant.problem)
        wants = Requirements(modules=("torch", "triton", *required.modules))
    reasons = [f"for {', '.join(only)} only" + f": {why}" * bool(why)] * bool(only and task.arch not in only)
    reasons += [f"needs sm_{required.sm} or later"] * (sm_of(task.arch) < (required.sm or 0))
    if task.language == "Triton" and task.arch != (own := arch_of(sm_of(task.arch))):
        reasons.append(f"triton compiles for {own} instead")
    if task.language == "CUDA" and find_nvcc() is None and "NVCC" not in os.environ:  # a wrong $NVCC is an error
        reasons.append("needs nvcc")
    reasons = reasons or unmet(wants, here)
    return task.ended("skipped", reason="; ".join(reasons)) if reasons else None


# CUDA.


def _compile_source(task: Task) -> Compiled:
    try:
        built = compile_source(task.path, task.arch)
    except (CudaError, OSError) as error:
        return task.ended("failed", str(error))
    return task.ended("compiled", cached=built.cached, kernels=kernels_of(built))


# Triton.


def _compile_kernels(task: Task, logs: Path, place: Path) -> Compiled:
    """What a worker makes of a variant's kernels within the limit, or what became of it and its last words."""
    log, required = logs / f"{place.stem}.log", task.variant.required
    several = task.pair.literals.get("gpus", 1) != 1
    wants_gpu = bool(required.gpus or required.memory_gib or required.sm or required.targets or several)
    named = {"variant": task.variant.module, "baseline": task.pair.baseline_module, "arch": task.arch, "log": str(log)}
    try:
        with one_worker(task.pair.folder.root.resolve(), log) as worker:
            compiled = task.ended(**worker.call("call", LIMIT_S, **RECORD, **named, wants_gpu=wants_gpu))
    except WorkerError as error:
        last = STACK.split(log.read_text())[0].strip().splitlines()[-1:]
        ended = error.reason.partition("; ")[0].replace("the worker", "the compiling process", 1)
        compiled = task.ended("failed", ": ".join([ended, *last]))
    if compiled.status != "failed" and "memory" not in (compiled.reason or ""):  # next time there may be more of it
        write(place, compiled.model_dump_json())
    return compiled


@contextmanager
def _compilers(folder: Path) -> Iterator[None]:
    """Workers inside see no GPU and have no interpreter of Triton's, on whatever machine: their server is a new one."""
    from unittest.mock import patch  # slow to load

    server: Any = forkserver._forkserver
    server._stop()
    with patch.dict(os.environ, CUDA_VISIBLE_DEVICES="", TRITON_INTERPRET="0"):
        warm_up_forkserver(RECORD["module"])
    try:
        with suppress(WorkerError), one_worker(folder, folder / "first.log") as worker:
            worker.call("describe", START_LIMIT_S * crowding())  # its server imports torch, which is in no task's time
        yield
    finally:
        server._stop()


def _place(task: Task) -> Path:
    """Where the result of a Triton task is kept: by its architecture, its files, the versions and triton's settings."""
    versions = [importlib.metadata.version(name) for name in ("torch", "triton")]
    free = ("TRITON_INTERPRET", "TRITON_CACHE_DIR")  # by which nothing is compiled otherwise
    settings = sorted(one for one in os.environ.items() if one[0].startswith("TRITON_") and one[0] not in free)
    digest = hashlib.sha256(json.dumps([task.arch, task.variant.module, versions, settings]).encode())
    root, own = task.pair.folder.root, LIBRARY / "common" / "python" / "build"
    for file in (own / "chips.json", *imports_of(own / "triton_targets.py", root), *imports_of(task.path, root)):
        digest.update(file.read_bytes())
    name = f"{task.path.parent.name}-{task.path.stem}-{task.arch}-{digest.hexdigest()[:16]}.json"
    return build_folder(toolkit.ROOT) / "triton" / name


def files_of(pair: Pair, library: bool = True) -> set[Path]:
    """The files of a pair, what they import, the .cu files beside those and the headers that these include.

    Of a variant that cannot be read or parsed, its own file alone. Raises OSError for a .cu file that cannot be read.
    """
    found = {file for variant in pair.variants for file in imports_of(variant.path, variant.root, library)}
    pending = {kernel for file in found if (kernel := file.with_suffix(".cu")).is_file()}
    while pending:
        found |= pending
        named = [(file.parent, name) for file in pending for name in INCLUDE.findall(file.read_text(errors="replace"))]
        headers = {folder / name for place, name in named for folder in (place, LIBRARY / "common" / "cuda")}
        pending = {header for header in headers if header.is_file()} - found
    return found


def imports_of(start: Path, root: Path, library: bool = True) -> list[Path]:
    """A file, the files under `root` that it imports, those that they import, and so on; with the `library`'s, too."""
    found, pending = {start}, [start]
    while pending:
        new = {*_imported(pending.pop(), root, library)} - found
        pending += new
        found |= new
    return sorted(found)


@cache
def _imported(file: Path, root: Path, library: bool) -> list[Path]:
    """The files that this one imports."""
    found = []
    for name in _names(file):
        ours = name.startswith("common.")
        place = (LIBRARY if ours else root).joinpath(*name.split("."))
        files = (place.with_suffix(".py"), place / "__init__.py") if name and ours <= library else ()
        found += [one for one in files if one.is_file()]
    return found


@cache
def _names(file: Path) -> list[str]:
    """Every name in a file that may be that of an imported module; none where it cannot be read or parsed."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
    return names
