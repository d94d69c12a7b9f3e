"""What Nsight Compute counts of pairs' memory accesses, as a table: bytes of DRAM, sectors a request, bank conflicts.

    python -m tools.analysis.memory_counters ch07:transpose ch07:strided_copy > table.md

Each baseline and each optimized file steps once in a process of its own, at `bench` size with cold caches; a step of
several kernels is added up. "needed" is what the pair's cost says. A load or a store of a warp is a request, and 32
bytes are a sector: neighbouring lanes need 4 sectors a request for 4 bytes each, 16 for 16. The metrics are described
at https://docs.nvidia.com/nsight-compute/ProfilingGuide. Exit codes: 0; 1 a variant could not be counted; 2 usage; 4
there is no ncu or no GPU.
"""

import sys
import tempfile
from pathlib import Path
from typing import Annotated

import pandas
import typer

from common.python.base.machine import machine
from common.python.base.toolkit import ROOT, find_program
from common.python.corpus.discovery import Pair, choose
from common.python.performance_targets import total
from common.python.profile.nsight import RAW, Uncaptured, ncu_options, ncu_table, printed_by, step_command
from tools.cli.benchmark_cli import ended
from tools.cli.exits import DONE, FAILED, PLAIN, exits
from tools.cli.roofline import costs

PROGRAM = "memory_counters"
LIMIT_S = 120.0
READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
SECTORS = {op: f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum" for op in ("ld", "st")}
REQUESTS = {op: f"l1tex__t_requests_pipe_lsu_mem_global_op_{op}.sum" for op in ("ld", "st")}
CONFLICTS = [f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum" for op in ("ld", "st")]
METRICS = [READ, WRITTEN, *SECTORS.values(), *REQUESTS.values(), *CONFLICTS]
HEAD = ["variant", "read MB", "needed", "written MB", "needed", "sectors/load", "sectors/store", "bank conflicts"]


def count(program: Path, pair: Pair, name: str, scratch: Path) -> pandas.Series:
    """The metrics of a variant's step, added up over its kernels. Raises Uncaptured."""
    step = step_command(pair.only({name}), "bench", LIMIT_S, marked=True)
    words = [program, *RAW, *ncu_options(name, METRICS), *step]
    kernels = ncu_table(printed_by(words, scratch / f"{name}.log", LIMIT_S))
    return kernels.droplevel(1, axis="columns")[METRICS].sum()


def row(name: str, seen: pandas.Series, needed: tuple[float, float]) -> list[str]:
    rates = [seen[SECTORS[op]] / seen[REQUESTS[op]] if seen[REQUESTS[op]] else 0.0 for op in ("ld", "st")]
    megabytes = [bytes_ / 1e6 for bytes_ in (seen[READ], needed[0], seen[WRITTEN], needed[1])]
    return [name, *(f"{value:.1f}" for value in (*megabytes, *rates)), f"{seen[CONFLICTS].sum():,.0f}"]


app = typer.Typer(add_completion=False, **PLAIN)


@app.command(help=__doc__)
def counters(targets: Annotated[list[str], typer.Argument(metavar="TARGET...", help="Pairs or chapters.")]) -> None:
    with exits(program=PROGRAM):
        pairs, program = choose(ROOT, targets), find_program("ncu")
        if program is None or not machine().gpus:
            raise RuntimeError("this needs a CUDA GPU and ncu of the CUDA toolkit; nothing was counted")
    needed, code = costs(ROOT, targets), DONE
    print("| " + " | ".join(HEAD) + " |", "|" + " --- |" * len(HEAD), sep="\n", flush=True)
    with tempfile.TemporaryDirectory(prefix="counters-") as scratch:
        for pair in pairs:
            cost = needed[pair.key]
            bytes_ = (0.0, 0.0) if isinstance(cost, str) else (total(cost).read, total(cost).write)
            for variant in (variant for variant in pair.variants if variant.label in ("baseline", "optimized")):
                try:
                    cells = row(variant.name, count(program, pair, variant.name, Path(scratch)), bytes_)
                    print("| " + " | ".join(cells) + " |", flush=True)
                except Uncaptured as error:
                    print(f"{PROGRAM}: {variant.name}: {error}", file=sys.stderr)
                    code = FAILED
    raise typer.Exit(code)


if __name__ == "__main__":
    ended(app, PROGRAM)
