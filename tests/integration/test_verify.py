"""`verify` on small trees: each planted fault is one line and one count, the honest tree passes, and nothing passes
by doing nothing."""

import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import pytest
from small_tree import HONEST, ROOT, WRONG, Tree, cli
from test_session import TRITON

from common.python.base.machine import Gpu, Machine, machine
from common.python.base.results import PairResult
from common.python.base.toolkit import find_nvcc
from common.python.corpus.discovery import find_pairs
from common.python.regress import expectations
from common.python.report.live_view import LiveView
from common.python.verify import sweep
from common.python.verify.static_checks import Finding
from common.python.verify.sweep import Place, execute_pair

BASELINE, OPTIMIZED = "ch01/baseline_doubles.py", "ch01/optimized_doubles.py"
needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="no nvcc here")


class Done(NamedTuple):
    code: int
    problems: list[str]  # the lines above the table
    counts: dict[str, tuple[int, ...]]  # passed, warnings, problems, not done, by check; those with a count
    not_done: list[str]
    error: str


def verify(tree: Tree, *words: str) -> Done:
    done = cli("verify", "--root", tree.root, *words)
    text = done.stdout.splitlines()
    head = next((index for index, line in enumerate(text) if line.startswith("check  ")), len(text))
    rows = [re.fullmatch(r"(\D+?) +(\d+) +(\d+) +(\d+) +(\d+)", line) for line in text[head + 1 :]]
    counts = {row[1]: tuple(map(int, row.groups()[1:])) for row in rows if row and set(row.groups()[1:]) != {"0"}}
    not_done = [line.removeprefix("not done: ") for line in text if line.startswith("not done: ")]
    return Done(done.returncode, text[:head], counts, not_done, done.stderr)


@pytest.fixture
def honest(tree: Tree) -> Tree:
    """A pair in PyTorch with its expectations and the README that shows them."""
    tree.pair("ch01:doubles")
    readme = "# Doubling\n\n<!-- results:begin -->\n<!-- results:end -->\n"
    result = PairResult(chapter="ch01", name="doubles", status="measured", verdict="same", device="NVIDIA H200")
    pair = expectations.Expectation(measured="", commit=None, dirty=None, versions={}, driver=None, result=result)
    kept = expectations.Expectations(gpu="NVIDIA H200", pairs={"doubles": pair})
    (tree.root / "ch01" / "expectations_h200.json").write_text(kept.model_dump_json(indent=1) + "\n")
    shown = expectations.replace_between_markers(readme, expectations.table(kept, tree.root / "ch01"))
    (tree.root / "ch01" / "README.md").write_text(shown)
    return tree


PASSES = {
    "sources": (2, 0, 0, 0),
    "expectations": (1, 0, 0, 0),
    "README tables": (1, 0, 0, 0),
    "imports": (2, 0, 0, 0),
    "proofs": (2, 0, 0, 0),
    "costs": (1, 0, 0, 0),
}


def change(tree: Tree, file: str, old: str, new: str) -> None:
    path = tree.root / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_an_honest_tree_passes(honest: Tree) -> None:
    assert verify(honest) == Done(0, [], PASSES, [], "")


def test_the_sources_expectations_and_tables_of_this_project_are_sound() -> None:
    done = verify(Tree(ROOT), "--no-execute", "--no-build")
    assert (done.code, done.problems) == (0, [])


def test_what_was_not_asked_for_is_counted_and_not_done(honest: Tree) -> None:
    done = verify(honest, "--no-execute", "--no-build")
    counts = {"imports": (0, 0, 0, 2), "proofs": (0, 0, 0, 2), "costs": (0, 0, 0, 1)}
    not_done = [f"{count} {name}: --no-execute" for name, (_, _, _, count) in counts.items()]
    assert done == Done(0, [], PASSES | counts, not_done, "")


def test_an_empty_tree_is_nothing_to_check_and_no_success(tree: Tree) -> None:
    assert verify(tree) == Done(4, [], {}, [], f"benchmark_cli: nothing to check: {tree.root} has no pairs\n")


