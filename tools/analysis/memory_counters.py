"""What Nsight Compute counts of pairs' memory accesses, as a table: bytes of DRAM, sectors a request, bank conflicts.

    python -m tools.analysis.memory_counters ch07:transpose ch07:strided_copy > table.md

The baseline and the optimized file of each pair step once, at `bench` size with cold caches; a step of several kernels
is added up. One process steps successive pairs of a chapter; their rows are printed when it ends. "needed" is what a
pair's cost says. A load or a store of a warp is a request, and 32 bytes are a sector: neighbouring lanes need 4 sectors
a request for 4 bytes each, 16 for 16. A bank conflict is a pass over shared memory beyond the fewest that such an
access takes; L1 also counts delays by other traffic. Exit codes: 0; 1 a variant could not be counted; 2 usage; 4 there
is no ncu or no GPU. Metrics: https://docs.nvidia.com/nsight-compute/ProfilingGuide
"""

import math
import sys
from itertools import groupby
from pathlib import Path
from typing import Annotated

import pandas
import typer

from common.python.base.machine import machine
from common.python.base.results import Cost
from common.python.base.text import clean
from common.python.base.toolkit import ROOT, find_program
from common.python.corpus.discovery import Pair, choose
from common.python.performance_targets import total
from common.python.profile import nsight
from common.python.profile.nsight import READ, WRITTEN, Uncaptured, complaint, mark, ncu_table, run_tool
from common.python.report.markdown import table
from common.python.run.variant_status import compile_cuda
from common.python.workers.launch import ONE_HOST
from tools.cli.exits import DONE, FAILED, alone, ended
from tools.cli.roofline import costs

PROGRAM = "memory_counters"
LIMIT_S = 60.0  # of a pair
SECTORS = {op: f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum" for op in ("ld", "st")}
REQUESTS = {op: f"l1tex__t_requests_pipe_lsu_mem_global_op_{op}.sum" for op in ("ld", "st")}
PASSES, FEWEST = "memory_l1_wavefronts_shared", "memory_l1_wavefronts_shared_ideal"
CONFLICTS = [f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum" for op in ("ld", "st")]
METRICS = [READ, WRITTEN, *SECTORS.values(), *REQUESTS.values(), PASSES, FEWEST, *CONFLICTS]
HEAD = ["variant", "read MB", "needed", "ratio", "written MB", "needed", "ratio", "sectors/load", "sectors/store"]
HEAD += ["bank conflicts", "counted by L1"]


def count(program: Path, pairs: list[Pair], log: Path) -> dict[str, pandas.Series | str]:
    """The metrics of each variant's step, added up over its kernels, or why there are none."""
    names = [variant.name for pair in pairs for variant in pair.variants]
    words = [*nsight.RAW, *nsight.ncu_options(names, METRICS)]
    step = nsight.step_command(pairs, "bench", LIMIT_S, marked=True)
    try:
        code, printed = run_tool([program, *words, *step], log, LIMIT_S * len(pairs))
    except Uncaptured as error:
        return {name: f"{name}: {error}" for name in names}
    told = {line.partition(":")[0]: line for line in printed.splitlines()}  # the last that the process said of each
    why = complaint(printed, code) or "its step has no kernel"
    found: dict[str, pandas.Series | str] = {name: f"{clean(told.get(name, name))} ({why})" for name in names}
    try:
        kernels = ncu_table(printed).droplevel(1, axis="columns")
    except Uncaptured:
        return found
    marks = kernels.filter(like="Push/Pop_Range").squeeze("columns").str.extract(rf"{mark('')}(\w+)", expand=False)
    numbers = kernels.reindex(columns=METRICS).apply(pandas.to_numeric, errors="coerce")
    return found | {str(name): of_one.sum(skipna=False) for name, of_one in numbers.groupby(marks)}


def row(name: str, seen: pandas.Series, cost: Cost | None) -> str:
    cells = [name]
    for bytes_, needed in ((seen[READ], cost and cost.read), (seen[WRITTEN], cost and cost.write)):
        known = [f"{needed / 1e6:.1f}", f"{bytes_ / needed:.2f}"] if needed else ["", ""]
        cells += [f"{bytes_ / 1e6:.1f}", *known]
    cells += [f"{seen[SECTORS[op]] / seen[REQUESTS[op]] if seen[REQUESTS[op]] else 0.0:.1f}" for op in ("ld", "st")]
    cells += [f"{seen[PASSES] - seen[FEWEST]:,.0f}", f"{seen[CONFLICTS].sum():,.0f}"]
    return f"| {' | '.join(cells)} |"


def counters(
    targets: Annotated[list[str], typer.Argument(metavar="TARGET...", help="Pairs or chapters.")],
    logs: Annotated[Path, typer.Option(help="Where what ncu printed is kept.")] = Path("artifacts/counters"),
) -> None:
    pairs, program, here = choose(ROOT, targets), find_program("ncu"), machine()
    if program is None or not here.gpus:
        raise RuntimeError("this needs a CUDA GPU and ncu of the CUDA toolkit; nothing was counted")
    pairs = [pair.only({f"{role}_{pair.name}" for role in ("baseline", "optimized")}) for pair in pairs]
    compile_cuda(pairs, here, True, ONE_HOST, math.inf)  # of one that does not compile, its step says why
    told, code = costs(ROOT, targets), DONE
    needed = {v.name: None if isinstance(cost := told[p.key], str) else total(cost) for p in pairs for v in p.variants}
    print(table(HEAD, []), flush=True)
    for _, group in groupby(pairs, lambda pair: pair.key if pair.isolated else pair.chapter):
        for variant, seen in count(program, together := [*group], logs / f"{together[0].name}.log").items():
            if isinstance(seen, str):
                print(f"{PROGRAM}: {seen}", file=sys.stderr)
                code = FAILED
            else:
                print(row(variant, seen, needed[variant]), flush=True)
    raise typer.Exit(code)


if __name__ == "__main__":
    ended(alone(counters, __doc__), PROGRAM)
