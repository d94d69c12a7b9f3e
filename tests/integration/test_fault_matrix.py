"""Whatever a pair does ends as one row with its reason, and neither the healthy pairs nor the machine feel it.

One suite, as a user runs it, goes through every fault that a CPU can have, beside two healthy pairs: those of FAULTS,
written where it runs, and a large output of tests/faults/matrix. What hangs ends after 0.07 x 120 s, which is far
longer than any other pair there takes.
"""

import xml.etree.ElementTree
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from fault_suite import HEALTHY, LEFT, Done, Fault, check_codes, check_fault, check_undisturbed, copied, run

from common.python.base.results import PairResult
from common.python.workers.worker_status import LOG_BYTES

OPTIONS = ("--timeout-multiplier", "0.07")
STACK, LONGER, INSTALL = "its log ends with the stack", "--timeout-multiplier", "needs(modules=[...])"
HANGS = r"no answer within \d+ s"
ENDED, KEEP_ON = "the worker exited with code 0 during its first step", "must not end its process"
DAEMON = """
def daemon():
    '''Fork twice, the second time in a new session: init would inherit it.'''
    if child := os.fork():
        os.waitpid(child, 0)
        return
    os.setsid()
    if not os.fork():
        signal.pause()
    os._exit(0)
"""
SHOUT = """
@functools.cache
def shout():
    for _ in range(100):
        os.write(1, b"noise " * 166_667)
"""
LIMIT_MEMORY = """
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), resource.RLIM_INFINITY))  # this machine is safe
"""
LIMIT_FILES = "resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))"
RAISING = """
def raising(*drawn, **shape):
    raise ValueError("no {0}")
workload = replace(workload, {0}=raising)
"""
FLOAT64 = "torch.set_default_dtype(torch.float64)"
DTYPE_LEFT = LEFT.format("the default dtype", "float64")
FAULTS = {
    "binary_stderr": Fault(prepare="os.write(2, bytes(range(256)) * 16)"),
    "changed_late": Fault(DTYPE_LEFT, prepare="calls = iter([False] * 9)", step=f"if next(calls, True): {FLOAT64}"),
    "changed_on_import": Fault("importing it left the default dtype .* changed", module=FLOAT64),
    "daemon_left": Fault(module=DAEMON, prepare="daemon()\nsubprocess.Popen(['sleep', '600'], start_new_session=True)"),
    "daemon_of_the_dead": Fault(
        *("killed by SIGABRT", STACK),
        step="subprocess.Popen(['sleep', '600'], start_new_session=True)\nos.abort()",
        at="os.abort()",
    ),
    "deadlock": Fault(
        HANGS, LONGER, prepare="lock = threading.Lock()", step="lock.acquire()\nlock.acquire()", at="step"
    ),
    "descriptor_leak": Fault(
        *("Too many open files", "close in a step what it opens"),
        prepare=LIMIT_FILES,
        step="for _ in range(50):\n    os.open('/dev/null', os.O_RDONLY)",
        at="os.open(",
    ),
    "dtype_changed": Fault(DTYPE_LEFT, step=FLOAT64),
    "host_memory": Fault(
        "can't allocate memory: you tried to allocate 2147483648 bytes",
        "needs(memory_gib=, host_memory_gib=)",
        prepare=LIMIT_MEMORY,
        step="torch.ones(2 << 30, dtype=torch.uint8)",
        at="step",
    ),
    "import_error": Fault("ImportError .*no_such_name", module="from ch01.problem import no_such_name", at="module"),
    "inputs_raise": Fault("ValueError .*no inputs", baseline=RAISING.format("inputs"), at="raise ValueError"),
    "loud_stdout": Fault(module=SHOUT, prepare="shout()"),
    "missing_module": Fault(
        "ModuleNotFoundError .*no_such_module", INSTALL, module="import no_such_module", at="module"
    ),
    "nan": Fault(
        "NaN or infinity where the reference is finite",
        "filled with NaN before each proof",
        step="out = a * 2\nout[0] = float('nan')",
        answer="out",
    ),
    "os_exit": Fault(ENDED, KEEP_ON, step="os._exit(0)"),
    "prepare_raises": Fault("ValueError .*not prepared", prepare="raise ValueError('not prepared')", at="prepare"),
    "raises_late": Fault(
        "ValueError .*the eleventh call",
        prepare="calls = iter(range(10))",
        step="if next(calls, None) is None:\n    raise ValueError('the eleventh call')",
        at="raise ValueError",
    ),
    "reference_raises": Fault("ValueError .*no reference", baseline=RAISING.format("reference"), at="raise ValueError"),
    "rng_changed": Fault(step="torch.manual_seed(0)\nrandom.seed(0)"),
    "segfault": Fault("killed by SIGSEGV", STACK, step="ctypes.string_at(0)", at="step"),
    "source_deleted": Fault(  # it was proven, and is to be timed
        "ModuleNotFoundError.*optimized_source_deleted", INSTALL, step="Path(__file__).unlink(missing_ok=True)"
    ),
    "syntax_error": Fault("syntax", answer="a * 2)", at="answer"),
    "sys_exit": Fault(ENDED, KEEP_ON, step="sys.exit(0)", at="step"),
    "thread_left": Fault(prepare="threading.Thread(target=threading.Event().wait).start()"),
}
FAILED = [name for name, fault in FAULTS.items() if fault.reason]
# These harm nobody: their steps are right and are timed, and what they leave behind ends with their worker.
HARMLESS = [*(name for name, fault in FAULTS.items() if not fault.reason), "large_output"]
# Beyond the interval of three rounds, which is wide by itself: cores that others use too do not repeat a ratio.
NOISE = 1.25


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copied(tmp_path_factory.mktemp("matrix"), "ch01", FAULTS)


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
    assert rows == Counter([*FAILED, *HARMLESS, "healthy", "healthy_last"]), matrix.output


@pytest.mark.parametrize("name", FAILED)
def test_a_fault_fails_its_row_with_the_reason_and_the_place(matrix: Done, name: str) -> None:
    fault = FAULTS[name]
    check_fault(matrix, f"ch01:{name}", fault.reason, fault.line, fault.hint)


@pytest.mark.parametrize("name", HARMLESS)
def test_what_harms_nobody_is_measured(matrix: Done, name: str) -> None:
    result = matrix.result(f"ch01:{name}")
    assert result.status == "measured", result.reason
    assert {row.status for row in result.variants} == {"measured"}


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