BASE, OPT = "baseline_NAME.py", "optimized_NAME.py"
SHARED = "from ch01.baseline_NAME import workload as workload"
SHARES = f"must share its baseline's workload, and nothing else of that name: `{SHARED}`"
OTHERS = SHARED.replace("import workload", "import prepare")
STATES = "must state the problem as `workload = Workload(...)`, once"
COPIED = "from dataclasses import replace\nfrom ch01 import baseline_NAME\n" + (
    "workload = replace(baseline_NAME.workload, tolerance=0.9)"
)
EXCESS = "its cost has read=17,956, above the 268 bytes of its inputs, at test size"
RUNG, TORCH, STATED, LAST = '"""Doubles every element, optimized."""', "import torch\n", "workload = Workload(", "1e-6,"
PREPARE, ANSWER, UNPROVEN = "def prepare", "return a * 2", "wrong at test size, before timing: "
# Of a pair called NAME: the file, line and message of its fault. Then an argument of `Tree.pair` and its value, or what
# stands in that file and what is planted in its place.
FAULTS = {
    "syntax": (OPT, 3, "invalid syntax", TORCH, TORCH + "x = = 2\n"),
    "outside": (OPT, 3, "'return' outside function", TORCH, TORCH + "return\n"),
    "unsaid": (OPT, 1, "the first line must be a docstring that says the mechanism", RUNG, "x = 1"),
    "unprepared": (OPT, 1, "has no `prepare`: a function of the inputs that returns a step", PREPARE, "def prepared"),
    "copied": (OPT, 5, SHARES, SHARED, COPIED),
    "neighbours": (OPT, 3, SHARES, SHARED, SHARED.replace("NAME", "other")),
    "prepares": (OPT, 3, SHARES, SHARED, OTHERS),
    "two_names": (OPT, 3, SHARES, SHARED, OTHERS + ", workload as problem"),
    "twice": (OPT, 3, SHARES, SHARED, "from ch01.baseline_NAME import workload; workload = workload"),
    "module": (OPT, 1, SHARES, SHARED, "import ch01.baseline_NAME"),
    "dictionary": (BASE, 5, STATES, STATED, "workload = dict("),
    "two_targets": (BASE, 5, STATES, STATED, "made = workload = Workload("),
    "gpus": (BASE, 11, "gpus= must be a literal int", LAST, f"{LAST}\n    gpus=int(1),"),
    "isolated": (BASE, 11, "isolated= must be a literal bool", LAST, f"{LAST}\n    isolated=0,"),
    "rungs": (BASE, 5, "rungs= must name each rung once: there is none", LAST, f'{LAST}\n    rungs="wide",'),
    "wrong": (OPT, 5, f"{UNPROVEN}relative error 5.00e-03, the tolerance is 1.0e-06", ANSWER, "return a * 2.01"),
    "imports": (OPT, 5, "ModuleNotFoundError: No module named 'no_such'", PREPARE, "import no_such\n" + PREPARE),
    "exits": (OPT, 5, "the worker exited with code 3 during import", PREPARE, "raise SystemExit(3)\n" + PREPARE),
    "raises": (OPT, 7, "ValueError: [31mred and", ANSWER, r"raise ValueError('\x1b[31mred\tand\nmore')"),
    "no_step": (OPT, 5, "prepare returned NoneType, not a step: end it with `return step`", "return step", "pass"),
    "killed": (
        *(OPT, 7, "the worker was killed by SIGSEGV during its first step"),
        *(ANSWER, "__import__('os').kill(__import__('os').getpid(), 11)"),
    ),
    "loose": (
        *(BASE, 10, "the tolerance would accept: one wrong element, last tile dropped, 5% scale"),
        *("tolerance", "0.8"),
    ),
    "reference": (
        *(BASE, 7, "IndexError: index 9999 is out of bounds for dimension 0 with size 67"),
        *("reference", "lambda a: a[9999]"),
    ),
    "mutates": (
        *(BASE, 5, "frozen, mutates or as_drawn names ['c'], the inputs are ['a']"),
        *("fields", "mutates=['c'],"),
    ),
    "inputs": (
        *(BASE, 14, "TypeError: prepare() got an unexpected keyword argument 'b'"),
        *("inputs", '{"b": draw.normal(n)}'),
    ),
    "nan": (BASE, 14, f"{UNPROVEN}the reference itself holds NaN", "reference", "lambda a: a * float('nan')"),
    "cost": (
        *(BASE, 8, "its cost fails at {'m': 8}: TypeError: cost() got an unexpected keyword argument 'm'"),
        *("sizes", '{"bench": {"m": 8}, "test": {"m": 7}}'),
    ),
    "too_much": (
        *(BASE, 8, f"{EXCESS}: state passes= where steps in turn need them again"),
        *("host_bytes=8 * n", "read=4 * n * n, write=4 * n"),
    ),
}


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Done:
    """What is said of a tree in which each pair has a fault of its own."""
    tree = Tree(tmp_path_factory.mktemp("planted"))
    for name, (file, _, _, what, text) in FAULTS.items():
        argument = what in ("tolerance", "reference", "fields", "inputs", "sizes")
        tree.pair(f"ch01:{name}", **{"optimized": HONEST, **({what: text} if argument else {})})
        if not argument:
            change(tree, f"ch01/{file}".replace("NAME", name), what.replace("NAME", name), text.replace("NAME", name))
    return verify(tree, "--no-build")


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_one_line_where_it_is_to_be_looked_for(name: str, planted: Done) -> None:
    told = [problem for problem in planted.problems if re.match(rf"ch01/\w+_{name}\.py:", problem)]
    file, line, message, *_ = FAULTS[name]
    assert told == [f"ch01/{file}:{line}: {message}".replace("NAME", name)]


