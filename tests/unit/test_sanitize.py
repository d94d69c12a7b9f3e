"""scripts/sanitize.sh with a stand-in for compute-sanitizer that records its arguments and replays a report."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fault_suite import with_callers
from small_tree import Tree, alive, cli, doing, until
from synthetic_run import ROOT, host, program, written

import tools.testing.sanitize as sanitize
from common.python.base.machine import Gpu
from common.python.corpus.discovery import find_pairs
from common.python.cuda import Library
from common.python.profile.nsight import step_command
from tools.testing.sanitize import verdict, watch

Run = Callable[..., tuple[int, list[str]]]
HERE = host(Gpu("NVIDIA H200", "GPU-1", 90, 140.0))
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
START = "========= COMPUTE-SANITIZER\n"
CLEAN = START + "========= ERROR SUMMARY: 0 errors\n"
NO_RACE = START + "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"
# As the manual of compute-sanitizer shows them, but for the names.
WRITE = START + (
    "========= Invalid __global__ write of size 4 bytes\n"
    "=========     at twice(const float *, float *, long)+0x160 in optimized_x.cu:8\n"
    "=========     by thread (253,0,0) in block (3,0,0)\n"
    "=========     Address 0x7f6510c00ff4 is out of bounds\n"
    "========= \n"
    "========= ERROR SUMMARY: 1 error\n"
)
RACE = START + (
    "========= Error: Race reported between Write access at reverse(float *)+0x90 in optimized_x.cu:9\n"
    "=========     and Read access at reverse(float *)+0x100 in optimized_x.cu:10 [508 hazards]\n"
    "=========\n"
    "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)\n"
)
WARNED = RACE.replace("Error:", "WARNING:").replace("(1 error, 0 warnings)", "(0 errors, 1 warning)")
READ = START + (
    "========= Uninitialized __global__ memory read of size 4 bytes\n"
    "=========     at twice(const float *, float *, long)+0x70 in optimized_x.cu:8\n"
    "========= ERROR SUMMARY: 1021 errors\n"
)
BARRIER = START + (
    "========= Barrier error detected. Divergent thread(s) in warp\n"
    "=========     at k(int *, int *)+0xf0 in divergence.cu:79\n"
    "========= ERROR SUMMARY: 1 error\n"
)
INTERNAL = START + (
    "========= Internal Sanitizer Error: The Sanitizer encountered an error while launching k\n"
    "========= ERROR SUMMARY: 0 errors\n"
)
UNSUPPORTED = START + (
    "========= Warning: CUDA Dynamic Parallelism is not supported by the selected tool\n"
    "========= \n"
    "========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)\n"
)
STAND_IN = """#!/bin/bash
cd "$(dirname "$0")"
[[ $1 != --version ]] || { echo "NVIDIA (R) Compute Sanitizer"; echo "Version 2025.3.1"; exit; }
printf '%s\\n' "$PYTORCH_NO_CUDA_MEMORY_CACHING" "$@" end >recorded.$$
cat recorded.$$ >>recorded  # at once, for tools run side by side
while [[ $1 != --log-file ]]; do [[ $1 != --tool ]] || tool=$2; shift; done
[[ ! -e $tool.report ]] || cp $tool.report "$2"
echo "it printed this"
[[ ! -e $tool.then ]] || . ./$tool.then
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a compute-sanitizer on the PATH whose reports are clean, on a machine with an H200."""
    folder = program(tmp_path / "bin" / "compute-sanitizer", STAND_IN).parent
    for tool in TOOLS:
        (folder / f"{tool}.report").write_text(NO_RACE if tool == "racecheck" else CLEAN)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr(sanitize, "machine", lambda: HERE)
    monkeypatch.setattr(sanitize, "compile_source", lambda source, arch: Library(source, "", False))
    return folder


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_callers(ROOT / "tests" / "faults" / "sanitizer", tmp_path_factory.mktemp("faults") / "root")


@pytest.fixture
def run(faults: Path, stand_in: Path, tmp_path: Path) -> Run:
    def call(*words: str, root: Path = faults) -> tuple[int, list[str]]:
        done = cli(*words, "--root", root, "--logs", tmp_path / "logs", tool=sanitize.sanitize)
        return done.returncode, (done.stdout + done.stderr).splitlines()

    return call


def pair(root: Path, name: str, kinds: tuple[str, ...], workload: str = "", requires: str = "needs(sm=80)") -> None:
    """A pair of chapter 6 whose variants of these labels are CUDA; its baseline is not."""
    files = {f"baseline_{name}.py": f'"""It doubles all that it gets."""\nworkload = Workload({workload})\n'}
    for kind in kinds:
        stem = f"optimized_{name}" + (f"__{kind}" if kind != "optimized" else "")
        text = f'"""It doubles in CUDA."""\nfrom common.python.cuda import load_cuda\nrequires = {requires}\n'
        files |= {f"{stem}.py": text, f"{stem}.cu": f"// It doubles.\n__global__ void twice_{kind}() {{}}\n"}
    written(root / "ch06", files)


@pytest.mark.parametrize(
    ("report", "code", "found"),
    [
        (CLEAN, 0, None),
        (NO_RACE, 0, None),
        (WRITE, 1, "Invalid __global__ write of size 4 bytes at twice(const float *, float *, long)+0x160 in "),
        (RACE, 9, "Error: Race reported between Write access at reverse(float *)+0x90 in optimized_x.cu:9 and Read "),
        (WARNED, 0, "WARNING: Race reported between Write access at reverse(float *)+0x90 in optimized_x.cu:9 and "),
        (READ, 9, "Uninitialized __global__ memory read of size 4 bytes at twice(const float *, float *, long)+0x70 "),
        (BARRIER, 9, "Barrier error detected. Divergent thread(s) in warp at k(int *, int *)+0xf0 in divergence.cu:79"),
        (READ, 0, "Uninitialized __global__ memory read"),
        (CLEAN, 1, "failed, exit code 1: the last line"),
        (INTERNAL, 0, "Internal Sanitizer Error"),
        (UNSUPPORTED + RACE, 9, "Error: Race reported between"),
        (START, 0, "ended without a summary, exit code 0: the last line"),
        ("", -11, "ended without a summary, exit code -11: the last line"),
    ],
)
def test_what_a_report_says(report: str, code: int, found: str | None) -> None:
    said = verdict(report, code, "the first line\nthe last line\n")
    assert said == found if found is None else (said or "").startswith(found), said


def test_clean_pairs_end_with_0_and_every_allocation_stands_alone(run: Run, stand_in: Path, tmp_path: Path) -> None:
    code, lines = run("ch06:uninitialised_read")
    assert code == 0
    assert lines == [*(f"{tool:10} ch06:uninitialised_read: clean" for tool in TOOLS), "4 clean, 0 with errors"]
    calls = (stand_in / "recorded").read_text().split("end\n")[:-1]
    assert sorted(call.splitlines()[:3] for call in calls) == sorted(["1", "--tool", tool] for tool in TOOLS)
    assert (tmp_path / "logs" / "ch06_uninitialised_read.memcheck.log").read_text() == CLEAN
    assert (tmp_path / "logs" / "ch06_uninitialised_read.memcheck.out").read_text() == "it printed this\n"


def test_an_error_names_pair_tool_first_error_and_log(run: Run, stand_in: Path, tmp_path: Path) -> None:
    (stand_in / "racecheck.report").write_text(RACE)
    (stand_in / "racecheck.then").write_text("exit 9")
    code, lines = run("ch06:shared_memory_race")
    assert code == 1
    assert [line for line in lines if line.endswith(": clean")] == [lines[0], lines[2], lines[3]]
    assert lines[1].startswith("racecheck  ch06:shared_memory_race: Error: Race reported between Write access at")
    assert lines[1].endswith(f"({tmp_path}/logs/ch06_shared_memory_race.racecheck.log)")
    assert lines[4] == "3 clean, 1 with errors"


def test_what_a_tool_cannot_watch_is_skipped_with_its_words(run: Run, stand_in: Path) -> None:
    (stand_in / "racecheck.report").write_text(UNSUPPORTED)
    code, lines = run("ch06:shared_memory_race", "--tool", "racecheck", "--tool", "memcheck")
    says = "Warning: CUDA Dynamic Parallelism is not supported by the selected tool"
    assert (code, lines[0]) == (0, f"skipped    ch06:shared_memory_race: racecheck says: {says}")
    assert lines[-1] == "1 clean, 0 with errors"


def test_a_run_that_hangs_is_an_error(tmp_path: Path) -> None:
    """What it started ends with it, as test_nsight shows."""
    assert watch(["sleep", "60"], tmp_path / "log", "", limit_s=0.1) == "did not end within 0.1 s"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_tool_ends_with_this_program_and_so_does_what_the_tool_has_started(number: int, tmp_path: Path) -> None:
    """Seen on a GPU: the steps of a tool that was left over took turns with pairs that were timed."""
    hidden = tmp_path / "hidden"
    tool = program(tmp_path / "tool", f"#!/bin/bash\nsetsid sleep 600 & echo $! >{hidden}; sleep 600\n")
    words = f"end_with_all(); run_to_end(['{tool}'], Path('{tmp_path}/out'), 600, {{}})"
    code = f"from tools.testing.sanitize import Path, end_with_all, run_to_end; {words}"
    ended = subprocess.Popen([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(ROOT)})
    until(lambda: hidden.exists() and hidden.read_text())
    ended.send_signal(number)
    assert ended.wait(10) == 128 + number
    assert not alive(int(hidden.read_text()))


def test_what_captures_a_graph_is_watched_again_with_the_caching_allocator_and_that_is_said(
    run: Run, stand_in: Path
) -> None:
    refused = "echo 'CUDA error: operation failed due to a previous error during capture'; exit 1"
    (stand_in / "memcheck.then").write_text(f"[[ ! $PYTORCH_NO_CUDA_MEMORY_CACHING ]] || {{ {refused}; }}")
    (stand_in / "initcheck.then").write_text(refused)
    code, lines = run("ch06:uninitialised_read", "--tool", "memcheck", "--tool", "synccheck")
    assert (code, lines[-1]) == (0, "2 clean, 0 with errors")
    assert lines[0] == "memcheck   ch06:uninitialised_read: clean with the caching allocator"
    assert lines[1] == "synccheck  ch06:uninitialised_read: clean"
    calls = [call.splitlines() for call in (stand_in / "recorded").read_text().split("end\n")[:-1]]
    assert sorted(call[0] for call in calls if "memcheck" in call) == ["", "1"]
    code, lines = run("ch06:uninitialised_read", "--tool", "initcheck")
    assert (code, lines[-1]) == (1, "0 clean, 1 with errors")
    assert "previous error during capture with the caching allocator (" in lines[0]


def test_what_cannot_run_here_is_skipped_with_the_reason(run: Run, tmp_path: Path) -> None:
    pair(tmp_path, "blackwell", ("optimized",), requires="needs(targets=['sm_100a'])")
    pair(tmp_path, "broken", ("optimized",), requires="needs(sm=least)")
    pair(tmp_path, "ranks", ("optimized",), workload="gpus=2")
    code, lines = run(root=tmp_path)
    assert code == 4
    assert lines == [
        "skipped    ch06:blackwell optimized: is for sm_100a, found sm_90",
        "skipped    ch06:broken optimized: ch06/optimized_broken.py:3: `requires = needs(sm=least)` must be "
        "`requires = needs(...)`, once, with literal keyword arguments",
        "skipped    ch06:ranks optimized: its ranks are processes of their own",
        "0 clean, 0 with errors",
    ]


TRITON = '''"""It doubles in Triton."""
import triton
from ch06.helpers import helper as helper
from common.python.requirements import needs
requires = needs(sm=80)

@triton.autotune([], key=[])
@triton.jit(do_not_specialize=["n"])
def twice_in_triton(x, n):
    pass

def prepare(a):
    return lambda: a
'''


def test_kernels_that_a_helper_has_or_loads_are_watched_by_name(run: Run, stand_in: Path, tmp_path: Path) -> None:
    pair(tmp_path, "mixed", ("optimized", "helped"))
    (tmp_path / "ch06" / "optimized_mixed__helped.py").write_text('"""Its helper loads the .cu file beside it."""\n')
    (tmp_path / "ch06" / "optimized_mixed__triton.py").write_text(TRITON)
    (tmp_path / "ch06" / "helpers.py").write_text("import triton\n@triton.jit\ndef helper(x):\n    pass\n")
    code, lines = run("--tool", "racecheck", root=tmp_path)
    assert (code, lines[0]) == (0, "racecheck  ch06:mixed: clean")
    recorded = (stand_in / "recorded").read_text().splitlines()
    names = ("twice_optimized", "twice_helped", "twice_in_triton", "helper")
    assert {word for word in recorded if word.startswith("kns=")} == {f"kns={name}" for name in names}
    assert [*json.loads(recorded[-2])["modules"]] == [f"optimized_mixed{rung}" for rung in ("", "__helped", "__triton")]


def test_a_librarys_kernels_are_watched_only_by_tools_that_watch_all(run: Run, tmp_path: Path) -> None:
    pair(tmp_path, "scan", ("optimized",))
    (tmp_path / "ch06" / "optimized_scan.cu").write_text("// It scans by CUB.\n")
    code, lines = run("--tool", "racecheck", "--tool", "memcheck", root=tmp_path)
    skipped = "skipped    ch06:scan optimized: racecheck watches our kernels, and it has none"
    assert (code, lines[:2]) == (0, [skipped, "memcheck   ch06:scan optimized: clean"])


@pytest.mark.parametrize(
    ("words", "right"),
    [
        (["ch99"], "chapters are ch01 to ch20"),
        (["ch06:zzzzzz"], "there are ch06:out_of_bounds_write"),
        (["--tool", "leakcheck"], "'leakcheck' is not one of"),
        (["--fast"], "No such option: --fast"),
    ],
)
def test_a_wrong_word_is_one_line_and_exit_code_2(words: list[str], right: str, run: Run) -> None:
    code, (line,) = run(*words)
    assert (code, line.startswith("sanitize.sh: "), right in line) == (2, True, True), line


def test_without_a_gpu_or_the_tool_nothing_is_checked_and_that_is_said(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sanitize, "machine", host)
    assert run() == (4, ["sanitize.sh: no CUDA GPU here; nothing was checked"])
    monkeypatch.setattr(sanitize, "find_program", lambda name: None)
    absent = "compute-sanitizer is not found: install the CUDA toolkit's; nothing was checked"
    assert run() == (4, [f"sanitize.sh: {absent}"])


def test_one_step_prepares_and_steps_each_variant_once_and_reports_what_fails(tmp_path: Path) -> None:
    says = "import weakref; print('stepped', len(a), *[old() for old in kept]); kept.append(weakref.ref(a))"
    steps = {"optimized": doing(says) + "    kept = []", "bad": doing("raise ValueError('no such place')")}
    Tree(tmp_path).pair("ch06:x", **steps, broken="import nothing_of_this_name\n")
    Tree(tmp_path).pair("ch06:w", inputs="1 / 0")
    no_inputs, pair = find_pairs(tmp_path)
    names = [f"optimized_x{label}" for label in ("", "__bad", "__broken")]
    runs = [pair.only({*names[:1]})], [no_inputs, pair.only({*names})]
    calls = [step_command(pairs, "test", 60)[3:] for pairs in runs]
    program = f"import sys\nfrom common.python.workers.one_step import main\nfor words in {calls!r}:\n"
    program += "    sys.argv[1:] = words\n    print('exit', main())\n"
    command, env = [sys.executable, "-c", program], os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=ROOT, env=env)
    alone, three = done.stdout.partition("exit 0\n")[::2]
    assert alone.count("stepped 67\n") == 1
    assert "optimized_w: VariantError: ZeroDivisionError" in three
    assert three.count("stepped 67 None\n") == 1  # after the one that failed, and without the inputs of the first
    assert "optimized_x__bad: ValueError at optimized_x__bad.py:7: no such place" in three
    assert "optimized_x__broken: ModuleNotFoundError" in three
    assert three.endswith("exit 1\n")
