"""The whole report: on this machine as it is, on one without a driver, and with the programs that a test puts there."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import get_args

import pynvml
import pytest
from synthetic_run import ROOT, host
from synthetic_run import program as executable

import common.python.doctor.diagnosis as doctor
from common.python.base import toolkit
from common.python.base.machine import Gpu, Machine
from common.python.doctor.check_result import Finding, State
from common.python.doctor.diagnosis import compiler, diagnose, print_report, program, torch_build

COMMAND = [sys.executable, str(ROOT / "tools/cli/benchmark_cli.py"), "doctor", "--json"]
DEVICE = Finding("GPU 0", "device", "good", "NVIDIA H200, sm_90, 140 GiB", "")
H200 = Gpu(name="NVIDIA H200", uuid="GPU-1", sm=90, memory_gib=140.0)
PLAIN = Finding("host", "fan", "note", "it \x1b[31m stands\nstill", "heat slows", "turn it")


def machine(cuda: str | None, *gpus: Gpu) -> Machine:
    return host(*gpus, cuda_driver=cuda)


@pytest.fixture
def bin_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The only folder on the PATH; neither CUDA toolkits nor wheels are found elsewhere."""
    for variable in ("NVCC", "CUDA_HOME", "NVCC_CCBIN"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(doctor, "find_nvcc", lambda: next((Path(p) for p in [shutil.which("nvcc")] if p), None))
    monkeypatch.setattr(toolkit, "TOOLKIT", tmp_path / "toolkit")
    monkeypatch.setattr(toolkit, "_folders", lambda package: [])
    (tmp_path / "bin").mkdir()
    return tmp_path / "bin"


def script(folder: Path, name: str, body: str) -> Path:
    return executable(folder / name, f"#!/bin/sh\n{body}\n")


def nvcc(folder: Path, release: str, known: str = "sm_90 sm_100") -> None:
    script(folder, "g++", "true")
    answers = f'[ "$1" = --version ] && echo "Cuda compilation tools, release {release}, V{release}.88" || echo {known}'
    script(folder, "nvcc", answers)


def test_this_machine_is_examined_quickly_and_every_finding_is_whole() -> None:
    started = time.monotonic()
    findings = diagnose()
    assert time.monotonic() - started < 2
    assert {finding.state for finding in findings} <= set(get_args(State))
    assert all(finding.area and finding.name and finding.found and finding.matters for finding in findings)
    assert {"driver", "CPU governor", "/dev/shm", "GPU counters", "nvcc", "torch", "triton", "ncu"} <= {
        finding.name for finding in findings
    }
    keys = [(finding.area, finding.name) for finding in findings]
    assert len(set(keys)) == len(keys)


def test_the_command_prints_its_findings_and_leaves_nothing(tmp_path: Path) -> None:
    done = subprocess.run(COMMAND, capture_output=True, text=True, check=True, timeout=60, cwd=tmp_path)
    assert {Finding(**finding).area for finding in json.loads(done.stdout)} >= {"driver", "host", "limits", "tools"}
    assert not list(tmp_path.iterdir())


def test_without_a_driver_the_rest_is_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)

    monkeypatch.setattr(pynvml, "nvmlInit", refuse)
    first, *rest = diagnose()
    assert (first.area, first.state) == ("driver", "poor")
    assert first.found == "none: RM has detected an NVML/RM version mismatch."
    assert first.change == "./setup.sh --system"
    assert rest


@pytest.mark.parametrize(
    ("release", "known", "driver", "state", "says"),
    [
        ("13.0", "sm_90 sm_100", "13.0", "good", "13.0 ("),
        ("13.0", "sm_90 sm_100", "12.8", "poor", "the driver runs CUDA 12.8"),
        ("11.7", "sm_80 sm_86", "13.0", "poor", "it does not know sm_90"),
    ],
)
def test_an_nvcc_must_fit_the_driver_and_the_gpu(
    release: str, known: str, driver: str, state: str, says: str, bin_folder: Path
) -> None:
    nvcc(bin_folder, release, known)
    found = compiler(machine(driver, H200))
    assert (found[0], says in found[1]) == (state, True)


def test_a_compiler_that_is_missing_or_half_there_is_poor(bin_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = machine(None)
    assert compiler(here) == ("poor", "none", "./setup.sh")
    monkeypatch.setenv("NVCC", "/no/such/nvcc")
    assert compiler(here)[1] == "none: $NVCC is /no/such/nvcc, which is no program"
    nvcc(bin_folder, "13.0")
    (bin_folder / "g++").unlink()
    assert compiler(here)[2] == "sudo apt-get install g++"


@pytest.mark.parametrize(
    ("name", "said", "release"),
    [
        ("ncu", "NVIDIA (R) Nsight Compute Command Line Profiler\nVersion 2025.3.1.0 (build 1) (public)", "2025.3.1.0"),
        ("nsys", "NVIDIA Nsight Systems version 2025.3.2.474-253236389321v0", "2025.3.2.474"),
        ("cuobjdump", "Copyright (c) 2005-2025\nCuda compilation tools, release 13.0, V13.0.85", "13.0"),
    ],
)
def test_a_program_says_its_version(name: str, said: str, release: str, bin_folder: Path) -> None:
    path = script(bin_folder, name, f"echo '{said}'")
    assert program(name, "install it", machine(None)) == ("good", f"{release} ({path})", None)


def test_a_program_that_hangs_is_unknown(bin_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "TOOL_S", 0.1)
    script(bin_folder, "nsys", "PATH=/usr/bin:/bin; sleep 5")
    started = time.monotonic()
    with pytest.raises(ValueError, match=r"nsys.*timed out after 0.1 seconds"):
        program("nsys", "install it", machine(None))
    assert time.monotonic() - started < 2


@pytest.mark.parametrize(
    ("installed", "driver", "state"),
    [
        ("2.11.0+cu130", "13.0", "good"),
        ("2.11.0+cu130", "12.8", "poor"),
        ("2.11.0+cu126", "12.4", "good"),  # within a major release, older drivers run newer builds
        ("2.13.0+cpu", "13.0", "poor"),
        ("2.13.0+cpu", None, "good"),
    ],
)
def test_torch_must_fit_the_driver(
    installed: str, driver: str | None, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "version_of", lambda package: installed)
    found = torch_build(machine(driver))
    assert (found[0], found[1].startswith(installed)) == (state, True)


def test_a_terminal_gets_all_of_it_and_nothing_is_cut_off(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setitem(os.environ, "NO_COLOR", "1")
    long = Finding("tools", "ncu", "poor", "none", "it says why", f"PATH=$PATH:/{'folder/' * 20}bin")
    print_report([DEVICE, PLAIN, long], as_json=False)
    out = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert "1 good, 1 note, 1 poor, 0 unknown" in out
    assert long.change is not None
    assert long.change in re.sub(r"\s+", "", out)
    assert "\x1b" not in out
    assert out.count("$ ") == 2  # a finding that no command would change has none