def test_what_a_fault_kept_from_running_is_counted_as_not_done(planted: Done) -> None:
    counts = {"sources": (41, 0, 15, 0), "imports": (31, 0, 3, 22), "proofs": (17, 0, 9, 33), "costs": (16, 0, 1, 6)}
    first = "another problem of its pair came first"
    assert (planted.code, planted.counts) == (1, counts)
    assert planted.not_done == [
        *("15 imports: its source has a problem", "5 imports: its baseline's source has a problem"),
        *(f"2 imports: {first}", "15 proofs: its source has a problem", f"13 proofs: {first}"),
        *("5 proofs: its baseline's source has a problem", f"5 costs: {first}"),
        "1 costs: TypeError: reference() got an unexpected keyword argument 'b'",
    ]


def test_a_variant_without_a_baseline_and_a_baseline_alone(tree: Tree) -> None:
    tree.pair("ch01:doubles")
    (tree.root / BASELINE).unlink()
    tree.pair("ch02:doubles")
    (tree.root / "ch02" / "optimized_doubles.py").unlink()
    done = verify(tree)
    assert done.problems == [
        f"{OPTIMIZED}:1: has no baseline: write baseline_doubles.py",
        "ch02/baseline_doubles.py:1: has nothing to be compared with: write optimized_doubles.py",
    ]
    assert (done.code, done.counts["sources"], done.counts["proofs"]) == (1, (0, 0, 2, 0), (0, 0, 0, 2))


def test_a_file_that_cannot_be_read_is_a_problem_and_no_traceback(honest: Tree) -> None:
    (honest.root / OPTIMIZED).unlink()
    (honest.root / OPTIMIZED).symlink_to("nowhere")
    done = verify(honest)
    assert (done.code, len(done.problems)) == (1, 1)
    assert re.match(rf"{OPTIMIZED}:1: .*No such file or directory", done.problems[0])


def test_on_a_gpu_variants_are_proven_at_bench_size_too(tree: Tree) -> None:
    """The device is this CPU: what is tested is that the larger size is proven, and counts."""
    large = HONEST.replace("a * 2", "a * (2 if a.numel() < 1000 else 3)")
    tree.pair("ch01:rung", optimized=large, padded=HONEST)
    tree.pair("ch01:whole", baseline=large, optimized=HONEST)
    assert proven(tree, "ch01:rung", "cpu") == (3, [], 0)
    assert proven(tree, "ch01:rung", "NVIDIA H200") == (2, ["bench"], 0)
    assert proven(tree, "ch01:whole", "NVIDIA H200") == (0, ["bench"], 1)


