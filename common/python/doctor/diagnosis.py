"""`benchmark_cli doctor`: what this machine has and lacks for measuring. It asks, needs no root and changes nothing."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from pathlib import Path
from typing import Any

from common.python.base.machine import ask, has_nvml
from common.python.base.text import clean
from common.python.base.toolkit import find_nvcc, find_program
from common.python.doctor.check_result import Answer, Check, Finding, State, examine
from common.python.doctor.gpu import examine_gpus
from common.python.doctor.host import examine_host

TOOL_S = 1.0  # a program that takes longer to say its version is reported as unknown
COLOURS: dict[State, str] = {"good": "green", "note": "yellow", "poor": "red", "unknown": "dim"}
PROGRAMS = (  # name, why, and what installs it on Debian and Ubuntu
    ("ncu", "says why a kernel takes its time: stalls, occupancy, bytes moved", "./setup.sh --system"),
    ("nsys", "says what runs when: launches, copies, gaps", "./setup.sh --system"),
    (
        "compute-sanitizer",
        "finds out-of-bounds accesses, races and uninitialised reads (scripts/sanitize.sh)",
        "sudo apt-get install cuda-sanitizer-13-0",
    ),
    ("cuobjdump", "shows the machine code that nvcc made", "sudo apt-get install cuda-cuobjdump-13-0"),
)
Driver = tuple[int, int]  # newest CUDA release that the driver runs


def diagnose() -> list[Finding]:
    """Every finding about this machine, in the order of the report."""
    with ThreadPoolExecutor() as pool:  # programs take a tenth of a second each to say their version
        checks = [Check(name, matters, partial(program, name, install)) for name, matters, install in PROGRAMS]
        pending = [pool.submit(examine, "tools", [check]) for check in checks]
        gpus, driver = _driver_and_gpus()
        host = examine_host()
        tools = [finding for future in pending for finding in future.result()]
    return [*gpus, *host, *examine("tools", BUILD, driver, gpus), *tools]


def _driver_and_gpus() -> tuple[list[Finding], Driver | None]:
    if not has_nvml():
        return [_no_driver("none: libnvidia-ml.so.1 cannot be loaded")], None
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return [_no_driver(f"NVML does not start: {error}")], None
    try:
        found = [*examine("driver", DRIVER, pynvml, refusals=(pynvml.NVMLError,)), *examine_gpus(pynvml)]
        release = ask(pynvml, "nvmlSystemGetCudaDriverVersion")
    finally:
        pynvml.nvmlShutdown()
    return found, None if release is None else (release // 1000, release % 1000 // 10)


def _no_driver(found: str) -> Finding:
    matters = "CUDA pairs are built, not run; times of a CPU say nothing about a GPU"
    return Finding("driver", "driver", "poor", found, matters, "./setup.sh --system")


def driver_version(nvml: Any) -> Answer:
    return Answer("good", nvml.nvmlSystemGetDriverVersion())


def driver_cuda(nvml: Any) -> Answer:
    release = nvml.nvmlSystemGetCudaDriverVersion()
    return Answer("good", f"up to {release // 1000}.{release % 1000 // 10}")


DRIVER = (
    Check("driver", "results are kept by GPU and driver: a new one may move them", driver_version),
    Check("CUDA", "programs built with a newer major release do not start", driver_cuda),
)


# What builds and runs pairs.


def compiler(driver: Driver | None, gpus: list[Finding]) -> Answer:
    """The compiler of the CUDA pairs: whether the driver runs what it builds, and whether it knows the GPUs here."""
    path, named = find_nvcc(), os.environ.get("NVCC")
    if path is None and named:
        return Answer("poor", f"none: $NVCC is {named}, which is no program", "unset NVCC")
    if path is None:
        return Answer("poor", "none", "./setup.sh (installs its wheels)")
    if shutil.which(os.environ.get("NVCC_CCBIN", "g++")) is None:
        return Answer("poor", f"{path} without a host compiler", "sudo apt-get install g++")
    release = re.search(r"release (\d+)\.(\d+)", _said(path, "--version"))
    if release is None:
        raise ValueError(f"{path} --version names no release")
    found = f"{release[1]}.{release[2]} ({path})"
    if driver is not None and int(release[1]) > driver[0]:
        wanted = f"a driver for CUDA {release[1]}, or NVCC=/path/to/an/nvcc/of/CUDA/{driver[0]}"
        return Answer("poor", f"{found}; the driver runs CUDA {driver[0]}.{driver[1]}", wanted)
    here = {sm for finding in gpus if finding.name == "device" for sm in re.findall(r"sm_\d+", finding.found)}
    if here and (lacking := sorted(here - set(_said(path, "--list-gpu-code").split()))):
        return Answer("poor", f"{found}; it does not know {', '.join(lacking)}", "a newer CUDA toolkit")
    return Answer("good", found)


def torch_build(driver: Driver | None, gpus: list[Finding]) -> Answer:
    """By its metadata: importing it would take seconds."""
    try:
        installed = version("torch")
    except PackageNotFoundError:
        return Answer("poor", "none", "./setup.sh")
    if driver is not None and installed.endswith("+cpu"):
        return Answer("poor", f"{installed}: a build without CUDA", "./setup.sh")
    built = re.search(r"\+cu(\d+)\d$", installed)
    if driver is not None and built and int(built[1]) > driver[0]:
        return Answer("poor", f"{installed}; the driver runs CUDA {driver[0]}.{driver[1]}", "a newer driver")
    return Answer("good", installed)


def triton_release(driver: Driver | None, gpus: list[Finding]) -> Answer:
    try:
        return Answer("good", version("triton"))
    except PackageNotFoundError:
        return Answer("poor", "none", "./setup.sh")


BUILD = (
    Check("nvcc", "builds the .cu files; what it builds must run under the driver", compiler),
    Check("torch", "runs every pair; its CUDA libraries are the peers", torch_build),
    Check("triton", "compiles the Triton pairs, and proves them on a CPU", triton_release),
)


def program(name: str, install: str) -> Answer:
    """A program's version, and whether the PATH leads to it."""
    path = find_program(name)
    if path is None:
        return Answer("note", "none", install)
    release = re.search(r"(?:version|release) ([\d.]*\d)", _said(path, "--version"), flags=re.IGNORECASE)
    found = release[1] if release else "no version in what it says"
    if shutil.which(name) is None:
        return Answer("note", f"{found}, at {path}, which is not on the PATH", f"PATH=$PATH:{path.parent}")
    return Answer("good", f"{found} ({path})")


