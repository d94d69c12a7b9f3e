"""run --profile with stand-ins for ncu and nsys on the PATH: they record their arguments and replay a report."""

import json
import os
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from synthetic_run import write_run
from test_nsight import FIRST, SECOND, table, timeline

from common.python.base.results import Block, ClockName, PairResult, Spread, Why
from common.python.benchmark_comparison import compare_and_display_all_metrics
from common.python.corpus.discovery import Pair, find_pairs
from common.python.profile import external_profilers as tool_profiles
from common.python.profile import memory_history
from common.python.profile.external_profilers import NO_TIME, profile
from common.python.profile.profiled_why import _read
from common.python.report.artifacts import read_run
from common.python.report.html import page
from common.python.report.markdown import pair_markdown
from common.python.run.settings import Settings
from common.python.run.variant_status import new_row
from common.python.workers.profiled_step import profiled_step

ROOT = Path(__file__).resolve().parents[2]
BASELINE = '''"""Doubles every element."""
from common.python.workload import Cost, Workload

workload = Workload(
    inputs=lambda draw, n: {"a": draw.normal(n)},
    reference=lambda a: a * 2,
    cost=lambda n: Cost(hbm_bytes=8 * n),
    sizes={"bench": {"n": 64}, "test": {"n": 7}},
    tolerance=0.0,
)
seen = []

def prepare(a):
    def step():
        seen.append("step")
        return a * 2

    return step
'''
OPTIMIZED = '''"""Fails on the device."""
from ch01.baseline_x import workload as workload

def prepare(a):
    raise RuntimeError("no such luck")
'''
NCU = 'case "$1" in --import) cat "$HERE/table.csv";; *) printf report > "$2.ncu-rep";; esac'
NSYS = 'case "$1" in export) cp "$HERE/kernels.sqlite" "${3#--output=}";; *) printf report > "$3.nsys-rep";; esac'
ABSENT = "is not found, so it captured nothing: `benchmark_cli doctor` says what would"


@dataclass
class Place:
    """A pair with a result as its session leaves it, and a folder of stand-ins that comes first on the PATH."""

    folder: Path
    pair: Pair
    settings: Settings
    result: PairResult

    def tool(self, name: str, body: str) -> None:
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\nHERE={self.folder}\necho "$@" >> $HERE/{name}.calls\n{body}\n')
        path.chmod(0o755)

    def calls(self, name: str) -> list[str]:
        path = self.folder / f"{name}.calls"
        return path.read_text().splitlines() if path.exists() else []

    def profile(self, **changes: Any) -> list[str]:
        """The notes that it leaves."""
        return profile(self.result, self.pair, replace(self.settings, **changes)).notes


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    chapter = tmp_path / "root" / "ch01"
    chapter.mkdir(parents=True)
    (chapter / "__init__.py").touch()
    (chapter / "baseline_x.py").write_text(BASELINE)
    (chapter / "optimized_x.py").write_text(OPTIMIZED)
    (pair,) = find_pairs(tmp_path / "root")
    result = PairResult(chapter="ch01", name="x", status="measured", verdict="faster", device="NVIDIA H200")
    result.variants = [new_row(pair, variant) for variant in pair.variants]
    for row in result.variants:
        row.status, row.why = "measured", Why(kernels=2, top=["void tile<1>(float const*, float*)", "Memcpy DtoD"])
    settings = Settings(
        root=tmp_path / "root",
        folder=tmp_path / "artifacts" / "ch01_x",
        scratch=tmp_path / "scratch",
        size="bench",
        seed=7,
        device="NVIDIA H200",
        profile=True,
    )
    settings.scratch.mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    found = Place(tmp_path, pair, settings, result)
    (tmp_path / "table.csv").write_text(table(FIRST, SECOND))
    timeline(tmp_path / "kernels.sqlite", "void tile<1>(float const*, float*)", "copy")
    found.tool("ncu", NCU)
    found.tool("nsys", NSYS)
    return found


def test_every_variant_gets_a_report_a_timeline_and_figures(place: Place) -> None:
    assert place.profile() == []
    for row in place.result.variants:
        assert row.speed_of_light is not None
        assert row.speed_of_light.dram_percent == pytest.approx(80.5)
        for suffix in ("ncu-rep", "nsys-rep"):
            assert (place.settings.folder / "profiles" / f"{row.name}.{suffix}").read_text() == "report"
    assert place.result.seconds["profilers"] > 0
    shown = pair_markdown(place.result)
    assert "| 80.5% | 30.0% | 70.0% | 2.0 MB | 2.0 kB | 2 | 4.00 us |" in shown


