"""The sweep of `build`, and what it found: a table of kernels, warnings, reasons, one line of counts."""

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from common.python.base import manifest
from common.python.base.hardware import KIB
from common.python.base.journal import new_folder
from common.python.base.text import clean, counted
from common.python.build.compilation import TARGETS, compile_pairs
from common.python.build.record import ARCHS, Build, Compiled, KernelUse
from common.python.corpus.discovery import choose
from common.python.corpus.targets import TargetError
from common.python.report.live_view import LiveView, aside
from common.python.report.tables import filled, text_table, wide_console


def sweep(
    root: Path, targets: Sequence[str], archs: str | None, artifacts_dir: Path, jobs: int | None
) -> tuple[Build, Path]:
    """Compile what the targets name for `archs` (sm_90a,sm_80; None: `TARGETS`); write build.json.

    Returns the build and the new folder that has it. Raises TargetError for targets or architectures that do not
    exist, and OSError for a folder that cannot be written.
    """
    started = time.monotonic()
    pairs = choose(root, targets)
    names = list(TARGETS) if archs is None else list(dict.fromkeys(name.strip() for name in archs.split(",")))
    if unknown := [name for name in names if name not in ARCHS]:
        raise TargetError(f"{unknown[0]!r} is not an architecture; known are {', '.join(ARCHS)}")
    folder = new_folder(artifacts_dir)
    with LiveView(aside()) as view:
        compiled = compile_pairs(pairs, names, jobs, view)
    folders = {pair.chapter: pair.folder.path for pair in pairs}
    files = [Path(source) for source in by_source(compiled)]
    sources = [folders[str(file.parent)] / file.name for file in files]
    options = {"arch": ",".join(names), "jobs": jobs}
    build = Build(
        manifest=manifest.collect(targets, options, sources, None),
        finished=manifest.utc_now(),
        seconds=time.monotonic() - started,
        archs=names,
        warnings=[warning for one in compiled for warning in one.warnings],
        compiled=compiled,
    )
    (folder / "build.json").write_text(build.model_dump_json(indent=1))
    return build, folder


def by_source(compiled: Iterable[Compiled]) -> dict[str, list[Compiled]]:
    """The results of each file, in their order."""
    return {source: [*those] for source, those in groupby(compiled, lambda one: one.source)}


def remarks(build: Build) -> list[str]:
    """A line for each warning, failure and reason; files with one reason in common share a line."""
    lines = [] if build.compiled else ["nothing to compile: no .cu file and no Triton kernel among these pairs"]
    lines += [f"warning: {warning}" for warning in build.warnings]
    for one in build.compiled:
        if one.status == "failed":
            place = f"{one.source}:{one.line}" if one.line else one.source
            lines.append(f"failed: {place}, {one.arch}: {clean(one.reason or '')}")
    told: dict[tuple[str, str], list[Compiled]] = {}
    for one in build.compiled:
        if one.status != "failed" and one.reason:
            told.setdefault(("skipped" if one.status == "skipped" else "note", one.reason), []).append(one)
    for (label, reason), those in told.items():
        archs = dict.fromkeys(one.arch for one in those)
        where = "" if list(archs) == build.archs else f" for {', '.join(archs)}"
        lines.append(f"{label}{where}: {clean(reason)}: {', '.join(by_source(those))}")
    return lines


def counts(build: Build) -> str:
    """The sweep in one line."""
    found = Counter(one.status for one in build.compiled)
    cached, files = sum(one.cached for one in build.compiled), len(by_source(build.compiled))
    return (
        f"{counted(files, 'file')}, {counted(len(build.archs), 'architecture')}: {found['compiled']} compiled "
        f"({cached} from the cache), {found['skipped']} skipped, {found['failed']} failed, "
        f"{counted(len(build.warnings), 'warning')}, {build.seconds:.1f} s"
    )


def print_build(build: Build, folder: Path) -> None:
    """The table, a row for each kernel on each architecture; remarks, counts and folder below it."""
    rows = [(one.source, one.arch, *_cells(kernel)) for one in build.compiled for kernel in one.kernels]
    columns = ("file", "for", "kernel", "registers", "shared", "spilled", "stack", "matrix")
    shown = filled(columns, rows)  # a narrow terminal has no room for others
    wide_console().print(text_table(*shown, "compiled, not run", whole={*columns} - {"file", "kernel"}))
    for line in [*remarks(build), counts(build), f"results: {folder}"]:
        print(line)


def _cells(kernel: KernelUse) -> list[str]:
    """Its name, registers of a thread, KiB of a block, bytes of a thread in local memory, kind of matrix products."""
    short = name if len(name := kernel.name) <= 40 else f"{name[:20]}…{name[-19:]}"  # CUTLASS has very long ones
    local = [f"{count} B" if count else "" for count in (kernel.spill_bytes, kernel.stack_bytes)]
    shared = f"{kernel.shared_bytes / KIB:.4g} KiB" if kernel.shared_bytes else ""
    registers = "unknown" if kernel.registers is None else str(kernel.registers)
    return [short, registers, shared, *local, kernel.matrix or ""]
