"""Ranks on real GPUs: what gloo ranks are proven to do on a CPU, NCCL ranks do on two GPUs."""

import re
from pathlib import Path

import pytest
from test_rank_sessions import FAULTS, REFUSED, lay_ranks

from common.python.base.machine import machine
from common.python.base.results import CONTROL, Manifest, PairResult
from common.python.corpus.discovery import find_pairs
from common.python.run.options import Options
from common.python.run.suite import open_suite

TESTS = Path(__file__).resolve().parents[1]
LIMIT = 0.2  # of 120 s: NCCL sets itself up within; an end with code 0 is noticed after 12 s
ON_DEVICE = {  # the host does not wait in a collective, as it does on gloo, but for its GPU
    "skips_collective": "rank 0 waits for its GPU, rank 1 has done its part",
    "hangs": r"rank 1 is at optimized_hangs\.py:\d+",
}

pytestmark = pytest.mark.skipif(len(machine().gpus) < 2, reason="needs two CUDA GPUs")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lay_ranks(tmp_path_factory.mktemp("ranks"))["healthy"].folder.root


def run(root: Path, target: str, folder: Path, **options: object) -> PairResult:
    asked = {"iterations": 6, "warmup": 1, "seed": 0, **options}
    suite = open_suite(Options([target], root=root, artifacts_dir=folder, **asked), lambda phase, result: None)  # type: ignore[arg-type]
    [result] = suite.run().pairs
    return PairResult.model_validate_json(
        (suite.folder / f"{result.chapter}_{result.name}" / "results" / "benchmark_test_results.json").read_text()
    )


def test_a_sound_pair_is_timed_on_both_clocks_with_telemetry_of_both_gpus(root: Path, tmp_path: Path) -> None:
    result = run(root, "ch02:healthy", tmp_path)
    assert (result.status, result.reason) == ("measured", None)
    walled = set[int]()
    for block in result.blocks:
        assert all(sample.device_us and sample.device_us > 0 for sample in block.samples)
        names = {sample.variant for sample in block.samples}
        assert {wall.variant for wall in block.walls} == (names - {CONTROL} if block.round not in walled else set())
        assert all(sample.wall_us and sample.wall_us > 0 for sample in block.walls)
        walled.add(block.round)
        assert len(block.gpus) == 2
    for variant in result.variants:
        assert variant.why is not None
        assert variant.why.kernels
    beyond_s = sum(result.seconds.values()) - result.seconds["samples"]
    assert {"start", "samples"} <= set(result.seconds)
    assert beyond_s < 6, result.seconds  # most of it NCCL's own start, in "process group"
    [manifest] = tmp_path.glob("*Z/manifest.json")
    topology = Manifest.model_validate_json(manifest.read_text()).topology
    assert "GPU1" in str(topology)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_one_rank_names_it_and_leaves_no_process_on_a_gpu(name: str, root: Path, tmp_path: Path) -> None:
    result = run(root, f"ch01:{name}", tmp_path, timeout_multiplier=LIMIT)
    assert result.status == "failed"
    assert re.search(ON_DEVICE.get(name, FAULTS[name][1]), result.reason or ""), result.reason
    after = run(root, "ch02:healthy", tmp_path)
    assert (after.status, after.reason) == ("measured", None)
    assert {gpu.other_processes for block in after.blocks for gpu in block.gpus} <= {0, None}


def test_each_cheat_is_refused_on_nccl_and_its_honest_twin_accepted(root: Path, tmp_path: Path) -> None:
    rows = {row.label: row for row in run(root, "ch02:cheats", tmp_path, iterations=2).variants}
    for name, reason in REFUSED.items():
        assert rows[name].verdict == "invalid"
        assert re.search(reason, rows[name].reason or ""), rows[name].reason
        assert rows[f"{name}_honest"].status == "measured"


@pytest.mark.parametrize("pair", [pair for pair in find_pairs(TESTS.parent) if pair.gpus == 2], ids=lambda p: p.key)
def test_every_pair_on_two_gpus_is_proven_and_timed(pair, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    result = run(TESTS.parent, pair.key, tmp_path, iterations=2)
    assert result.status == "measured", result.reason
    assert {row.reason for row in result.variants if row.status == "failed"} == set()
