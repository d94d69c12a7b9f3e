"""The table of ncu's counts, with a stand-in for ncu that prints a page of two kernels."""

from pathlib import Path

import pytest
from synthetic_run import host

import tools.analysis.memory_counters as counters
from common.python.base.machine import Gpu
from tools.analysis.memory_counters import CONFLICTS, METRICS, PROGRAM, READ, REQUESTS, SECTORS, WRITTEN, app
from tools.cli.benchmark_cli import ended

HERE = host(Gpu("NVIDIA H200", "GPU-1", 90, 140.0))
KERNEL = {READ: "1,500,000", WRITTEN: "500,000", SECTORS["ld"]: "160", REQUESTS["ld"]: "10", CONFLICTS[0]: "4"}


def code_of(*words: str) -> int:
    with pytest.raises(SystemExit) as done:
        ended(app, PROGRAM, list(words))
    return int(done.value.code or 0)


def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str) -> int:
    ncu = tmp_path / "ncu"
    ncu.write_text(f"#!/bin/bash\ncat <<'END'\n{printed}\nEND\n")
    ncu.chmod(0o755)
    monkeypatch.setattr(counters, "find_program", lambda name: ncu)
    monkeypatch.setattr(counters, "machine", lambda: HERE)
    return code_of("ch07:transpose")


def test_counts_of_a_steps_kernels_are_added_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def line(cells: list[str]) -> str:
        return ",".join(f'"{cell}"' for cell in cells)

    counts = [KERNEL.get(metric, "0") for metric in METRICS]
    page = [line(["ID", *METRICS]), line([""] * (1 + len(METRICS))), line(["0", *counts]), line(["1", *counts])]
    assert run(tmp_path, monkeypatch, "\n".join(["==PROF== Connected", *page])) == 0
    baseline = capsys.readouterr().out.splitlines()[2]
    needed = 16384 * 16384 * 4 / 1e6
    cells = ["baseline_transpose", "3.0", f"{needed:.1f}", "1.0", f"{needed:.1f}", "16.0", "0.0", "8"]
    assert baseline == "| " + " | ".join(cells) + " |"


def test_a_variant_without_counts_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, monkeypatch, "==ERROR== The driver refused") == 1
    assert "memory_counters: optimized_transpose: The driver refused" in capsys.readouterr().err


def test_no_target_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of() == 2
    assert "memory_counters: Missing argument" in capsys.readouterr().err
