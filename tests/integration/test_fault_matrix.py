"""Whatever a pair does ends as one row with its reason, and neither the healthy pairs nor the machine feel it.

One suite, as a user runs it, goes through every fault of tests/faults/matrix that a CPU can have, beside two healthy
pairs. Hung pairs end after 0.07 x 120 s, which is far longer than any other pair there takes.
"""

import xml.etree.ElementTree
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from fault_suite import HEALTHY, LEFT, MATRIX, Done, check_codes, check_fault, check_undisturbed, copied, run

from common.python.base.results import PairResult
from common.python.workers.worker_status import LOG_BYTES

OPTIONS = ("--timeout-multiplier", "0.07")
FAILED = {  # what the reason says, and what stands in the line that it names
    "abort": ("killed by SIGABRT", "os.abort()"),
    "changed_late": (LEFT.format("the default dtype", "float64"), None),
    "changed_on_import": ("importing it left the default dtype .* changed", None),
    "daemon_of_the_dead": ("killed by SIGABRT", "os.abort()"),
    "deadlock": (r"no answer within \d+ s", "lock.acquire()"),
    "descriptor_leak": ("Too many open files", "os.open("),
    "device_changed": (LEFT.format("the default device", "meta"), None),
    "directory_changed": (LEFT.format("the working directory", "/"), None),
    "dtype_changed": (LEFT.format("the default dtype", "float64"), None),
    "environment_changed": (LEFT.format("os.environ", "LEFT_BY"), None),
    "grad_changed": (LEFT.format("the grad mode", "False"), None),
    "host_memory": ("can't allocate memory: you tried to allocate 2147483648 bytes", "torch.ones(2 << 30"),
    "import_error": ("ImportError .*no_such_name", "import no_such_name"),
    "infinite_loop": (r"no answer within \d+ s", "while True:|pass"),
    "inputs_raise": ("ValueError .*no 67 numbers", "raise ValueError"),
    "missing_module": ("ModuleNotFoundError .*no_such_module", "import no_such_module"),
    "nan": ("NaN or infinity where the reference is finite", None),
    "os_exit": ("the worker exited with code 0 during prepare", None),
    "oversleeping": (r"no answer within \d+ s", "time.sleep(600)"),
    "prepare_raises": ("ValueError .*not prepared", "raise ValueError"),
    "raises_late": ("ValueError .*the eleventh call", "raise ValueError"),
    "reference_raises": ("ValueError .*no answer", "raise ValueError"),
    "segfault": ("killed by SIGSEGV", "ctypes.string_at(0)"),
    "source_deleted": (r"ModuleNotFoundError.*optimized_source_deleted", None),  # it was proven, and is to be timed
    "step_raises": ("ValueError .*not stepped", "raise ValueError"),
    "syntax_error": ("syntax", "def step( -> Tensor"),
    "sys_exit": ("the worker exited with code 0 during prepare", "sys.exit(0)"),
    "tf32_changed": (LEFT.format("TF32 in matrix products", "tf32"), None),
    "threads_changed": (LEFT.format("the number of threads", r"\d"), None),
    "visible_devices_changed": (LEFT.format("os.environ", "CUDA_VISIBLE_DEVICES"), None),
    "wrong_result": (r"relative error 1\.00e-03", None),
}
HINTED = {
    "abort": "its log ends with the stack",
    "daemon_of_the_dead": "its log ends with the stack",
    "deadlock": "--timeout-multiplier",
    "descriptor_leak": "close in a step what it opens",
    "host_memory": "needs(memory_gib=, host_memory_gib=)",
    "infinite_loop": "--timeout-multiplier",
    "missing_module": "needs(modules=[...])",
    "nan": "filled with NaN before each proof",
    "os_exit": "must not end its process",
    "oversleeping": "--timeout-multiplier",
    "segfault": "its log ends with the stack",
    "source_deleted": "needs(modules=[...])",
    "sys_exit": "must not end its process",
}
# These harm nobody: their steps are right and are timed, and what they leave behind ends with their worker.
HARMLESS = {
    *("binary_stderr", "child_left", "daemon_left", "large_output", "loud_stdout", "rng_changed"),
    *("tampered_results", "thread_left"),
}
# Beyond the interval of three rounds, which is wide by itself: cores that others use too do not repeat a ratio.
NOISE = 1.25


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copied(tmp_path_factory.mktemp("matrix"))


@pytest.fixture(scope="module")
def alone(root: Path) -> Done:
    """The healthy pairs, undisturbed, in more rounds; before any other."""
    return run(root, "alone", *HEALTHY, *OPTIONS, "--iterations", "16")


@pytest.fixture(scope="module")
def matrix(root: Path, alone: Done) -> Iterator[Done]:
    done = run(root, "matrix", "ch01", "ch04", *OPTIONS, "--iterations", "6")
    yield done
    print(done.output)


def test_every_pair_is_one_row(matrix: Done) -> None:
    rows = Counter(pair.name for pair in matrix.summary.pairs)
    expected = {*FAILED, *HARMLESS, "unmet_need", "healthy", "healthy_last"}
    assert rows == Counter(expected), matrix.output
    files = {path.stem.removeprefix("baseline_") for path in MATRIX.glob("ch0[14]/baseline_*.py")}
    assert files == expected


@pytest.mark.parametrize("name", FAILED)
def test_a_fault_fails_its_row_with_the_reason_and_the_place(matrix: Done, name: str) -> None:
    check_fault(matrix, f"ch01:{name}", *FAILED[name], HINTED.get(name))


@pytest.mark.parametrize("name", sorted(HARMLESS))
def test_what_harms_nobody_is_measured(matrix: Done, name: str) -> None:
    result = matrix.result(f"ch01:{name}")
    assert result.status == "measured", result.reason
    assert {row.status for row in result.variants} == {"measured"}


def test_a_declared_need_that_is_not_met_is_no_failure(matrix: Done) -> None:
    result = matrix.result("ch01:unmet_need")
    assert (result.status, result.reason) == ("unsupported", "needs the module no_such_module")


def test_the_exit_code_says_that_there_were_failures(matrix: Done, alone: Done) -> None:
    check_codes(matrix, alone)


@pytest.mark.parametrize("key", HEALTHY)
def test_the_healthy_are_not_disturbed(matrix: Done, alone: Done, key: str) -> None:
    check_undisturbed(matrix, alone, key, NOISE)


def test_nothing_is_left(matrix: Done) -> None:
    assert matrix.processes == []
    assert matrix.temporary == []


def test_logs_stay_small_and_files_are_the_parents(matrix: Done) -> None:
    log = matrix.folder / "ch01_loud_stdout" / "logs" / "worker0.log"
    assert LOG_BYTES < log.stat().st_size < LOG_BYTES + 100
    assert b"the start is left out" in log.read_bytes()
    for pair in matrix.summary.pairs:
        file = matrix.folder / f"{pair.chapter}_{pair.name}" / "results" / "benchmark_test_results.json"
        written = PairResult.model_validate_json(file.read_text())
        assert written.model_copy(update={"blocks": []}) == pair
    cases = xml.etree.ElementTree.parse(matrix.folder.parents[1] / "matrix.xml").getroot().iter("testcase")
    assert len(list(cases)) >= len(matrix.summary.pairs)
