"""Whatever a pair does ends as one row with its reason, and neither the healthy pairs nor the machine feel it.

One suite, as a user runs it, goes through every fault of tests/faults/matrix that a CPU can have, beside two healthy
pairs. Hung pairs end after TIMEOUT_MULTIPLIER x 120 s, which is far longer than any other pair there takes.
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from common.python.results import Interval, PairResult, Summary
from common.python.statistics import compare
from common.python.worker import LOG_BYTES

ROOT = Path(__file__).resolve().parents[2]
MATRIX = ROOT / "tests" / "faults" / "matrix"
TIMEOUT_MULTIPLIER = "0.07"
LOCKS = "benchmark_cli_locks"
HEALTHY = ("ch01:healthy", "ch02:healthy_last")
LEFT = r"left {} \(.*{}\) changed: put it back, or declare isolated=True"
FAILED = {  # what the reason says, and what stands in the line that it names
    "abort": ("killed by SIGABRT", "os.abort()"),
    "changed_late": (LEFT.format("the default dtype", "float64"), None),
    "changed_on_import": ("importing it left the default dtype .* changed", None),
    "daemon_of_the_dead": ("killed by SIGABRT", "os.abort()"),
    "deadlock": (r"no answer within \d s", "lock.acquire()"),
    "descriptor_leak": ("Too many open files", "os.open("),
    "device_changed": (LEFT.format("the default device", "meta"), None),
    "directory_changed": (LEFT.format("the working directory", "/"), None),
    "dtype_changed": (LEFT.format("the default dtype", "float64"), None),
    "environment_changed": (LEFT.format("os.environ", "LEFT_BY"), None),
    "grad_changed": (LEFT.format("the grad mode", "False"), None),
    "host_memory": ("can't allocate memory: you tried to allocate 2147483648 bytes", "torch.ones(2 << 30"),
    "import_error": ("ImportError .*no_such_name", "import no_such_name"),
    "infinite_loop": (r"no answer within \d s", "while True:|pass"),
    "inputs_raise": ("ValueError .*no 67 numbers", "raise ValueError"),
    "missing_module": ("ModuleNotFoundError .*no_such_module", "import no_such_module"),
    "nan": ("NaN or infinity where the reference is finite", None),
    "os_exit": ("the worker exited with code 0 during prepare", None),
    "oversleeping": (r"no answer within \d s", "time.sleep(600)"),
    "prepare_raises": ("ValueError .*not prepared", "raise ValueError"),
    "raises_late": ("ValueError .*the eleventh call", "raise ValueError"),
    "reference_raises": ("ValueError .*no answer", "raise ValueError"),
    "segfault": ("killed by SIGSEGV", "ctypes.string_at(0)"),
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
    "sys_exit": "must not end its process",
}
# These harm nobody: their steps are right and are timed, and what they leave behind ends with their worker.
HARMLESS = {
    *("binary_stderr", "child_left", "daemon_left", "large_output", "loud_stdout", "rng_changed", "source_deleted"),
    *("tampered_results", "thread_left"),
}
# Beyond the interval of three rounds, which is wide by itself: cores that others use too do not repeat a ratio.
NOISE = 1.25


@dataclass(frozen=True)
class Done:
    """A run that has ended: how, with what, and what it left."""

    code: int
    output: str
    summary: Summary
    folder: Path
    processes: list[str]
    temporary: list[str]

    def result(self, key: str) -> PairResult:
        return next(pair for pair in self.summary.pairs if pair.key == key)

    def speedup(self, key: str) -> Interval:
        """From the samples, whatever the verdict."""
        name = key.partition(":")[2]
        file = self.folder / key.replace(":", "_") / "results" / "benchmark_test_results.json"
        blocks = PairResult.model_validate_json(file.read_text()).blocks
        found = compare(blocks, f"baseline_{name}", f"optimized_{name}", "end_to_end")
        assert found is not None
        return found


def disturbed(result: PairResult) -> bool:
    """Whether only the control speaks against a pair: by chance it does in one of twenty, on a noisy host."""
    reasons = {row.reason for row in result.variants if row.verdict == "invalid"}
    return bool(reasons) and all("the control, baseline" in (reason or "") for reason in reasons)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy, since one pair deletes its source."""
    return Path(shutil.copytree(MATRIX, tmp_path_factory.mktemp("matrix") / "root"))


@pytest.fixture(scope="module")
def alone(root: Path) -> Done:
    """The healthy pairs, undisturbed, in more rounds; before any other."""
    return run(root, "alone", *HEALTHY, iterations=16)


@pytest.fixture(scope="module")
def matrix(root: Path, alone: Done) -> Iterator[Done]:
    done = run(root, "matrix", "ch01", "ch02")
    yield done
    print(done.output)


