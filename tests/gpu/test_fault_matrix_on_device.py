"""Faults that only a GPU can have: each is one row with its reason, in one suite beside healthy pairs.

A kernel faults or hangs when the step that launched it has returned: what the harness waits in then is no line of the
variant. The row names the variant, and the line of an assertion; its log says what the GPU or the stack said, and its
hint names the tool that finds the line.
"""

import math
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest
from fault_suite import (
    HEALTHY,
    LEFT,
    MATRIX,
    Done,
    Fault,
    artifacts_of,
    check_codes,
    check_fault,
    check_undisturbed,
    copied,
    run,
)

from common.python.base.lock import Busy, hold
from common.python.base.machine import ask
from common.python.base.toolkit import find_nvcc
from common.python.peaks import store as peak_store
from common.python.peaks.store import Survey
from common.python.run.options import Options
from common.python.run.suite import PAIR_LIMIT_S, open_suite
from tools.cli.exits import claims

NO_PEAKS = "`suite` gives each run's folder the peaks"
MULTIPLIER = 0.25
SANITIZE, LONGER = "scripts/sanitize.sh", "--timeout-multiplier"
FAILED = {  # what the reason says, what stands in the line that it names, and what the hint says
    "device_assert": (r"device-side assert .* at optimized_device_assert\.cu:\d+", "assert(i != 0)", SANITIZE),
    "device_memory": ("OutOfMemoryError", "torch.empty(1 << 42", "needs(memory_gib="),
    "illegal_address": ("illegal memory access", None, SANITIZE),
    "infinite_kernel": (r"optimized_infinite_kernel: no answer within \d+ s during its first step;", None, LONGER),
    "misaligned_access": ("misaligned address", None, SANITIZE),
    "stream_changed": (LEFT.format("the current stream", ""), None, None),
}
NEEDS_GPU = "from common.python.requirements import needs\nrequires = needs(gpus=1)"
WRITTEN = {  # the others of FAILED are .cu files
    "device_memory": Fault(module=NEEDS_GPU, step="torch.empty(1 << 42, dtype=torch.uint8, device=a.device)"),
    "stream_changed": Fault(module=NEEDS_GPU, step="torch.cuda.set_stream(torch.cuda.Stream())"),
}
KERNELS = {path.stem.removeprefix("optimized_") for path in MATRIX.glob("ch03/*.cu")}
NOISE = 1.05  # between two runs of a few rounds of the healthy pairs
SPARE_MIB = 64.0  # what a driver keeps for itself once it has run a program; a context alone takes hundreds

needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc")


def on_gpu(uuid: str) -> tuple[float, set[int]]:
    """MiB of its memory that are taken, by whomever, and the processes on it, by the numbers that NVML has for them."""
    pynvml.nvmlInit()
    gpu = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid.removeprefix('GPU-')}")
    running = ask(pynvml, "nvmlDeviceGetComputeRunningProcesses", gpu) or []
    return pynvml.nvmlDeviceGetMemoryInfo(gpu).used / 2**20, {process.pid for process in running}


@pytest.fixture(scope="module")
def before(measured: Survey) -> tuple[float, set[int]]:
    return on_gpu(measured.uuid)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copied(tmp_path_factory.mktemp("matrix"), "ch03", WRITTEN)


@pytest.fixture(scope="module")
def alone(root: Path, before: tuple[float, set[int]], measured: Survey) -> Done:
    return suite(root, "alone", measured, *HEALTHY)


@pytest.fixture(scope="module")
def matrix(root: Path, alone: Done, measured: Survey) -> Iterator[Done]:
    first, last = HEALTHY
    limit = ("--timeout-multiplier", str(MULTIPLIER))
    done = suite(root, "matrix", measured, first, "ch01:large_output", "ch03", last, *limit)
    yield done
    print(done.output)


def suite(root: Path, name: str, measured: Survey, *words: str) -> Done:
    peak_store.save(peak_store.path_of(artifacts_of(root, name), measured.uuid), measured)
    return run(root, name, *words, "--iterations", "12", "--warmup", "5")


def test_every_fault_is_expected_and_a_healthy_pair_comes_after_them(matrix: Done) -> None:
    assert FAILED.keys() == KERNELS | WRITTEN.keys()
    assert [pair.name for pair in matrix.summary.pairs] == ["healthy", "large_output", *FAILED, "healthy_last"]


