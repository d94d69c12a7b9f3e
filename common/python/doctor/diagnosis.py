"""`benchmark_cli doctor`: what this machine has and lacks for measuring. It asks, needs no root and changes nothing."""

import json
import os
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import asdict
from functools import partial
from itertools import groupby
from pathlib import Path

import pynvml
from rich.console import Console
from rich.text import Text

from common.python.base.machine import Machine, machine
from common.python.base.manifest import version_of
from common.python.base.text import clean
from common.python.base.toolkit import find_nvcc, find_program
from common.python.doctor.check_result import Answer, Check, Finding, State, examine, wanted
from common.python.doctor.gpu import examine_gpus
from common.python.doctor.host import examine_host

TOOL_S = 1.0  # a program that takes longer to say its version is reported as unknown
COLOURS: dict[State, str] = {"good": "green", "note": "yellow", "poor": "red", "unknown": "dim"}


def diagnose() -> list[Finding]:
    """Every finding about this machine, in the order of the report."""
    return [*driver_and_gpus(), *examine_host(), *examine("tools", TOOLS, machine())]


def driver_and_gpus() -> list[Finding]:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        matters = "CUDA pairs are built, not run; times of a CPU say nothing about a GPU"
        return [Finding("driver", "driver", "poor", f"none: {error}", matters, "./setup.sh --system")]
    try:
        return [*examine("driver", [DRIVER]), *examine_gpus()]
    finally:
        pynvml.nvmlShutdown()


def driver() -> Answer:
    release = pynvml.nvmlSystemGetCudaDriverVersion()
    runs = f"which runs CUDA up to {release // 1000}.{release % 1000 // 10}"
    return "good", f"{pynvml.nvmlSystemGetDriverVersion()}, {runs}", None


DRIVER = Check("driver", "results are kept by GPU and driver; it starts no program of a newer major CUDA", driver)


# What builds and runs pairs.


def compiler(here: Machine) -> Answer:
    """The compiler of the CUDA pairs: whether the driver runs what it builds, and whether it knows the GPUs here."""
    path, named = find_nvcc(), os.environ.get("NVCC")
    if path is None and named:
        return "poor", f"none: $NVCC is {named}, which is no program", "unset NVCC"
    if path is None:
        return "poor", "none", "./setup.sh"  # installs its wheels
    if shutil.which(os.environ.get("NVCC_CCBIN", "g++")) is None:
        return "poor", f"{path} without a host compiler", "sudo apt-get install g++"
    release = release_of(path)
    found = f"{release} ({path})"
    if _too_new(release, here):
        return "poor", f"{found}; the driver runs CUDA {here.cuda_driver}", "NVCC=/path/to/an/older/nvcc"
    lacking = {f"sm_{gpu.sm}" for gpu in here.gpus} - {*_said(path, "--list-gpu-code").split()}
    if lacking:
        return "poor", f"{found}; it does not know {', '.join(sorted(lacking))}", "NVCC=/path/to/a/newer/nvcc"
    return "good", found, None


def torch_build(here: Machine) -> Answer:
    """By its metadata: importing it would take seconds."""
    state, found, change = package("torch", here)
    if here.cuda_driver and found.endswith("+cpu"):
        return "poor", f"{found}: a build without CUDA", "./setup.sh"
    built = re.search(r"\+cu(\d+)\d$", found)
    if built and _too_new(built[1], here):
        return "poor", f"{found}; the driver runs CUDA {here.cuda_driver}", "./setup.sh --system"
    return state, found, change


def package(name: str, here: Machine) -> Answer:
    found = version_of(name)
    return wanted(found is not None, found or "none", "./setup.sh", "poor")


def program(name: str, install: str, here: Machine) -> Answer:
    """A program's version, and whether the PATH leads to it."""
    path = find_program(name)
    if path is None:
        return "note", "none", install
    return wanted(shutil.which(name) is not None, f"{release_of(path)} ({path})", f"PATH=$PATH:{path.parent}")


def _too_new(release: str, here: Machine) -> bool:
    """Whether the driver, if there is one, starts no program of this CUDA release: within a major one it does."""
    return here.cuda_driver is not None and int(release.split(".")[0]) > int(here.cuda_driver.split(".")[0])


def release_of(path: Path) -> str:
    """The release that a program names. Raises ValueError where it names none."""
    release = re.search(r"(?:version|release) ([\d.]*\d)", _said(path, "--version"), flags=re.IGNORECASE)
    if release is None:
        raise ValueError(f"{path} --version names no release")
    return release[1]


def _said(path: Path, option: str) -> str:
    """What a program prints. Raises ValueError when it takes too long or fails, OSError when it cannot be started."""
    command = [str(path), option]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=TOOL_S, check=True
        ).stdout
    except subprocess.SubprocessError as error:
        raise ValueError(str(error)) from error


# What installs the programs, on Debian and Ubuntu.
NSIGHT, SANITIZER = "./setup.sh --system", "sudo apt-get install cuda-sanitizer-13-0"
SANITIZES = "finds out-of-bounds accesses, races and uninitialised reads (scripts/sanitize.sh)"
TOOLS = (
    Check("nvcc", "builds the .cu files; what it builds must run under the driver", compiler),
    Check("torch", "runs every pair; its CUDA libraries are the peers", torch_build),
    Check("triton", "compiles the Triton pairs, and proves them on a CPU", partial(package, "triton")),
    Check("ncu", "says why a kernel takes its time: stalls, occupancy, bytes moved", partial(program, "ncu", NSIGHT)),
    Check("nsys", "says what runs when: launches, copies, gaps", partial(program, "nsys", NSIGHT)),
    Check("compute-sanitizer", SANITIZES, partial(program, "compute-sanitizer", SANITIZER)),
)


# The report.


def print_report(findings: list[Finding], as_json: bool) -> None:
    """By area, each finding with why it matters and the command that changes it, whole to be copied; or as JSON."""
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
        return
    console, indent = Console(soft_wrap=True), " " * 8
    for area, group in groupby(findings, lambda finding: finding.area):
        console.print(Text(area, style="bold"))
        for one in group:
            console.print(Text.assemble((f"{one.state:8}", COLOURS[one.state]), clean(f"{one.name}: {one.found}")))
            console.print(Text(indent + one.matters, style="dim"))
            if one.change:
                console.print(Text(f"{indent}$ {clean(one.change)}", style="cyan"))
    counts = Counter(finding.state for finding in findings)
    console.print(", ".join(f"{counts[state]} {state}" for state in COLOURS), highlight=False)
