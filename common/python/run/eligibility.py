"""Who of a pair can be timed here, who only proven or compiled, ahead of all timing, and who not at all, and why."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from common.python.base.machine import Machine
from common.python.base.results import VariantResult
from common.python.base.toolkit import find_nvcc
from common.python.corpus.discovery import Pair, Variant
from common.python.cuda import CudaError, compile_source
from common.python.requirements import arch_of, unmet
from common.python.run.variant_status import new_row
from common.python.workers.launch import ONE_HOST, Launch
from common.python.workers.parallel import at_once

# What replaces the needs that only a GPU meets.
NO_GPU: dict[str, Any] = {"gpus": 0, "sm": None, "targets": (), "memory_gib": 0.0}


def assign(
    pair: Pair, machine: Machine, gpu: bool, launch: Launch = ONE_HOST
) -> tuple[list[Variant], list[Variant], list[VariantResult]]:
    """Who can be timed here, who can only be proven, and a row for each, with the reason where it is neither."""
    timed, checked, rows = [], [], []
    for variant in pair.variants:
        row = new_row(pair, variant)
        rows.append(row)
        reasons = missing(pair, variant, machine, launch)
        if variant.problem:
            row.status, row.reason = "failed", variant.problem
        elif "CUDA" in variant.kinds and not gpu and (arch := _arch(variant, machine, gpu)):
            row.status, row.reason = built(variant, arch)
        elif reasons:
            row.status, row.reason = "unsupported", "; ".join(reasons)
        elif ("Triton" in variant.kinds or pair.gpus > 1) and not gpu:
            checked.append(variant)
        else:
            timed.append(variant)
    compared = pair.baseline is not None and len(pair.variants) > 1  # else single files were named
    comparable = any(v.role == "baseline" for v in timed) and any(v.role == "optimized" for v in timed)
    if compared and not comparable:
        timed, checked = [], timed + checked
    if compared and pair.baseline not in timed + checked:  # nothing tells which dtypes the others should return
        for row in (row for row in rows if row.status == "proven"):
            row.status, row.reason = "unsupported", "its baseline cannot run here"
        timed, checked = [], []
    return timed, sorted(checked, key=pair.variants.index), rows


def missing(pair: Pair, variant: Variant, machine: Machine, launch: Launch = ONE_HOST) -> list[str]:
    """Why a variant cannot run here, a phrase each; empty if it can."""
    return list(dict.fromkeys(unmet(variant.required, machine) + launch.unmet(pair, machine)))


def built(variant: Variant, arch: str) -> tuple[Any, str]:
    """Compile a CUDA variant where it cannot run: the status and what to say of it."""
    if find_nvcc() is None and "NVCC" not in os.environ:  # if it is set and wrong, compiling says so
        return "unsupported", "needs a GPU; not compiled either, since there is no nvcc"
    try:
        compile_source(variant.path.with_suffix(".cu"), arch)
    except (CudaError, OSError) as error:
        return "failed", str(error)
    return "built", f"compiled for {arch}, not run: needs a GPU"


def compile_cuda(
    pairs: Sequence[Pair], machine: Machine, gpu: bool, launch: Launch, say: Callable[[str], None], deadline: float
) -> None:
    """Compile the .cu files that these pairs will ask for, as many at once as there are cores.

    A file that does not compile is reported by its pair, which tries again. `say` gets the number of files compiled for
    several pairs. Raises TimeoutError at `deadline`, a monotonic time.
    """
    if find_nvcc() is None or launch.follows:
        return
    cuda = [variant for pair in pairs for variant in pair.variants if "CUDA" in variant.kinds]
    sources = {v.path.with_suffix(".cu"): arch for v in cuda if (arch := _arch(v, machine, gpu))}
    started = time.monotonic()
    anew = sum(new for _, new in at_once(_compiled_anew, list(sources.items()), os.cpu_count() or 1, deadline))
    if anew and len(pairs) > 1:
        say(f"compiled {anew} .cu files in {time.monotonic() - started:.0f} s")


def _compiled_anew(named: tuple[Path, str]) -> bool:
    try:
        return not compile_source(*named).cached
    except (CudaError, OSError):
        return False


def _arch(variant: Variant, machine: Machine, gpu: bool) -> str | None:
    """What a CUDA variant is compiled for: the GPU, or without one the first that it is for; None if it lacks more."""
    required = variant.required
    if unmet(required if gpu else replace(required, **NO_GPU), machine):
        return None
    if gpu:
        return arch_of(machine.gpus[0].sm)
    return required.targets[0] if required.targets else f"sm_{required.sm or 80}"
