"""The table of ncu's counts, with a stand-in for ncu that prints a page of two kernels."""

from pathlib import Path

import pytest
from synthetic_run import host
from typer.testing import CliRunner, Result

import tools.analysis.memory_counters as counters
from common.python.base.machine import Gpu
from tools.analysis.memory_counters import CONFLICTS, METRICS, READ, REQUESTS, SECTORS, WRITTEN, app

HERE = host(Gpu("NVIDIA H200", "GPU-1", 90, 140.0))
KERNEL = {READ: "1,500,000", WRITTEN: "500,000", SECTORS["ld"]: "160", REQUESTS["ld"]: "10", CONFLICTS[0]: "4"}


def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str) -> Result:
    ncu = tmp_path / "ncu"
    ncu.write_text(f"#!/bin/bash\ncat <<'END'\n{printed}\nEND\n")
    ncu.chmod(0o755)
    monkeypatch.setattr(counters, "find_program", lambda name: ncu)
    monkeypatch.setattr(counters, "machine", lambda: HERE)
    return CliRunner().invoke(app, ["ch07:transpose"])


def test_counts_of_a_steps_kernels_are_added_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def line(cells: list[str]) -> str:
        return ",".join(f'"{cell}"' for cell in cells)

    counts = [KERNEL.get(metric, "0") for metric in METRICS]
    page = [line(["ID", *METRICS]), line([""] * (1 + len(METRICS))), line(["0", *counts]), line(["1", *counts])]
    done = run(tmp_path, monkeypatch, "\n".join(["==PROF== Connected", *page]))
    assert done.exit_code == 0
    baseline = done.stdout.splitlines()[2]
    needed = 16384 * 16384 * 4 / 1e6
    cells = ["baseline_transpose", "3.0", f"{needed:.1f}", "1.0", f"{needed:.1f}", "16.0", "0.0", "8"]
    assert baseline == "| " + " | ".join(cells) + " |"


def test_a_variant_without_counts_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(tmp_path, monkeypatch, "==ERROR== The driver refused")
    assert (done.exit_code, "memory_counters: optimized_transpose: The driver refused" in done.stderr) == (1, True)


def test_no_target_is_a_usage_error() -> None:
    assert CliRunner().invoke(app, []).exit_code == 2