def _said(path: Path, option: str) -> str:
    """What a program prints. Raises ValueError when it takes too long or fails, OSError when it cannot be started."""
    try:
        done = subprocess.run(
            [str(path), option], capture_output=True, text=True, errors="replace", timeout=TOOL_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise ValueError(f"{path} {option} took over {TOOL_S:g} s") from None
    if done.returncode:
        raise ValueError(f"{path} {option} ended with {done.returncode}")
    return done.stdout


# The report.


def print_report(findings: list[Finding], as_json: bool) -> None:
    """By area on a terminal, tab-separated lines in a pipe, or JSON: a list of findings."""
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    elif sys.stdout.isatty():
        _print_areas(findings)
    else:
        print("\n".join("\t".join(row(finding)) for finding in findings))


def row(finding: Finding) -> tuple[str, ...]:
    """State, area, name, found, why it matters, command; each on one line."""
    cells = (finding.state, finding.area, finding.name, finding.found, finding.matters, finding.change or "")
    return tuple(map(clean, cells))


def _print_areas(findings: list[Finding]) -> None:
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    console = Console()
    for area, group in groupby(findings, lambda finding: finding.area):
        console.print(Text(area, style="bold"))
        for finding in group:
            state, _, name, found, matters, change = row(finding)
            console.print(Text(f"{state:8}", style=COLOURS[finding.state]).append(f"{name}: {found}", style="default"))
            console.print(Padding(Text(matters, style="dim"), (0, 0, 0, 8)))
            if change:
                console.print(Padding(Text(f"$ {change}", style="cyan", overflow="fold"), (0, 0, 0, 8)))
    counts = Counter(finding.state for finding in findings)
    console.print(", ".join(f"{counts[state]} {state}" for state in COLOURS))
