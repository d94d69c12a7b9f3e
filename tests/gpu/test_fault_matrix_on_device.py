"""Faults that only a GPU can have: each is one row with its reason, in one suite beside healthy pairs."""

import re
import time
from pathlib import Path

import pynvml
import pytest

from common.python import peak_store
from common.python.cuda import find_nvcc
from common.python.peak_store import Survey
from common.python.results import PairResult, Summary
from common.python.runner import Options, open_suite

ROOT = Path(__file__).resolve().parents[1] / "faults" / "matrix"
HEALTHY = ("ch01:healthy", "ch02:healthy_last")
FAILED = {  # what the reason says
    "device_assert": "device-side assert",
    "device_memory": r"OutOfMemoryError at optimized_device_memory\.py:\d+: ",
    "illegal_address": "illegal memory access",
    "infinite_kernel": r"no answer within \d+ s during prepare",
    "misaligned_access": "misaligned address",
    "stream_changed": r"left the current stream \(.*\) changed: put it back, or declare isolated=True",
}
KERNELS = {path.stem.removeprefix("optimized_") for path in ROOT.glob("ch03/*.cu")}
NOISE = 1.05  # between two runs of a few rounds of the healthy pairs


def used_bytes(uuid: str) -> int:
    """Device memory that is taken, by whomever; a context alone takes hundreds of MiB."""
    pynvml.nvmlInit()
    gpu = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid.removeprefix('GPU-')}")
    return int(pynvml.nvmlDeviceGetMemoryInfo(gpu).used)


@pytest.fixture(scope="module")
def before(measured: Survey) -> int:
    """With some for what a driver keeps for itself once it has run a program."""
    return used_bytes(measured.uuid) + (64 << 20)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, before: int, measured: Survey) -> Summary:
    return run(measured, tmp_path_factory.mktemp("alone"), *HEALTHY)


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory, alone: Summary, measured: Survey) -> Summary:
    return run(measured, tmp_path_factory.mktemp("matrix"), *HEALTHY, "ch01:large_output", "ch03")


@pytest.fixture(autouse=True)
def peaks_at_hand() -> None:
    """`run` gives each suite's folder the peaks."""


def run(measured: Survey, folder: Path, *targets: str) -> Summary:
    peak_store.save(peak_store.path_of(folder, measured.uuid), measured)
    asked = Options(
        list(targets), root=ROOT, artifacts_dir=folder, iterations=12, warmup=5, seed=0, timeout_multiplier=0.25
    )
    return open_suite(asked, lambda phase, result: None).run()


def named(summary: Summary, name: str) -> PairResult:
    [result] = [pair for pair in summary.pairs if pair.name == name]
    return result


def test_every_fault_is_expected() -> None:
    assert FAILED.keys() == {path.stem.removeprefix("baseline_") for path in ROOT.glob("ch03/baseline_*.py")}


@pytest.mark.parametrize("name", FAILED)
def test_a_fault_fails_its_row_with_the_reason(matrix: Summary, name: str) -> None:
    if name in KERNELS and find_nvcc() is None:
        pytest.skip("needs nvcc")
    result = named(matrix, name)
    assert result.status == "failed"
    assert re.search(FAILED[name], result.reason or ""), result.reason
    assert next(row for row in result.variants if row.role == "optimized").status == "failed"
    assert next(row for row in result.variants if row.role == "baseline").status != "failed"


def test_an_output_of_a_gigabyte_is_measured(matrix: Summary) -> None:
    result = named(matrix, "large_output")
    assert result.status == "measured", result.reason
    assert result.verdict != "invalid", result.reason


def test_no_memory_of_the_gpu_stays_taken(before: int, matrix: Summary, measured: Survey) -> None:
    deadline = time.monotonic() + 5
    while (taken := used_bytes(measured.uuid)) > before and time.monotonic() < deadline:
        time.sleep(0.1)
    assert taken <= before, f"{(taken - before) >> 20} MiB"


@pytest.mark.parametrize("key", HEALTHY)
def test_the_healthy_are_not_disturbed(matrix: Summary, alone: Summary, key: str) -> None:
    ours, undisturbed = (named(done, key.partition(":")[2]).variants[1].speedup for done in (matrix, alone))
    assert ours is not None
    assert undisturbed is not None
    assert ours.low / NOISE <= undisturbed.ratio <= ours.high * NOISE