def test_figures_are_compared_and_stand_on_the_page_of_a_run(
    place: Place, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    place.profile()
    baseline, optimized = place.result.variants
    compared = compare_and_display_all_metrics(
        baseline_result=baseline, optimized_result=optimized, name="x", chapter="ch01"
    )
    found = {one.metric: one.baseline for one in compared.changes if one.group == "profiler"}
    assert found["dram_percent_of_peak"] == pytest.approx(80.5)
    assert found["sm_percent_of_peak"] == pytest.approx(30.0)
    assert found["occupancy"] == pytest.approx(70.0)
    capsys.readouterr()
    shown = page(read_run(write_run(tmp_path / "run", [place.result])), tmp_path)
    assert "Speed of light" in shown
    assert "<td>80.5%</td>" in shown
    optimized.verdict = "invalid"
    place.result.variants = [optimized]
    assert "Speed of light" not in pair_markdown(place.result)


def test_each_tool_starts_the_step_of_each_variant_at_the_size_that_was_timed(place: Place) -> None:
    place.tool("nsys", f"pwd > $HERE/pwd\n{NSYS}")
    place.profile()
    assert Path((place.folder / "pwd").read_text().strip()) == ROOT  # where `-m common.python...` is found
    for tool in ("ncu", "nsys"):
        starts = [call for call in place.calls(tool) if "profiled_step" in call]
        asked = [json.loads(call.partition("profiled_step ")[2]) for call in starts]
        assert [(one["name"], one["module"]) for one in asked] == [
            ("baseline_x", "ch01.baseline_x"),
            ("optimized_x", "ch01.optimized_x"),
        ]
        for call, one in zip(starts, asked):
            assert f"step of {one['name']}" in call
            assert (one["size"], one["seed"], one["baseline"]) == ("bench", 7, "ch01.baseline_x")
            assert Path(one["root"]).is_absolute()


def test_nothing_is_started_unless_asked_for_nor_for_what_was_not_measured(place: Place) -> None:
    assert place.profile(profile=False) == []
    place.result.variants[0].status = "failed"
    place.result.variants[1].why = None
    assert place.profile() == []
    assert not place.calls("ncu") + place.calls("nsys")


def test_a_cpu_has_the_chrome_trace_alone_and_says_so(place: Place) -> None:
    assert place.profile(device="cpu") == ["no ncu report and no nsys timeline: they are of GPUs, and this is a CPU"]
    assert not place.calls("ncu")


def test_a_tool_that_is_not_found_is_said_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_profiles, "find_program", lambda name: None)
    assert place.profile() == [f"ncu {ABSENT}", f"nsys {ABSENT}"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("true", "it wrote no baseline_x.ncu-rep"),
        (': > "$2.ncu-rep"', "it wrote no baseline_x.ncu-rep"),
        ("echo ==ERROR== Unknown section; exit 1", "exit code 1: Unknown section"),
        ("exec /nowhere/at/all", "exit code 127"),
        (NCU.replace("cat", "true"), "the report holds no kernel"),
        (NCU.replace('cat "$HERE/table.csv"', "exit 5"), "exit code 5"),
    ],
)
def test_what_ncu_did_not_capture_is_a_note_and_no_failure(place: Place, body: str, reason: str) -> None:
    place.result.variants.pop()
    place.tool("ncu", body)
    (note,) = place.profile()
    assert note.startswith("ncu on baseline: ")
    assert reason in note
    assert place.result.variants[0].speed_of_light is None
    assert place.result.status == "measured"


def test_a_report_left_by_an_earlier_run_is_none_of_this_one(place: Place) -> None:
    place.profile()
    place.result.notes = []
    place.tool("ncu", "true")
    assert sum("it wrote no" in note for note in place.profile()) == 2


def traced(*work: dict[str, object]) -> Why:
    """What is read of a step on a GPU whose trace holds this work of the device."""
    spans = [
        {"name": f"{what}a", "cat": "user_annotation", "ts": 100, "dur": 50}
        for what in ("step of ", "step and its work of ")
    ]
    return _read([*spans, *({"ts": 110, "dur": 9} | each for each in work)], "a", torch.device("cuda"))


def timed(place: Place, us: float, late: int = 0, why: Why | None = None) -> None:
    """Both variants read so much in each of ten samples, where an empty step reads 3 us."""
    place.result.clock, place.result.floor_us = "device", 3.0
    place.result.blocks = [Block(round=0, steps=1, samples=[], late=late)]
    for row in place.result.variants:
        row.device = Spread(n=10, mean=us, std=0, median=us, q1=us, q3=us, p95=us, p99=us, outliers=0)
        row.why = why or traced()


EMPTY = "the Chrome trace on baseline, optimized: it holds no kernel and no copy, though the device was at work"


