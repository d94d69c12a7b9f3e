"""compute-sanitizer over the pairs that have kernels of their own, CUDA or Triton, at `test` size.

Each of its tools watches one step of every such variant.

PyTorch's caching allocator is off and memcheck pads each allocation, so that a write past the end of a tensor lands in
memory that is not allocated. Where a graph is captured, which forbids allocations, the caching allocator is on, and the
output says so. Each peer has a process of its own. Exit codes: 0 clean, 1 errors, 2 usage, 4 nothing could run here.
"""

import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from common.python.base.machine import Gpu, Machine, machine
from common.python.base.reaper import PR_SET_CHILD_SUBREAPER, end_children, prctl
from common.python.base.text import clean
from common.python.base.toolkit import ROOT, find_program
from common.python.build.compilation import imports_of, tasks_of
from common.python.corpus.discovery import Pair, choose
from common.python.cuda import CudaError, compile_source
from common.python.profile.nsight import run_to_end, step_command
from common.python.requirements import arch_of, unmet
from tools.cli.exits import DONE, FAILED, NOTHING, alone, ended
from tools.cli.options import Words

PROGRAM = "sanitize.sh"
LIMIT_S = 600.0  # of one tool on one pair; the tools slow kernels down by one to two orders of magnitude
START_S = 120  # to reach CUDA: importing torch from a cold disk takes longer than the 10 s that are the default
PADDING = 4096  # bytes after each allocation that belong to no tensor
ERROR_EXIT = 9
# The options are described at https://docs.nvidia.com/compute-sanitizer/ComputeSanitizer.
# memcheck: torch probes for features with CUDA calls that fail, and a launch that fails raises in load_cuda.
# initcheck must watch every kernel, since memory is initialised by those of torch.
# racecheck, synccheck: what goes on inside a kernel of cuBLAS is not ours to answer for: only our kernels are watched.
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
OPTIONS = {"memcheck": ("--report-api-errors", "no", "--padding", PADDING)}
OWN_KERNELS_ONLY = ("racecheck", "synccheck")
JIT = re.compile(r"^@triton\.jit\b.*?^def (\w+)", re.MULTILINE | re.DOTALL)  # a function of Triton
KERNEL = re.compile(r"__global__(?:\s|void\b|__\w+__|\((?:[^()]|\([^()]*\))*\))+(\w+)\(")
SUMMARY = re.compile(r"^=+ (?:ERROR|RACECHECK) SUMMARY: (\d+)", re.MULTILINE)
UNWATCHED = "Internal Sanitizer Error"
UNSUPPORTED = "not supported by the selected tool"  # of kernels that launch kernels; the tool counts it as an error
CAPTURING = "during capture"  # CUDA's words for what failed because a graph was being captured
UNCACHED, CACHED = "PYTORCH_NO_CUDA_MEMORY_CACHING", "with the caching allocator"
NO_REPORT = re.compile(r"=+ ?(?:COMPUTE-SANITIZER|(?:ERROR|RACECHECK|LEAK) SUMMARY.*)?")


def runs_of(pair: Pair, here: Machine) -> tuple[list[Pair], list[str]]:
    """What one process steps each, and the variants that cannot run here, with the reason.

    A process has all variants with kernels of our own, or one peer; of a pair that isolates them, each has its own.
    """
    runnable, skipped = [], []
    for variant in {task.variant.name: task.variant for task in tasks_of(pair, [""])}.values():
        reasons = [variant.problem] if variant.problem else unmet(variant.required, here)
        if pair.gpus != 1:
            reasons.append("its ranks are processes of their own")
        if reasons:
            skipped.append(f"{pair.key} {variant.label}: {clean('; '.join(reasons))}")
        else:
            runnable.append(variant)
    ours = {variant.name for variant in runnable if variant.role != "peer" and not pair.isolated}
    groups = [ours] * bool(ours) + [{variant.name} for variant in runnable if variant.name not in ours]
    return [pair.only(group) for group in groups], skipped


def name_of(run: Pair) -> str:
    one = run.variants[0]
    return run.key if len(run.variants) > 1 else f"{run.key} {'peer ' * (one.role == 'peer')}{one.label}"


def own_kernels(run: Pair, arch: str) -> list[str]:
    """The names of the kernels whose source stands in a run's files, not those that come with CUB or CUTLASS.

    Triton's may stand in files that those import. It builds CUDA's, for nvcc is not to run under the tools. Raises
    CudaError.
    """
    names = []
    for task in tasks_of(run, [arch]):
        if task.language == "CUDA":
            compile_source(task.path, arch)
            names += KERNEL.findall(task.path.read_text())
        else:
            text = "\n".join(file.read_text() for file in imports_of(task.path, run.folder.root))
            names += JIT.findall(text)
    return list(dict.fromkeys(names))


def watch(words: Sequence[object], log: Path, gpu: str, limit_s: float = LIMIT_S, cached: bool = False) -> str | None:
    """Run a command line of compute-sanitizer on the GPU of this UUID, to its end; what it found, or None if nothing.

    The log keeps the tool's report, and beside it, under .out, stands what the program printed. `cached` leaves the
    caching allocator on.
    """
    log.unlink(missing_ok=True)
    environment = os.environ | {UNCACHED: "1", "CUDA_VISIBLE_DEVICES": gpu}
    if cached:
        del environment[UNCACHED]  # torch asks only whether it is there
    try:
        code, printed = run_to_end(words, log.with_suffix(".out"), limit_s, environment)
    except subprocess.TimeoutExpired:
        return f"did not end within {limit_s:g} s"
    return verdict(log.read_text(errors="replace") if log.exists() else "", code, printed)


