"""What a measurement depends on besides the code that was measured: facts by name, and how two sets of them differ."""

from collections.abc import Container, Mapping, Sequence
from statistics import median

from common.python.base.results import Block, Manifest, PairResult, Summary
from common.python.base.text import clean

Facts = Mapping[str, str | None]

LIBRARIES = ("torch", "triton", "nvcc", "nvidia-cublas", "nvidia-cudnn-cu13", "nvidia-nccl-cu13")
HARNESS = "common/"
# packages that plan runs or read their results: no time depends on them
READERS = tuple(f"common/python/{name}/" for name in ("report", "regress", "doctor", "estimate", "fleet", "verify"))
MODES = ("reproducible", "cold_start", "lock_clocks")  # options of `run` that change which kernels, or how, are timed
CALLED = {"budget_s": "budget", "figure": "set"}  # options of `run`, where a manifest has another name for them


def facts(
    gpu: str | None, driver: str | None, cuda: str | None, power_w: float | None, cpu: str | None, versions: Facts
) -> dict[str, str | None]:
    """The facts of one measurement; None is what is not known. CUDA is the newest that the driver supports."""
    limit = None if power_w is None else f"{power_w:g} W"
    known = {"GPU": gpu, "driver": driver, "CUDA": cuda, "power limit": limit, "CPU": cpu}
    return known | {name: versions.get(name) for name in LIBRARIES}


def facts_of_run(about: Manifest, gpu: str | None) -> dict[str, str | None]:
    """Those of a run on the GPU of this name, which is the first that CUDA showed it."""
    machine = about.machine
    return facts(gpu, machine.driver, machine.cuda_driver, power_limit_w(about), machine.cpu, about.versions)


def problem(result: PairResult) -> dict[str, str | None]:
    """What a result is the answer to; those to different questions are not compared."""
    shape = " ".join(f"{name}={value}" for name, value in result.shape.items())
    asked = {"size": result.size, "shape": shape, "clock": result.clock, "goal": result.goal}
    return asked | {"variant": result.headline.name if result.headline else None}


def device_of(summary: Summary) -> str | None:
    """What a run measured on, as the first of its pairs says it, else the first GPU that the machine has."""
    devices = [pair.device for pair in summary.pairs] + [gpu.name for gpu in summary.manifest.machine.gpus]
    return next(filter(None, devices), None)


def harness_changes(before: Manifest, now: Manifest) -> list[str]:
    """The files of the harness that are not the same, among those that times depend on."""
    names = sorted({*before.sources, *now.sources})
    names = [name for name in names if name.startswith(HARNESS) and not name.startswith(READERS)]
    return [name for name in names if before.sources.get(name) != now.sources.get(name)]


def mode(about: Manifest) -> str:
    """`usual`, or the options that made what was timed unlike what users run."""
    return ", ".join(name for name in MODES if about.options.get(name)) or "usual"


def options(about: Manifest, without: Container[str]) -> dict[str, str | None]:
    """What `run` was asked for, as its command line calls it."""
    return {
        f"--{CALLED.get(name, name).replace('_', '-')}": "not given" if value is None else str(value)
        for name, value in about.options.items()
        if name not in without
    }


def power_limit_w(about: Manifest) -> float | None:
    return about.machine.gpus[0].power_limit_w if about.machine.gpus else None


def sm_mhz(blocks: Sequence[Block]) -> float | None:
    """The SM clock while these were timed: the median over the blocks that count; None if NVML never told."""
    read = [block.telemetry.sm_mhz for block in blocks if block.telemetry is not None and block.discarded is None]
    known = [clock for clock in read if clock is not None]
    return median(known) if known else None


def pace_us(blocks: Sequence[Block]) -> float | None:
    """The host's pace while these were timed: its fixed loop, the median over the blocks that count."""
    slower = [max(block.paces) for block in blocks if block.paces and block.discarded is None]
    return median(slower) if slower else None


def moved(name: str, before: float | None, after: float | None, factor: float, unit: str) -> list[str]:
    """`SM clock 1980 -> 1500 MHz` if a reading that both sides have grew or shrank by more than the factor."""
    if before is None or after is None or before / factor <= after <= before * factor:
        return []
    return [f"{name} {before:.0f} -> {after:.0f} {unit}"]


def differences(before: Facts, after: Facts) -> list[str]:
    """`driver 570.1 -> 580.2` for each fact that is not the same on both sides."""
    return [
        f"{clean(name)} {clean(before.get(name) or 'unknown')} -> {clean(after.get(name) or 'unknown')}"
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    ]