@pytest.mark.parametrize("name", FAILED)
def test_a_fault_fails_its_row_with_the_reason_the_place_and_a_hint(matrix: Done, name: str) -> None:
    if name in KERNELS and find_nvcc() is None:
        pytest.skip("needs nvcc")
    check_fault(matrix, f"ch03:{name}", *FAILED[name])
    baseline = next(row for row in matrix.result(f"ch03:{name}").variants if row.role == "baseline")
    assert baseline.status != "failed", baseline.reason


@needs_nvcc
def test_the_log_of_an_infinite_kernel_says_who_waits_for_it(matrix: Done) -> None:
    assert "in synchronize" in matrix.result("ch03:infinite_kernel").log


def test_an_output_of_a_gigabyte_is_measured(matrix: Done) -> None:
    result = matrix.result("ch01:large_output")
    assert (result.status, result.shape) == ("measured", {"n": 1 << 20}), result.reason
    assert result.verdict != "invalid", result.reason


def test_the_exit_code_says_that_there_were_failures(matrix: Done, alone: Done) -> None:
    check_codes(matrix, alone)


@pytest.mark.parametrize("key", HEALTHY)
def test_the_healthy_are_not_disturbed(matrix: Done, alone: Done, key: str) -> None:
    check_undisturbed(matrix, alone, key, NOISE)


def test_a_kernel_that_never_ends_has_ended_before_others_are_timed(matrix: Done) -> None:
    for key in ("ch01:large_output", *HEALTHY):
        assert "another process" not in (matrix.result(key).reason or ""), key


def test_no_process_temporary_file_or_lock_is_left(matrix: Done) -> None:
    assert (matrix.processes, matrix.temporary) == ([], [])


def test_neither_memory_of_the_gpu_nor_a_process_on_it_is_left(
    before: tuple[float, set[int]], matrix: Done, measured: Survey
) -> None:
    deadline = time.monotonic() + 5
    while True:
        mib, pids = on_gpu(measured.uuid)
        more_mib, more_pids = mib - before[0], pids - before[1]
        if (more_mib <= SPARE_MIB and not more_pids) or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    assert more_mib <= SPARE_MIB
    assert more_pids == set()


@needs_nvcc
def test_a_pair_whose_kernel_never_ends_ends_within_two_seconds_of_its_limit(
    root: Path, matrix: Done, measured: Survey
) -> None:
    """By itself: what several pairs take at a time is shared out among them."""
    multiplier = 0.1
    done = suite(root, "limited", measured, "ch03:infinite_kernel", "--timeout-multiplier", str(multiplier))
    took_s, limit_s = sum(done.result("ch03:infinite_kernel").seconds.values()), multiplier * PAIR_LIMIT_S
    assert limit_s <= took_s < limit_s + 2


@needs_nvcc
def test_the_suites_time_holds_to_within_two_seconds_while_a_kernel_never_ends(
    root: Path, alone: Done, matrix: Done, measured: Survey
) -> None:
    """With time enough to come to the pair, whose kernel is compiled by now."""
    opening_s = alone.seconds - sum(sum(pair.seconds.values()) for pair in alone.summary.pairs)
    limit_s = 5 + math.ceil(1.5 * opening_s)
    done = suite(root, "timed", measured, "ch03:infinite_kernel", "--suite-timeout", str(limit_s))
    assert limit_s - 2 < done.seconds < limit_s + 2
    assert (done.code, done.processes, done.temporary) == (1, [], [])
    why = "the suite's time was up while optimized_infinite_kernel was at work"
    assert done.summary.not_run == {"ch03:infinite_kernel": why}


def test_a_second_run_on_the_gpu_is_told_who_holds_it(root: Path, measured: Survey, tmp_path: Path) -> None:
    asked = Options([HEALTHY[0]], root=root, artifacts_dir=tmp_path)
    busy = pytest.raises(Busy, match=f"GPU {measured.uuid} is in use by pid {os.getpid()} ")
    with hold(measured.uuid, print, wait=False), claims(wait=False) as claim, busy:
        open_suite(asked, lambda phase, result: None, claim=claim)
