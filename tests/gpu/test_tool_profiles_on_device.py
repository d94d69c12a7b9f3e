"""What ncu, nsys and the allocator's history capture on a GPU, by `run --profile` itself."""

import json
from pathlib import Path

import pytest
from small_tree import ROOT, Tree

from common.python.base.results import PairResult
from common.python.base.toolkit import find_program
from common.python.peaks import store as peak_store
from common.python.peaks.store import Survey
from common.python.run.options import Options
from common.python.run.suite import open_suite

HOLDS = """
    def prepare(a):
        def step():
            return (a * 2).clone()

        return step
"""


def profiled(root: Path, target: str, artifacts: Path) -> tuple[PairResult, Path]:
    """The pair's result and its profiles folder."""
    options = Options([target], root, artifacts, budget_s=0.5, profile=True, seed=7)
    suite = open_suite(options, lambda phase, result: None)
    (result,) = suite.run().pairs
    return result, suite.folder / f"{result.chapter}_{result.name}" / "profiles"


@pytest.fixture(scope="module")
def transpose(tmp_path_factory: pytest.TempPathFactory, measured: Survey) -> tuple[PairResult, Path]:
    """ncu alone takes 8 s for each of four variants, most of it their start."""
    artifacts = tmp_path_factory.mktemp("artifacts")
    peak_store.save(peak_store.path_of(artifacts, measured.uuid), measured)
    return profiled(ROOT, "ch07:transpose", artifacts)


def test_ncu_reads_how_hard_a_transpose_drives_dram(transpose: tuple[PairResult, Path]) -> None:
    if find_program("ncu") is None:
        pytest.skip("needs ncu")
    result, profiles = transpose
    rows = {row.name: row for row in result.variants}
    optimized = rows["optimized_transpose"]
    if any("ERR_NVGPUCTRPERM" in note for note in result.notes):
        pytest.skip("may not read the GPU's counters")
    assert optimized.speed_of_light is not None, result.notes
    assert 30 <= optimized.speed_of_light.dram_percent <= 100
    assert optimized.speed_of_light.kernels == 1
    assert result.cost is not None
    moved = optimized.speed_of_light.read_bytes + optimized.speed_of_light.written_bytes
    assert 0.9 * result.cost.hbm < moved < 1.5 * result.cost.hbm
    assert optimized.why is not None
    assert any("transpose" in kernel for kernel in optimized.why.top)
    for row in rows.values():
        if row.status == "measured":
            assert (profiles / f"{row.name}.ncu-rep").stat().st_size
            assert (profiles / f"{row.name}.trace.json").stat().st_size
    assert not [note for note in result.notes if note.startswith("ncu on ")]


def test_a_timeline_holds_the_step_or_its_lack_is_said(transpose: tuple[PairResult, Path]) -> None:
    result, profiles = transpose
    if find_program("nsys") is None:
        assert sum(note.startswith("nsys is not found") for note in result.notes) == 1
        return
    assert (profiles / "optimized_transpose.nsys-rep").stat().st_size
    assert not [note for note in result.notes if note.startswith("nsys on ")]


def test_a_pair_about_memory_keeps_the_allocators_history(tmp_path: Path) -> None:
    sizes = '{"bench": {"n": 1 << 20}, "test": {"n": 67}}'
    Tree(tmp_path / "root").pair("ch01:held", HOLDS, fields='goal="memory",', optimized=HOLDS, sizes=sizes)
    result, profiles = profiled(tmp_path / "root", "ch01:held", tmp_path)
    assert result.status == "measured", result.reason
    for name in ("baseline_held", "optimized_held"):
        found = json.loads((profiles / f"{name}.memory.json").read_text())
        sizes = [event["size"] for events in found["device_traces"] for event in events if event["action"] == "alloc"]
        assert sizes.count(4 << 20) >= 2, sizes
        assert found["segments"]
