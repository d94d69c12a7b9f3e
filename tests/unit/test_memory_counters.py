"""The table of ncu's counts, with a stand-in for ncu that prints a page of launches after what a pair says."""

import csv
import io
import sys
from pathlib import Path

import pytest
from small_tree import Done, cli
from synthetic_run import host, program

import tools.analysis.memory_counters as counters
from common.python.base.machine import Gpu
from common.python.profile.nsight import READ, WRITTEN, mark
from tools.analysis.memory_counters import CONFLICTS, FEWEST, METRICS, PASSES, REQUESTS, SECTORS

HERE = host(Gpu("NVIDIA H200", "GPU-1", 90, 140.0))
KERNEL = {READ: "1,500,000", WRITTEN: "500,000", SECTORS["ld"]: "160", REQUESTS["ld"]: "10", CONFLICTS[0]: "4"}
KERNEL |= {PASSES: "7", FEWEST: "5"}
# The columns of ranges as ncu prints them with --nvtx, the second one empty; CUB opens ranges of its own in the step's.
KINDS = ("thread Domain:Push/Pop_Range", "Id:Domain:Start/Stop_Range")
RANGES = [f"{kind}:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg" for kind in KINDS]
RANGE = '71  "<default domain>:{}:none:none:none:none:none:none"  "CCCL:cub::DeviceReduce::Sum:none:none:none:REG:n/a"'


def page(*variants: str) -> str:
    """Two launches of each variant's step, in the order of these variants."""
    lines = io.StringIO()
    writer = csv.writer(lines, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows([["ID", *RANGES, *METRICS], [""] * (3 + len(METRICS))])
    for number, variant in enumerate(variant for variant in variants for _ in range(2)):
        writer.writerow([number, RANGE.format(mark(variant)), "", *(KERNEL.get(metric, "0") for metric in METRICS)])
    return lines.getvalue()


def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str, *targets: str, code: int = 0, seconds: int = 0
) -> Done:
    told = f"#!/bin/bash\necho \"$@\" >> {tmp_path}/calls\ncat <<'END'\n{printed}\nEND\nsleep {seconds}\nexit {code}\n"
    ncu = program(tmp_path / "ncu", told)
    monkeypatch.setattr(counters, "find_program", lambda name: ncu)
    monkeypatch.setattr(counters, "machine", lambda: HERE)
    monkeypatch.setattr(counters, "compile_cuda", lambda *how: None)
    return cli(*targets, "--logs", tmp_path / "logs", tool=counters.counters)


def test_a_process_of_ncu_counts_the_pairs_of_a_chapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"{role}_{name}" for name in ("transpose", "strided_copy") for role in ("baseline", "optimized")]
    done = run(tmp_path, monkeypatch, page(*names), "ch07:transpose", "ch07:strided_copy")
    assert done.returncode == 0
    needed = f"{16384 * 16384 * 4 / 1e6:.1f}"
    cells = ["baseline_transpose", "3.0", needed, "0.00", "1.0", needed, "0.00", "16.0", "0.0", "4", "8"]
    assert done.stdout.splitlines()[2] == "| " + " | ".join(cells) + " |"
    assert [line.split()[1] for line in done.stdout.splitlines()[2:]] == names
    (call,) = (tmp_path / "calls").read_text().splitlines()
    assert [call.count(part) for part in ("--nvtx-include step of", "optimized_strided_copy/", "__tile")] == [4, 1, 0]


def test_rows_are_printed_before_the_next_chapter_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = counters.count
    monkeypatch.setattr(counters, "count", lambda *how: counted(*how) if how[1][0].chapter == "ch07" else sys.exit(9))
    both = page("baseline_transpose", "optimized_transpose")
    done = run(tmp_path, monkeypatch, both, "ch07:transpose", "ch08:bytes_in_flight")
    assert (done.returncode, done.stdout.count("_transpose |")) == (9, 2)


def test_a_variant_without_counts_is_named_and_others_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = "memory_counters: optimized_transpose"
    said = "optimized_transpose: prepare\noptimized_transpose: VariantError: no\n==ERROR== The application ended (1).\n"
    done = run(tmp_path, monkeypatch, said + page("baseline_transpose"), "ch07:transpose", code=1)
    assert (done.returncode, done.stdout.count("transpose")) == (1, 1)
    assert done.stderr.startswith(f"{named}: VariantError: no (exit code 1: The application")
    done = run(tmp_path, monkeypatch, "==ERROR== The driver refused", "ch07:transpose")
    assert (done.returncode, f"{named} (The driver refused" in done.stderr) == (1, True)
    monkeypatch.setattr(counters, "LIMIT_S", 0.0)
    assert f"{named}: it did not end in" in run(tmp_path, monkeypatch, "", "ch07:transpose", seconds=9).stderr