def run(root: Path, name: str, *targets: str, iterations: int = 6) -> Done:
    temporary, artifacts = root.parent / f"{name}-temp", root.parent / f"{name}-artifacts"
    temporary.mkdir()
    marker = f"FAULT_MATRIX={root.parent}/{name}"
    options = ["--iterations", str(iterations), "--timeout-multiplier", TIMEOUT_MULTIPLIER, "--seed", "0"]
    done = subprocess.run(
        [sys.executable, "-m", "tools.cli.benchmark_cli", "run", *targets, "--root", str(root), *options]
        + ["--artifacts-dir", str(artifacts), "--junit", str(root.parent / f"{name}.xml")],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(temporary), "FAULT_MATRIX": marker.partition("=")[2]},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    [folder] = artifacts.glob("*/")
    summary = Summary.model_validate_json((folder / "summary.json").read_text())
    kept = ("torchinductor_", LOCKS)  # torch's cache of compiled code, and the harness's lock files, which are reused
    left = [path.name for path in temporary.iterdir() if not path.name.startswith(kept)]
    left += [path.name for path in temporary.glob(f"{LOCKS}/*") if not free(path)]
    return Done(done.returncode, done.stdout + done.stderr, summary, folder, marked(marker), left)


def free(lock: Path) -> bool:
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def marked(marker: str) -> list[str]:
    """The living processes that were started with this variable in their environment, or forked from one that was."""
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if marker.encode() in environ.read_bytes().split(b"\0"):
                found.append((environ.parent / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue  # it ended meanwhile
    return found


def test_every_pair_is_one_row(matrix: Done) -> None:
    rows = Counter(pair.name for pair in matrix.summary.pairs)
    expected = {*FAILED, *HARMLESS, "unmet_need", "healthy", "healthy_last"}
    assert rows == Counter(expected), matrix.output
    files = {path.stem.removeprefix("baseline_") for path in MATRIX.glob("ch0[12]/baseline_*.py")}
    assert files == expected


@pytest.mark.parametrize("name", FAILED)
def test_a_fault_fails_its_row_with_the_reason_and_the_place(matrix: Done, name: str) -> None:
    result, (reason, line) = matrix.result(f"ch01:{name}"), FAILED[name]
    assert result.status == "failed" or result.verdict == "invalid"
    assert re.search(reason, result.reason or ""), result.reason
    assert "\n" not in (result.reason or "")
    row = next(row for row in result.variants if row.label == "optimized")
    assert row.status == "failed"
    assert row.speedup is None
    if line is not None:
        place = re.search(r"(\w+\.py):(\d+)", result.reason or "")
        assert place, result.reason
        found = (MATRIX / "ch01" / place[1]).read_text().splitlines()[int(place[2]) - 1]
        assert line in found or found.strip() in line.split("|"), result.reason
    assert HINTED.get(name, "") in (result.hint or "")
    assert (result.hint is None) == (name not in HINTED)


@pytest.mark.parametrize("name", sorted(HARMLESS))
def test_what_harms_nobody_is_measured(matrix: Done, name: str) -> None:
    result = matrix.result(f"ch01:{name}")
    assert result.status == "measured", result.reason
    assert {row.status for row in result.variants} == {"measured"}


def test_a_declared_need_that_is_not_met_is_no_failure(matrix: Done) -> None:
    result = matrix.result("ch01:unmet_need")
    assert (result.status, result.reason) == ("unsupported", "needs the module no_such_module")


def test_the_exit_code_says_that_there_were_failures(matrix: Done, alone: Done) -> None:
    assert matrix.code == 1, matrix.output
    assert alone.code == (1 if any(disturbed(pair) for pair in alone.summary.pairs) else 0), alone.output
    assert "Traceback" not in matrix.output
    assert matrix.summary.complete


@pytest.mark.parametrize("key", HEALTHY)
def test_the_healthy_are_not_disturbed(matrix: Done, alone: Done, key: str) -> None:
    ours, undisturbed = (done.speedup(key) for done in (matrix, alone))
    assert ours.low / NOISE <= undisturbed.ratio <= ours.high * NOISE, (ours, undisturbed)
    result = matrix.result(key)
    assert (result.status, [row.status for row in result.variants]) == ("measured", ["measured"] * 2)
    assert result.verdict in ("faster", "inconclusive") or disturbed(result)  # three rounds may not tell


def test_nothing_is_left(matrix: Done) -> None:
    assert matrix.processes == []
    assert matrix.temporary == []


def test_logs_stay_small_and_files_are_the_parents(matrix: Done) -> None:
    log = matrix.folder / "ch01_loud_stdout" / "logs" / "worker0.log"
    assert LOG_BYTES < log.stat().st_size < LOG_BYTES + 100
    assert b"bytes left out" in log.read_bytes()
    for pair in matrix.summary.pairs:
        file = matrix.folder / f"{pair.chapter}_{pair.name}" / "results" / "benchmark_test_results.json"
        written = PairResult.model_validate_json(file.read_text())
        assert written.model_copy(update={"blocks": []}) == pair
    cases = xml.etree.ElementTree.parse(matrix.folder.parents[1] / "matrix.xml").getroot().iter("testcase")
    assert len(list(cases)) >= len(matrix.summary.pairs)