def verdict(report: str, code: int, printed: str) -> str | None:
    """What a report says, by its first error; a run without a summary, or that failed otherwise, is no clean one."""
    summary = SUMMARY.findall(report)
    lines = [line.lstrip("= ").rstrip() for line in report.splitlines() if not NO_REPORT.fullmatch(line.rstrip())]
    if unwatched := next((line for line in lines if UNWATCHED in line), None):  # it does not count as an error
        return clean(unwatched)
    if summary and not any(map(int, summary)) and code == 0:
        return None
    lines = [line for line in lines if UNSUPPORTED not in line] or lines
    if lines:
        place = lines[1] if len(lines) > 1 and lines[1].startswith(("at ", "and ")) else ""
        return clean(f"{lines[0]} {place}")
    last = printed.strip().splitlines()[-1:] or ["no output"]
    why = "ended without a summary" if not summary else "failed"
    return clean(f"{why}, exit code {code}: {last[0]}")


def sanitize(
    targets: Words,
    tool: Annotated[list[str] | None, typer.Option(help=f"Only this of {', '.join(TOOLS)}; repeatable.")] = None,
    root: Annotated[Path, typer.Option(help="Where the chapters are.")] = ROOT,
    logs: Annotated[Path, typer.Option(help="Where full reports are kept.")] = Path("artifacts/sanitizer"),
) -> None:
    if unknown := [name for name in tool or [] if name not in TOOLS]:
        raise ValueError(f"--tool {unknown[0]!r} is not one of {', '.join(TOOLS)}")
    pairs = choose(root.resolve(), targets or ["all"])
    pairs = [pair for pair in pairs if any(tasks_of(pair, [""]))]
    if not pairs:
        named = " ".join(targets or ["all"])
        raise ValueError(f"{named} has no CUDA or Triton variant: compute-sanitizer is for kernels that stand here")
    logs.mkdir(parents=True, exist_ok=True)
    program, here = find_program("compute-sanitizer"), machine()
    if program is None:
        raise RuntimeError("compute-sanitizer is not found: install the CUDA toolkit's; nothing was checked")
    if not here.gpus:
        raise RuntimeError("no CUDA GPU here; nothing was checked")
    gpu, counts = here.gpus[0], Counter[bool | None]()
    for pair in pairs:
        runs, skipped = runs_of(pair, here)
        for reason in skipped:
            print(f"skipped    {reason}", flush=True)
        for run in runs:
            for clean_run, line in examined(run, tool or TOOLS, program, logs.resolve(), gpu):
                print(line, flush=True)
                counts[clean_run] += 1
    print(f"{counts[True]} clean, {counts[False]} with errors")
    raise typer.Exit(FAILED if counts[False] else DONE if counts[True] else NOTHING)


def examined(run: Pair, tools: Sequence[str], program: Path, logs: Path, gpu: Gpu) -> list[tuple[bool | None, str]]:
    """What each tool says of a run, all of them side by side; or why a kernel of it does not build."""
    try:
        own = own_kernels(run, arch_of(gpu.sm))
    except CudaError as error:
        return [(False, f"build      {name_of(run)}: {clean(str(error))}")]
    with ThreadPoolExecutor(len(tools)) as pool:
        return list(pool.map(lambda tool: examine(tool, run, own, program, logs, gpu.uuid), tools))


def examine(tool: str, run: Pair, own: list[str], program: Path, logs: Path, gpu: str) -> tuple[bool | None, str]:
    """Whether a tool found nothing in a run, None where it watched nothing, and the line that says so.

    `own` are the run's kernels, `gpu` is a UUID.
    """
    name, only = name_of(run), own if tool in OWN_KERNELS_ONLY else []
    if tool in OWN_KERNELS_ONLY and not own:
        return None, f"skipped    {name}: {tool} watches our kernels, and it has none"
    log, how = logs / f"{re.sub(r'[^0-9a-zA-Z]+', '_', name)}.{tool}.log", ""
    words = [
        *(program, "--tool", tool, "--target-processes", "application-only", "--log-file", log),
        *("--error-exitcode", ERROR_EXIT, "--launch-timeout", START_S, "--show-backtrace", "device"),
        *OPTIONS.get(tool, ()),
        *(part for kernel in only for part in ("--kernel-name", f"kns={kernel}")),
        *step_command([run], "test", 2 * LIMIT_S),
    ]
    found = watch(words, log, gpu)
    if found and CAPTURING in log.with_suffix(".out").read_text(errors="replace"):
        found, how = watch(words, log, gpu, cached=True), f" {CACHED}"
    if found and UNSUPPORTED in found:
        return None, f"skipped    {name}: {tool} says: {found}"
    return found is None, f"{tool:10} {name}: {found or 'clean'}{how}" + f" ({log})" * bool(found)


def end_with_all() -> None:
    """From now on Ctrl-C and SIGTERM end this process and all that it started, in whichever session that is."""

    def end(number: int, _: object) -> NoReturn:
        end_children()
        os._exit(128 + number)

    prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGTERM, end)


if __name__ == "__main__":
    end_with_all()
    ended(alone(sanitize, __doc__), PROGRAM)
