"""compute-sanitizer over the pairs that have kernels of their own, CUDA or Triton, at `test` size.

Each of its tools watches one step of every such variant.

PyTorch's caching allocator is off and memcheck pads each allocation, so that a write past the end of a tensor lands in
memory that is not allocated. Where a graph is captured, which forbids allocations, the caching allocator is on, and the
output says so. Each peer has a process of its own. Exit codes: 0 clean, 1 errors, 2 usage, 4 nothing could run here.
"""

import argparse
import ast
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from common.python.base.machine import Machine, machine
from common.python.base.text import clean
from common.python.base.toolkit import find_program
from common.python.build.compilation import imports_of
from common.python.build.kernel_use import kernels_of
from common.python.corpus.discovery import Pair, Variant, choose
from common.python.corpus.targets import TargetError
from common.python.cuda import CudaError, compile_source
from common.python.profile.nsight import base_name, run_to_end, step_command
from common.python.requirements import arch_of, unmet

ROOT = Path(__file__).resolve().parents[2]
CLEAN, FOUND, USAGE, NOTHING = 0, 1, 2, 4
LIMIT_S = 600.0  # of one tool on one pair; the tools slow kernels down by one to two orders of magnitude
START_S = 120  # to reach CUDA: importing torch from a cold disk takes longer than the 10 s that are the default
PADDING = 4096  # bytes after each allocation that belong to no tensor
ERROR_EXIT = 9
# The options are described at https://docs.nvidia.com/compute-sanitizer/ComputeSanitizer.
# memcheck: torch probes for features with CUDA calls that fail, and a launch that fails raises in load_cuda.
# initcheck must watch every kernel, since memory is initialised by those of torch.
# racecheck, synccheck: what goes on inside a kernel of cuBLAS is not ours to answer for: only our kernels are watched.
TOOLS: dict[str, tuple[str, ...]] = {
    "memcheck": ("--report-api-errors", "no", "--padding", str(PADDING)),
    "racecheck": (),
    "initcheck": (),
    "synccheck": (),
}
OWN_KERNELS_ONLY = ("racecheck", "synccheck")
WATCHED = {"CUDA", "Triton"}
AS_PROVEN = {"size": "test", "seed": 0, "reproducible": False, "marked": False}
SUMMARY = re.compile(r"^=+ (?:ERROR|RACECHECK) SUMMARY: (\d+)", re.MULTILINE)
UNWATCHED = "Internal Sanitizer Error"
CAPTURING = "during capture"  # CUDA's words for what failed because a graph was being captured
UNCACHED, CACHED = "PYTORCH_NO_CUDA_MEMORY_CACHING", "with the caching allocator"
NO_REPORT = re.compile(r"=+ ?(?:COMPUTE-SANITIZER|(?:ERROR|RACECHECK|LEAK) SUMMARY.*)?")


@dataclass(frozen=True)
class Run:
    """What one process steps: variants of a pair, all of ours or one peer, unless the pair isolates them all."""

    pair: str
    root: Path  # where Python finds the modules
    baseline: str
    variants: tuple[Variant, ...]

    @property
    def name(self) -> str:
        one, peer = self.variants[0], "peer " * (self.variants[0].role == "peer")
        return self.pair if len(self.variants) > 1 else f"{self.pair} {peer}{one.label}"


def runs_of(pair: Pair, here: Machine) -> tuple[list[Run], list[str]]:
    """The runs of a pair's variants with kernels, and those that cannot run here, with the reason."""
    runnable, skipped = [], []
    where = (pair.key, pair.folder.root, pair.baseline_module)
    for variant in pair.variants:
        if not WATCHED & {*variant.kinds}:
            continue
        reasons = [variant.problem] if variant.problem else unmet(variant.required, here)
        if pair.literals.get("gpus", 1) != 1:
            reasons.append("its ranks are processes of their own")
        if reasons:
            skipped.append(f"{pair.key} {variant.label}: {clean('; '.join(reasons))}")
        else:
            runnable.append(variant)
    ours = () if pair.isolated else tuple(variant for variant in runnable if variant.role != "peer")
    groups = [ours] * bool(ours) + [(variant,) for variant in runnable if variant not in ours]
    return [Run(*where, group) for group in groups], skipped


def jit_kernels(path: Path, root: Path) -> list[str]:
    """The names of the Triton functions of a file and of the files that it imports."""
    parsed = [ast.parse(file.read_bytes()) for file in imports_of(path, root)]
    functions = [node for tree in parsed for node in tree.body if isinstance(node, ast.FunctionDef)]
    return [
        function.name
        for function in functions
        if any(ast.unparse(decorator).startswith("triton.jit") for decorator in function.decorator_list)
    ]


def own_kernels(run: Run, arch: str) -> list[str]:
    """The names of the kernels whose source stands in a run's files, not those that come with CUB or CUTLASS.

    It builds them, for nvcc is not to run under the tools. Raises CudaError.
    """
    names = []
    for variant in run.variants:
        if "CUDA" in variant.kinds:
            source = variant.path.with_suffix(".cu")
            compiled = [base_name(kernel.name) for kernel in kernels_of(compile_source(source, arch))]
            names += [name for name in compiled if f"{name}(" in source.read_text()]
        if "Triton" in variant.kinds:
            names += jit_kernels(variant.path, run.root)
    return list(dict.fromkeys(names))