def test_ranks_that_outnumber_the_gpus_are_proven_on_cpus(tree: Tree) -> None:
    body = """
        import torch.distributed as dist

        def prepare(a):
            def step():
                out = a.clone()
                dist.all_reduce(out)
                return out

            return step
    """
    tree.pair("ch01:sum", reference="lambda rank, a: sum(a)", fields="gpus=2", baseline=body, optimized=body)
    one = replace(machine(), gpus=[Gpu("NVIDIA H200", "GPU-1", 90, 139.8)])
    assert proven(tree, "ch01:sum", "NVIDIA H200", one) == (2, [], 0)


def test_each_size_may_have_its_own_dtype(tree: Tree) -> None:
    sizes = '{"bench": {"n": 8192, "dtype": "float32"}, "test": {"n": 67, "dtype": "float64"}}'
    tree.pair("ch01:narrow", sizes=sizes, inputs='{"a": draw.normal(n, dtype=getattr(torch, dtype))}', optimized=HONEST)
    source = tree.root / "ch01" / "baseline_narrow.py"
    source.write_text(source.read_text().replace(" n: ", " n, dtype: "))
    assert proven(tree, "ch01:narrow", "NVIDIA H200") == (2, [], 0)


def proven(tree: Tree, key: str, device: str, host: Machine | None = None) -> tuple[int, list[str], int]:
    """How many variants are proven, at which size one is wrong, and how many are not done."""
    [pair] = [pair for pair in find_pairs(tree.root) if pair.key == key]
    sound = {variant.path for variant in pair.variants}
    place = Place(tree.root / device, host or machine(), device, {key: pair}, sound)
    proofs = [one for one in execute_pair(pair, place) if one.check == "proofs"]
    outcomes = Counter(one.outcome for one in proofs)
    wrong = [size for one in proofs for size in re.findall(r"wrong at (\w+) size", one.message)]
    return outcomes["passed"], wrong, outcomes["not done"]


@pytest.mark.parametrize(("memory_gib", "cores", "jobs"), [(139.8, 16, 4), (139.8, 4, 2), (23.6, 16, 1), (39.4, 1, 1)])
def test_pairs_share_a_gpu_as_far_as_its_memory_goes(memory_gib: float, cores: int, jobs: int) -> None:
    host = replace(machine(), cores=cores, memory_gib=256.0, gpus=(Gpu("NVIDIA H200", "GPU-1", 90, memory_gib),))
    assert Place(ROOT, host, "NVIDIA H200", {}, set()).jobs == jobs
    assert Place(ROOT, host, "cpu", {}, set()).jobs == cores


@pytest.mark.parametrize(("times", "told"), [(1, []), (2, ["x.py:1: CUDA out of memory"])])
def test_a_pair_that_ran_out_of_memory_beside_others_is_tried_again_alone(
    honest: Tree, monkeypatch: pytest.MonkeyPatch, times: int, told: list[str]
) -> None:
    honest.pair("ch02:other")
    tries = Counter[str]()

    def execute(pair, place, show) -> list[Finding]:  # type: ignore[no-untyped-def]
        tries[pair.key] += 1
        if pair.key == "ch01:doubles" and tries[pair.key] <= times:
            return [Finding("proofs", "problem", "CUDA out of memory", "x.py")]
        return [Finding("proofs", "passed")] * 2

    monkeypatch.setattr(sweep, "execute_pair", execute)
    host = replace(machine(), cores=16, gpus=(Gpu("NVIDIA H200", "GPU-1", 90, 139.8),))
    pairs = find_pairs(honest.root)
    place = Place(honest.root, host, "NVIDIA H200", {pair.key: pair for pair in pairs}, set())
    found = list(sweep.execute_pairs(pairs, place, LiveView(), again=False))
    assert tries == {"ch01:doubles": 2, "ch02:other": 1}
    assert [str(one) for one in found if one.outcome == "problem"] == told
    assert [one.outcome for one in found].count("passed") == 4 - 2 * len(told)


