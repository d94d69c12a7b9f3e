"""The sweep of `build`, and what it found: a table of files by architectures, warnings, reasons, one line of counts."""

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
from common.python.build.kernel_use import KernelUse
from common.python.build.record import ARCHS, Build, Compiled
from common.python.corpus.discovery import choose
from common.python.corpus.targets import TargetError
from common.python.report.live_view import LiveView, aside
from common.python.report.tables import text_table, wide_console


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
    """The results of each file, which stand side by side, in their order."""
    return {source: [*those] for source, those in groupby(compiled, lambda one: one.source)}


def _named(kernels: list[KernelUse]) -> dict[tuple[str, int], KernelUse]:
    """The kernels by name and, of those that share one, by number; ptxas has another order for each architecture."""
    found: dict[tuple[str, int], KernelUse] = {}
    for kernel in kernels:
        found[kernel.name, sum(name == kernel.name for name, _ in found)] = kernel
    return found


def _cell(one: Compiled, kernel: KernelUse | None, number: int) -> str:
    if kernel is None:
        return "" if number or one.status == "compiled" else one.status
    words = ["registers unknown" if kernel.registers is None else f"{kernel.registers} regs"]
    words += [f"{(kernel.shared_bytes or 0) / KIB:.4g} KiB"] * bool(kernel.shared_bytes)
    words += [f"{kernel.spill_bytes} B spilled"] * bool(kernel.spill_bytes)
    words += [f"{kernel.stack_bytes} B stack"] * bool(kernel.stack_bytes)
    return ", ".join([*words, *([kernel.matrix] if kernel.matrix else [])])


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
    """The table, a row for each kernel with what it takes on each architecture; remarks, counts and folder below it."""
    rows: list[tuple[str, ...]] = []
    for source, results in by_source(build.compiled).items():
        columns = [_named(one.kernels) for one in results]
        names = list(dict.fromkeys(name for column in columns for name in column)) or [("", 0)]
        for number, name in enumerate(names):
            cells = [_cell(one, column.get(name), number) for one, column in zip(results, columns)]
            short = name[0] if len(name[0]) <= 40 else f"{name[0][:20]}…{name[0][-19:]}"  # CUTLASS has very long ones
            rows.append((source if number == 0 else "", short, *cells))
    table = text_table(("file", "kernel", *build.archs), rows, "compiled, not run", whole=("file", "kernel"))
    wide_console().print(table)
    for line in [*remarks(build), counts(build), f"results: {folder}"]:
        print(line)