def command(program: Path, tool: str, run: Run, own: list[str], log: Path) -> list[str]:
    """The command line that watches a run; `own` are its kernels."""
    watched = own if tool in OWN_KERNELS_ONLY else []
    modules = {variant.module: variant.module for variant in run.variants}
    return [
        *(str(program), "--tool", tool, "--target-processes", "application-only", "--log-file", str(log)),
        *("--error-exitcode", str(ERROR_EXIT), "--launch-timeout", str(START_S), "--show-backtrace", "device"),
        *TOOLS[tool],
        *(part for name in watched for part in ("--kernel-name", f"kns={name}")),
        *step_command(2 * LIMIT_S, root=run.root.resolve(), baseline=run.baseline, modules=modules, **AS_PROVEN),
    ]


def watch(words: list[str], log: Path, gpu: str, limit_s: float = LIMIT_S, cached: bool = False) -> str | None:
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
    if lines:
        place = lines[1] if len(lines) > 1 and lines[1].startswith(("at ", "and ")) else ""
        return clean(f"{lines[0]} {place}")
    last = printed.strip().splitlines()[-1:] or ["no output"]
    why = "ended without a summary" if not summary else "failed"
    return clean(f"{why}, exit code {code}: {last[0]}")


def arguments(words: Sequence[str]) -> argparse.Namespace:
    shown = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("sanitize.sh", usage=argparse.SUPPRESS, description=__doc__, formatter_class=shown)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="ch7, ch07:transpose, ch07/optimized_x.py or all")
    parser.add_argument("--tool", action="append", choices=list(TOOLS), help="only this tool; repeatable")
    parser.add_argument("--root", type=Path, default=ROOT, help="where the chapters are")
    parser.add_argument("--logs", type=Path, default=Path("artifacts/sanitizer"), help="where full reports are kept")
    return parser.parse_args(words)


def chosen(targets: list[str], root: Path) -> list[Pair]:
    """The pairs with kernels of their own among the targets. Raises TargetError when there are none."""
    pairs = choose(root, targets or ["all"])
    found = [pair for pair in pairs if any(WATCHED & {*variant.kinds} for variant in pair.variants)]
    if not found:
        named = " ".join(targets) or "all"
        raise TargetError(f"{named} has no CUDA or Triton variant: compute-sanitizer is for kernels that stand here")
    return found


def main(words: Sequence[str] | None = None) -> int:
    asked = arguments(sys.argv[1:] if words is None else words)
    root, logs, tools = asked.root.resolve(), asked.logs.resolve(), asked.tool or list(TOOLS)
    try:
        pairs = chosen(asked.targets, root)
        logs.mkdir(parents=True, exist_ok=True)
    except (TargetError, OSError) as error:
        return ended(USAGE, str(error))
    program, here = find_program("compute-sanitizer"), machine()
    if program is None:
        return ended(NOTHING, "compute-sanitizer is not found: install the CUDA toolkit's; nothing was checked")
    if not here.gpus:
        return ended(NOTHING, "no CUDA GPU here; nothing was checked")

    def examine(tool: str, run: Run, own: list[str]) -> tuple[bool | None, str]:
        """Whether a tool found nothing in a run, None where it watched nothing, and the line that says so."""
        if tool in OWN_KERNELS_ONLY and not own:
            return None, f"skipped    {run.name}: {tool} watches our kernels, and it has none"
        log = logs / f"{re.sub(r'[^0-9a-zA-Z]+', '_', run.name)}.{tool}.log"
        line, how = command(program, tool, run, own, log), ""
        found = watch(line, log, here.gpus[0].uuid)
        if found and CAPTURING in log.with_suffix(".out").read_text(errors="replace"):
            found, how = watch(line, log, here.gpus[0].uuid, cached=True), f" {CACHED}"
        return found is None, f"{tool:10} {run.name}: {found or 'clean'}{how}" + f" ({log})" * bool(found)

    counts = Counter[bool | None]()
    for pair in pairs:
        runs, skipped = runs_of(pair, here)
        for reason in skipped:
            print(f"skipped    {reason}", flush=True)
        for run in runs:
            for clean_run, line in examined(run, tools, examine, arch_of(here.gpus[0].sm)):
                print(line, flush=True)
                counts[clean_run] += 1
    print(f"{counts[True]} clean, {counts[False]} with errors")
    return FOUND if counts[False] else CLEAN if counts[True] else NOTHING


def examined(
    run: Run, tools: list[str], examine: Callable[[str, Run, list[str]], tuple[bool | None, str]], arch: str
) -> list[tuple[bool | None, str]]:
    """What each tool says of a run, all of them side by side; or why a kernel of it does not build."""
    try:
        own = own_kernels(run, arch)
    except CudaError as error:
        return [(False, f"build      {run.name}: {clean(str(error))}")]
    with ThreadPoolExecutor(len(tools)) as pool:
        return list(pool.map(lambda tool: examine(tool, run, own), tools))


def ended(code: int, reason: str) -> int:
    print(f"sanitize.sh: {reason}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