def test_a_problem_is_told_while_other_pairs_are_still_at_work(honest: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    honest.pair("ch02:other")
    change(honest, OPTIMIZED, "* 2", "* 3")
    heard = threading.Event()
    real = sweep.execute_pair

    def execute(pair, place, show):  # type: ignore[no-untyped-def]
        if pair.key == "ch02:other":
            assert heard.wait(60), "no problem was printed before the last pair was done"
        return real(pair, place, show)

    monkeypatch.setattr(sweep, "execute_pair", execute)
    view = LiveView()
    monkeypatch.setattr(view, "tell", lambda problem: heard.set())
    report = sweep.verify(honest.root, ["all"], build=False, view=view)
    assert [one.file for one in report.findings if one.outcome == "problem"] == [OPTIMIZED]


def test_the_interpreter_proves_triton_and_without_triton_it_is_not_done(
    honest: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest.file("ch01", "optimized_doubles", TRITON.replace("baseline_triton", "baseline_doubles"))
    assert verify(honest, "--no-build").counts["proofs"] == (2, 0, 0, 0)
    monkeypatch.setitem(sys.modules, "triton", None)  # as the import system marks what cannot be imported
    done = verify(honest, "--no-build")
    assert (done.code, done.counts["imports"], done.counts["proofs"]) == (0, (1, 0, 0, 1), (1, 0, 0, 1))
    assert "1 proofs: needs the module triton" in done.not_done


def test_a_pair_that_cannot_run_here_is_imported_and_the_rest_is_not_done(honest: Tree) -> None:
    wants = "from common.python.requirements import needs\nrequires = needs(gpus=100)\nimport torch\n"
    change(honest, OPTIMIZED, "import torch\n", wants)
    done = verify(honest)
    assert (done.code, done.counts["imports"], done.counts["proofs"]) == (0, (2, 0, 0, 0), (1, 0, 0, 1))
    assert done.not_done == [f"1 proofs: needs 100 GPUs, found {len(machine().gpus)}"]


def test_one_file_alone_is_checked_against_its_baseline_and_only_it_is_told_of(honest: Tree) -> None:
    honest.pair("ch02:other", optimized=WRONG)
    assert verify(honest, OPTIMIZED).counts == {name: (1, *counts[1:]) for name, counts in PASSES.items()}
    change(honest, BASELINE, "def prepare", "def prepared")
    done = verify(honest, "--targets", OPTIMIZED)
    assert (done.code, done.problems) == (0, [])
    assert done.not_done == [f"1 {name}: its baseline's source has a problem" for name in ("imports", "proofs")]


README, EXPECTED = "ch01/README.md", "ch01/expectations_h200.json"


@pytest.mark.parametrize(
    ("file", "spoil", "line", "message"),
    [
        (README, lambda text: text.replace(b"ch01:d", b"ch01:t"), 6, "the table is not what expectations_h200.json"),
        (README, lambda text: text.replace(b"<!-- results:end -->", b""), 1, "the text must hold <!-- results:begin"),
        (README, None, 1, "No such file or directory"),
        (EXPECTED, lambda text: b'{\n"gpu":', 2, "is damaged or foreign: EOF while parsing"),
        (EXPECTED, lambda text: text.replace(b'"gpu"', b'"card"'), 1, "is damaged or foreign: gpu: Field required"),
        (EXPECTED, lambda text: b"[]", 1, "is damaged or foreign: Input should be an object"),
        (EXPECTED, lambda text: b"\xff", 1, "is damaged or foreign: expected value"),
    ],
)
def test_a_stale_readme_and_damaged_expectations_are_one_line(
    honest: Tree, file: str, spoil: Callable[[bytes], bytes] | None, line: int, message: str
) -> None:
    path = honest.root / file
    if spoil:
        path.write_bytes(spoil(path.read_bytes()))
    else:
        path.unlink()
    done = verify(honest, "--no-execute", "--no-build")
    assert (done.code, len(done.problems)) == (1, 1)
    assert done.problems[0].startswith(f"{file}:{line}: {message}")
    if file == EXPECTED:
        assert (done.counts["expectations"], done.counts["README tables"]) == ((0, 0, 1, 0), (0, 0, 0, 1))
        assert "1 README tables: no readable expectations" in done.not_done
    else:
        assert done.counts["README tables"] == (0, 0, 1, 0)


CUDA = """
    from common.python.cuda import load_cuda

    def prepare(a):
        twice, out = load_cuda(__file__, "twice"), a.new_empty(a.shape)

        def step():
            twice(a, out, a.numel())
            return out

        return step
"""
KERNEL = """// Each thread doubles one element.
#include <cstdint>
#include <cuda_runtime.h>
__global__ void doubled(const float* a, float* out, int64_t n) {
    float held[64];
    for (int64_t i = 0; i < n; i++) held[i % 64] = a[i];
    out[0] = held[n % 64]
}
extern "C" int twice(const float* a, float* out, int64_t n, cudaStream_t stream) {
    doubled<<<1, 1, 0, stream>>>(a, out, n);
    return cudaGetLastError();
}
"""


@pytest.fixture
def cuda(honest: Tree, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """The baseline's kernel indexes a local array, the optimized one lacks a semicolon."""
    monkeypatch.setattr("common.python.cuda.build_folder", lambda root: honest.root)  # not the project's build/
    monkeypatch.setattr("common.python.verify.sweep.TARGETS", ("sm_90a", "sm_100a"))
    honest.pair("ch01:doubles", baseline=CUDA, optimized=CUDA)
    (honest.root / BASELINE).with_suffix(".cu").write_text(KERNEL.replace("% 64]\n", "% 64];\n"))
    (honest.root / OPTIMIZED).with_suffix(".cu").write_text(KERNEL)
    return honest


@needs_nvcc
def test_a_kernel_that_does_not_compile_is_one_line_and_local_memory_is_a_warning(cuda: Tree) -> None:
    done = verify(cuda, "--no-execute")
    broken = "ch01/optimized_doubles.cu:8: for sm_90a, sm_100a: optimized_doubles.cu does not compile for sm_90a: "
    warning = "ch01/baseline_doubles.cu:1: warning: {}: doubled has a stack frame of 256 bytes in local memory"
    said = f'{broken}ch01/optimized_doubles.cu(8): error: expected a ";"'
    assert done.problems == [warning.format("sm_90a"), warning.format("sm_100a"), said]
    assert (done.code, done.counts["compilation"]) == (1, (2, 2, 1, 0))
    (cuda.root / OPTIMIZED).with_suffix(".cu").unlink()
    (missing,) = verify(cuda, OPTIMIZED, "--no-execute").problems
    assert missing.endswith("optimized_doubles.py loads it, but there is no ch01/optimized_doubles.cu")


def test_without_nvcc_or_with_no_build_compilation_is_counted_as_not_done(
    cuda: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("common.python.build.compilation.find_nvcc", lambda: None)
    monkeypatch.delenv("NVCC", raising=False)
    for words, reason in (([], "needs nvcc"), (["--no-build"], "--no-build")):
        done = verify(cuda, "--no-execute", *words)
        assert (done.code, done.counts["compilation"]) == (0, (0, 0, 0, 4))
        assert done.not_done[-1] == f"4 compilation: {reason}"
    change(cuda, OPTIMIZED, "def prepare", "def prepared")
    done = verify(cuda, "--no-execute")
    assert done.not_done[-2:] == ["2 compilation: its source has a problem", "2 compilation: needs nvcc"]


def test_a_terminal_sees_what_is_done_and_ctrl_c_ends_it_at_once(tree: Tree) -> None:
    hangs = "\n    import time\n    time.sleep(60)" + HONEST
    tree.pair("ch01:doubles", optimized=hangs)
    command = [sys.executable, str(ROOT / "tools" / "cli" / "benchmark_cli.py"), "verify", "--root", str(tree.root)]
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, cwd=ROOT) as process:
        os.close(theirs)
        seen = b""
        while b"ch01:doubles" not in seen:  # OSError, should it end before
            seen += os.read(ours, 4096)
        time.sleep(0.5)  # the worker has begun by now
        started = time.monotonic()
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # how a terminal ends that nobody writes to
            while more := os.read(ours, 4096):
                seen += more
        assert process.wait(timeout=20) == 130
    os.close(ours)
    assert time.monotonic() - started < 10
    assert b"Traceback" not in seen
    assert b"check " not in seen