def test_a_chrome_trace_without_the_work_that_was_timed_says_so_on_whatever_tools_are_there(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed(place, us=5.0)
    assert place.profile() == [EMPTY, "ncu on baseline, optimized: the Chrome trace holds no kernel of its step"]
    place.result.notes = []
    monkeypatch.setattr(tool_profiles, "find_program", lambda name: None)
    assert place.profile()[0] == EMPTY
    assert place.result.status == "measured"


@pytest.mark.parametrize(
    "work",
    [
        {"name": "tile", "cat": "kernel"},
        {"name": "Memcpy DtoD (Device -> Device)", "cat": "gpu_memcpy"},
        {"name": "Memset (Device)", "cat": "gpu_memset"},
    ],
)
def test_a_trace_that_holds_any_work_of_the_device_is_not_doubted(place: Place, work: dict[str, object]) -> None:
    timed(place, us=500.0, why=traced(work))
    assert not any("Chrome trace on" in note for note in place.profile())


@pytest.mark.parametrize(
    ("us", "late", "clock", "doubted"),
    [
        (500.0, 4, "device", True),
        (4.4, 0, "device", False),  # no more than an empty step
        (500.0, 5, "device", False),  # perhaps the host's own time: it was late for half of the samples
        (500.0, 0, "end_to_end", False),  # the host's own time is in it
    ],
)
def test_a_step_that_may_well_leave_the_device_idle_is_not_accused(
    place: Place, us: float, late: int, clock: ClockName, doubted: bool
) -> None:
    timed(place, us, late)
    place.result.clock = clock
    assert any("Chrome trace on" in note for note in place.profile()) == doubted


def test_counters_that_may_not_be_read_are_asked_for_once(place: Place) -> None:
    place.tool("ncu", "echo ==ERROR== ERR_NVGPUCTRPERM - The user does not have permission; exit 1")
    (note,) = place.profile()
    assert note.startswith("ncu on baseline, optimized: it may not read the GPU's counters (ERR_NVGPUCTRPERM)")
    assert len(place.calls("ncu")) == 1


def test_a_tool_that_hangs_is_ended_at_the_pairs_limit_with_all_that_it_started(place: Place) -> None:
    place.tool("ncu", "sleep 61 & echo $! > $HERE/child; wait")
    started = time.monotonic()
    notes = place.profile(time_limit_s=0.5)
    assert time.monotonic() - started < 5
    assert notes[0] == "ncu on baseline: it did not end in the 0.5 s that were left of the limit"
    assert notes[1:] == [f"ncu on optimized: {NO_TIME}", f"nsys on baseline, optimized: {NO_TIME}"]
    status = Path("/proc", (place.folder / "child").read_text().strip(), "status")
    assert not status.exists() or "State:\tS" not in status.read_text()


def test_what_the_session_took_is_no_longer_there_for_profilers(place: Place) -> None:
    place.result.seconds = {"samples": 60.0, "proof": 61.0}
    late = [f"{tool} on baseline, optimized: {NO_TIME}" for tool in ("ncu", "nsys")]
    assert place.profile() == late
    place.result.notes, place.result.seconds = [], {}
    assert place.profile(suite_deadline=time.monotonic()) == late


def test_a_step_that_fails_under_the_tool_gives_its_own_reason(place: Place) -> None:
    place.tool("ncu", 'while [ "$1" != "-m" ]; do before="$1"; shift; done; exec "$before" "$@"')
    place.result.variants = place.result.variants[1:]
    assert "ncu on optimized: exit code 1: RuntimeError at optimized_x.py:5: no such luck" in place.profile()


def test_one_warm_step_is_marked(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    chapter = place.settings.root / "ch01"
    chapter.rename(chapter.with_name("ch97"))  # no other test imports it
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", lambda text: seen().append(text))
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: seen().append("pop"))
    monkeypatch.setattr(sys, "path", [*sys.path])

    def seen() -> list[str]:
        import importlib

        found: list[str] = importlib.import_module("ch97.baseline_x").seen
        return found

    asked = {"root": str(place.settings.root), "scratch": str(place.settings.scratch), "size": "bench", "seed": 7}
    asked |= {"baseline": "ch97.baseline_x", "module": "ch97.baseline_x", "name": "baseline_x"}
    assert profiled_step(asked | {"reproducible": False}) is None
    assert seen() == ["step", "step", "step of baseline_x", "step", "pop"]


def test_a_snapshot_is_json_and_recording_ends_even_if_the_step_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for the CUDA allocator; tests/gpu has the real one."""
    said: list[str | None] = []
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", lambda enabled, **_: said.append(enabled))
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda: {"segments": [{"segment_pool_id": (0, 0)}]})
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)

    def step() -> torch.Tensor:
        said.append("step")
        return torch.ones(1)

    memory_history.write_snapshot(step, tmp_path / "profiles" / "x.memory.json")
    assert said == ["all", "step", None]
    assert json.loads((tmp_path / "profiles" / "x.memory.json").read_text()) == {
        "segments": [{"segment_pool_id": [0, 0]}]
    }
    said.clear()

    def fails() -> torch.Tensor:
        raise RuntimeError("no memory")

    with pytest.raises(RuntimeError):
        memory_history.write_snapshot(fails, tmp_path / "y.json")
    assert said == ["all", None]
