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
from common.python.build.kernel_use import kernels_of
from common.python.build.record import ARCHS, Compiled, Language, sm_of
from common.python.corpus.discovery import Pair, Variant
from common.python.corpus.targets import TargetError
from common.python.cuda import CudaError, compile_source
from common.python.report.live_view import SILENCE, LiveView
from common.python.requirements import Requirements, arch_of, cuda_targets, unmet
from common.python.workers.parallel import at_once
from common.python.workers.probe import START_LIMIT_S
from common.python.workers.process import Worker, WorkerError, one_worker, warm_up_forkserver

TARGETS = ("sm_80", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_120a", "sm_121a")
LIMIT_S = 300  # for a Triton variant and one architecture; a kernel takes a second or two
RECORD = {"module": "common.python.build.triton_targets", "function": "record"}
STACK = re.compile("Fatal Python error|Thread 0x|Current thread")  # as faulthandler begins
LIBRARY = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
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

    def ended(self, status: Any, **fields: Any) -> Compiled:
        return Compiled(source=self.source, language=self.language, arch=self.arch, status=status, **fields)

    def failed(self, reason: str, **fields: Any) -> Compiled:
        """A failure, with the line if the reason names one of this file: `x.cu(3): error` or `x.py:3: message`."""
        place = re.search(rf"{re.escape(self.path.name)}[:(](\d+)", reason)
        folder = self.pair.folder
        shown = reason.replace(f"{folder.path}/", f"{folder.name}/")
        return self.ended("failed", reason=shown, line=int(place[1]) if place else None, **fields)


def check_archs(archs: Sequence[str]) -> None:
    """Raise TargetError, naming the known ones, for an architecture that is not among them, or for none at all."""
    unknown = [arch for arch in archs if arch not in ARCHS] or ([] if archs else [""])
    if unknown:
        raise TargetError(f"{unknown[0]!r} is not an architecture; known are {', '.join(ARCHS)}")


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
    tasks = [task for pair in pairs for task in _tasks(pair, archs)]
    results = {index: ended for index, task in enumerate(tasks) if (ended := _not_compiled(task, here))}
    made_of: dict[Path, list[Path]] = {}
    triton = [index for index, task in enumerate(tasks) if index not in results and task.language == "Triton"]
    places = {index: _place(tasks[index], made_of) for index in triton}
    for index, place in places.items():
        with suppress(OSError, ValueError):  # there is none, or not a whole one
            kept = Compiled.model_validate_json(place.read_text())
            results[index] = kept.model_copy(update={"source": tasks[index].source, "cached": True, "seconds": 0.0})
    todo = [index for index in range(len(tasks)) if index not in results]
    view.expect(len(todo), "compilations")
    with TemporaryDirectory(prefix="benchmark-triton-", ignore_cleanup_errors=True) as name:
        scratch = Path(name)

        def compiled(index: int) -> Compiled:
            view.begin(tasks[index].name)
            if index in places:
                return _compile_kernels(tasks[index], scratch / str(index), places[index])
            return _compile_source(tasks[index])

        with _compilers(scratch) if {*todo} & {*triton} else nullcontext():
            for index, each in at_once(compiled, todo, jobs or here.cores):
                results[index] = each
                view.end(tasks[index].name)
    return [results[index] for index in range(len(tasks))]


def _tasks(pair: Pair, archs: Sequence[str]) -> Iterator[Task]:
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
            return task.failed(f"// targets: names {unknown[0]!r}; known: {', '.join(ARCHS)}")
        if not variant.problem and set(only) != set(required.targets):
            written = f"needs(targets={list(required.targets)})"
            return task.failed(f"// targets: says {list(only)}, but {variant.path.name} {written}")
        wants = Requirements(headers=required.headers)
    else:
        if variant.problem:
            return task.failed(variant.problem)
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
    started = time.monotonic()
    try:
        built = compile_source(task.path, task.arch)
    except (CudaError, OSError) as error:
        return task.failed(str(error), seconds=time.monotonic() - started)
    seconds = time.monotonic() - started
    return task.ended("compiled", cached=built.cached, seconds=seconds, kernels=kernels_of(built))


# Triton.


def _compile_kernels(task: Task, scratch: Path, place: Path) -> Compiled:
    """What a worker makes of a variant's kernels; `place` keeps the result, unless it may be another later."""
    compiled = _judged(task, _record(task, scratch))
    if compiled.status != "failed" and "memory" not in (compiled.reason or ""):  # there may be more next time
        write(place, compiled.model_dump_json())
    return compiled


def _judged(task: Task, answer: dict[str, Any]) -> Compiled:
    """What an answer means. A pair that needs a GPU may fail without one; any other has no excuse."""
    seconds, required = answer.get("seconds", 0.0), task.variant.required
    several = task.pair.literals.get("gpus", 1) != 1
    wants_gpu = required.gpus or required.memory_gib or required.sm or required.targets or several
    if error := answer["error"]:
        if answer["compiling"] or not wants_gpu:
            return task.failed(error, seconds=seconds)
        return task.ended("skipped", reason=f"cannot be run without a GPU: {error}", seconds=seconds)
    if not answer["kernels"]:
        return task.ended("skipped", reason="launches no Triton kernel", seconds=seconds)
    kernels = {"kernels": answer["kernels"], "at_test_size": answer["at_test_size"]}
    return task.ended("compiled", reason=answer["note"], seconds=seconds, **kernels)


@contextmanager
def _compilers(folder: Path) -> Iterator[None]:
    """Workers inside see no GPU and have no interpreter of Triton's, on whatever machine: their server is a new one."""
    server: Any = forkserver._forkserver
    server._stop()
    kept = dict(os.environ)
    try:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        os.environ.pop("TRITON_INTERPRET", None)
        warm_up_forkserver(RECORD["module"])
    finally:
        os.environ.clear()
        os.environ.update(kept)
    try:
        with suppress(WorkerError), one_worker(folder, folder / "first.log") as worker:
            worker.call("refusals", START_LIMIT_S * crowding())  # its server imports torch, which is in no task's time
        yield
    finally:
        server._stop()


def _record(task: Task, place: Path) -> dict[str, Any]:
    """What a worker answers within the limit, or what became of it and its last words."""
    root, log = task.pair.folder.root.resolve(), place.with_suffix(".log")
    worker = Worker(root, place, log, {"seed": 0, "reproducible": False})
    named = {"variant": task.variant.module, "baseline": task.pair.baseline_module, "arch": task.arch, "log": str(log)}
    try:
        return dict(worker.call("call", LIMIT_S, **RECORD, **named))
    except WorkerError as error:
        last = STACK.split(log.read_text())[0].strip().splitlines()[-1:]
        ended = error.reason.partition("; ")[0].replace("the worker", "the compiling process", 1)
        return {"error": ": ".join([ended, *last]), "compiling": True}
    finally:
        worker.kill()


def _settings() -> dict[str, str]:
    """What triton reads from the environment and compiles by: all but where it caches and whether it interprets."""
    names = {name for name in os.environ if name.startswith("TRITON_")} - {"TRITON_INTERPRET", "TRITON_CACHE_DIR"}
    return {name: os.environ[name] for name in sorted(names)}


def _place(task: Task, made_of: dict[Path, list[Path]]) -> Path:
    """Where the result of a Triton task is kept: by its architecture, its files, the versions and triton's settings."""
    versions = [importlib.metadata.version(name) for name in ("torch", "triton")]
    digest = hashlib.sha256(json.dumps([task.arch, task.variant.module, versions, _settings()]).encode())
    own = LIBRARY / "common" / "python" / "build"
    digest.update((own / "chips.json").read_bytes())
    for start in (task.path, own / "triton_targets.py"):
        if start not in made_of:
            made_of[start] = imports_of(start, task.pair.folder.root)
        for file in made_of[start]:
            digest.update(file.read_bytes())
    name = f"{task.path.parent.name}-{task.path.stem}-{task.arch}-{digest.hexdigest()[:16]}.json"
    return build_folder(toolkit.ROOT) / "triton" / name


def imports_of(start: Path, root: Path, library: bool = True) -> list[Path]:
    """A file, the files under `root` that it imports, those that they import, and so on; with the `library`'s, too."""
    found, pending = {start}, [start]
    while pending:
        for name in _imported(pending.pop().read_bytes()):
            ours = name.startswith("common.")
            place = (LIBRARY if ours else root).joinpath(*name.split("."))
            files = (place.with_suffix(".py"), place / "__init__.py") if name and ours <= library else ()
            new = {file for file in files if file.is_file()} - found
            pending += new
            found |= new
    return sorted(found)


@cache
def _imported(source: bytes) -> list[str]:
    """Every name that may be that of an imported module."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
    return names
