"""`build` with real compilers and no GPU: CUDA and Triton for four generations, what each kernel takes, what fails."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from small_tree import ROOT, Done, Tree, alive, assert_usage, cli, until

from common.python.base import toolkit
from common.python.base.toolkit import find_nvcc, nvcc_version
from common.python.build import compilation
from common.python.build.compilation import compile_pairs
from common.python.build.record import Build, Compiled
from common.python.corpus.discovery import find_pairs

pytestmark = pytest.mark.skipif(find_nvcc() is None, reason="no nvcc here")
WORKLOAD = '''"""Multiplies square matrices, one program for each tile of the product."""
import torch
from common.python.workload import Cost, Workload

workload = Workload(
    inputs=lambda draw, n: {"a": draw.normal(n, n, dtype=torch.bfloat16), "b": draw.normal(n, n, dtype=torch.bfloat16)},
    reference=lambda a, b: a @ b,
    cost=lambda n: Cost(flops=2 * n**3, dtype="bf16"),
    sizes={"bench": {"n": 65536}, "test": {"n": 67}},
    tolerance=1e-2,
)

def prepare(a, b):
    return lambda: a @ b
'''
OPENING = '''"""Multiplies square matrices, one program for each tile of the product."""
import torch
import triton
import triton.language as tl
from ch01.baseline_gemm import workload as workload

@triton.jit
def scale(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)
'''
GEMM = (
    OPENING
    + """
@triton.jit
def gemm(a, b, out, n, stride, TILE: tl.constexpr, DEPTH: tl.constexpr):
    row = tl.program_id(0) * TILE + tl.arange(0, TILE)[:, None]
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)[None, :]
    total = tl.zeros((TILE, TILE), tl.float32)
    for first in range(0, n, DEPTH):
        k = first + tl.arange(0, DEPTH)
        left = tl.load(a + row * stride + k[None, :], mask=(row < n) & (k < n)[None, :], other=0.0)
        right = tl.load(b + k[:, None] * stride + column, mask=(k < n)[:, None] & (column < n), other=0.0)
        total = tl.dot(left, right, total)
    tl.store(out + row * stride + column, total, mask=(row < n) & (column < n))

def prepare(a, b):
    out, n = torch.empty_like(a), a.shape[0]
    def step():
        grid = lambda chosen: (triton.cdiv(n, chosen["TILE"]), triton.cdiv(n, chosen["TILE"]))
        gemm[grid](a, b, out, n, a.stride(0), TILE=64, DEPTH=64, num_warps=4)
        scale[(triton.cdiv(out.numel(), 256),)](out, out, out.numel(), BLOCK=256)
        return out
    return step
"""
)
NEEDING = OPENING.replace(
    "\n@triton", "\nfrom common.python.requirements import needs\nrequires = needs(gpus=1)\n@triton"
)
STEP = """
def prepare(a, b):
    def step():
        %s
        return b
    return step
"""
ONCE = STEP % "scale[(1,)](a, b, 256, BLOCK=256)"
VARIANTS = {
    "tuned": GEMM.split("def prepare")[0]
    .replace(
        "@triton.jit\ndef gemm",
        """
def warps(arguments):
    return 4 if arguments["DEPTH"] == 32 else 8

TILES = ((256, 1), (128, 9), (32, 2), (16, 2))
CONFIGS = [triton.Config({"DEPTH": depth}, num_stages=stages) for depth, stages in TILES]

@triton.autotune(CONFIGS, key=["n"], use_cuda_graph=True)
@triton.heuristics({"num_warps": warps})
@triton.jit
def gemm""",
    )
    .replace("    total = tl.z", "    tl.static_assert(DEPTH < 256)\n    total = tl.z")
    + STEP.replace("%s", "gemm[(1, 1)](a, b, b, a.shape[0], a.stride(0), TILE=64)"),
    "wrong": OPENING
    + """
@triton.jit
def helper(x):
    return tl.no_such_function(x)

@triton.jit
def wrong(x, n, BLOCK: tl.constexpr):
    tl.store(x, helper(n))
"""
    + STEP.replace("%s", "wrong[(1,)](a, 16, BLOCK=2)"),
    "large": GEMM.replace("DEPTH=64, num_warps=4", "DEPTH=128, num_warps=4, num_stages=9"),
    "crash": OPENING + STEP.replace("%s", "import os; os.write(2, b'LLVM ERROR: no'); os.abort()"),
    "exits": OPENING + STEP.replace("%s", "raise SystemExit(3)"),
    "item": OPENING
    + STEP.replace(
        "%s",
        """
        scale[(1,)](a, b, 256, BLOCK=256)
        scale[(1,)](a, b, 256, BLOCK=128 if a[0, 0].item() else 64)""",
    ),
    "asks": OPENING
    + STEP.replace(
        "%s",
        """
        gpu = torch.cuda.get_device_properties(a.device)
        assert (gpu.major, gpu.minor) == torch.cuda.get_device_capability()
        units = triton.runtime.driver.active.utils.get_device_properties(a.device.index)["multiprocessor_count"]
        scale[(units,)](a, b, 256, BLOCK=128 if gpu.multi_processor_count == units == 132 else 64)
        shown = scale.warmup(a, b, 256, BLOCK=64, grid=(1,))
        shown._init_handles()
        assert shown.n_regs > 0""",
    ),
    "metered": (OPENING + ONCE)
    .replace("import torch\n", "import torch\nfrom common.python.workload import Metered\n")
    .replace("return step", "return Metered(step, dict)"),
    "idle": OPENING + STEP.replace("%s", "pass"),
    "stream": NEEDING + STEP.replace("%s", "torch.cuda.Stream()"),
    "breaks": OPENING + STEP.replace("%s", "raise ValueError('not here')"),
    "talks": OPENING + STEP.replace("%s", "print('x' * 200_000, flush=True); scale[(1,)](a, b, 256, BLOCK=256)"),
}
PYTHON = '"""Multiplies square matrices, one program for each tile of the product."""\n%s'
CUDA = """// Multiplies square matrices.
%s
#include "kernel.cuh"
__global__ void product(float* out) { %s }
extern "C" int f(float* out, cudaStream_t stream) { product<<<1, 32, 0, stream>>>(out); return cudaGetLastError(); }
"""
FENCE = 'asm volatile("wgmma.fence.sync.aligned;"); out[0] = 0;'
LOCAL = """float v[64];
for (int i = 0; i < 64; ++i) v[i] = out[i * threadIdx.x];
for (int i = 0; i < 64; ++i) out[int(v[i])] = v[int(v[63 - i])];"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tree]:
    """A tree of its own, with caches of its own, and one server for all that compiles Triton."""
    tree = Tree(tmp_path_factory.mktemp("build"))
    with pytest.MonkeyPatch.context() as patch, compilation._compilers(tree.root):
        patch.setattr(compilation, "_compilers", nullcontext)
        patch.setattr(toolkit, "ROOT", tree.root / "library")
        patch.setenv("COLUMNS", "200")
        yield tree


def built(tree: Tree, chapter: str, *archs: str) -> dict[tuple[str, str], Compiled]:
    """The results of a chapter, by the end of the file's name and by architecture."""
    pairs = [pair for pair in find_pairs(tree.root) if pair.chapter == chapter]
    found = compile_pairs(pairs, archs, jobs=2)
    return {(one.source.split("_")[-1].split(".")[0], one.arch): one for one in found}


@pytest.fixture(scope="module")
def triton(tree: Tree) -> dict[str, Compiled]:
    """Every Triton variant above, compiled for sm_90a in one sweep."""
    tree.file("ch01", "baseline_gemm", WORKLOAD)
    for name, text in VARIANTS.items():
        tree.file("ch01", f"optimized_gemm__{name}", text)
    return {name: one for (name, _), one in built(tree, "ch01", "sm_90a").items()}


def test_one_kernel_gets_the_matrix_instruction_of_each_generation(tree: Tree) -> None:
    tree.file("ch02", "baseline_gemm", WORKLOAD)
    tree.file("ch02", "optimized_gemm", GEMM.replace("ch01", "ch02"))
    archs = {"sm_90a": "wgmma", "sm_100a": "tcgen05", "sm_121a": "mma"}
    found = built(tree, "ch02", *archs)
    for arch, matrix in archs.items():
        one = found["gemm", arch]
        assert (one.status, one.reason) == ("compiled", None)
        assert [(use.name, use.matrix) for use in one.kernels] == [("gemm", matrix), ("scale", None)]
        product = one.kernels[0]
        assert (product.shared_bytes or 0) >= 2 * 64 * 64 * 2  # a tile of each operand, in bf16
        assert 32 < (product.registers or 0) <= 255
    assert all(one.cached for one in built(tree, "ch02", *archs).values())


@pytest.mark.parametrize("name", ["tuned", "metered", "talks"])
def test_an_autotuned_a_metered_and_a_talkative_step_are_compiled(name: str, triton: dict[str, Compiled]) -> None:
    assert (triton[name].status, len(triton[name].kernels)) == ("compiled", 1), triton[name].reason


def test_an_error_in_a_kernel_names_the_line_in_the_function_that_it_calls(triton: dict[str, Compiled]) -> None:
    line = VARIANTS["wrong"].split("tl.no_such")[0].count("\n") + 1
    assert (triton["wrong"].status, triton["wrong"].line) == ("failed", line)
    assert "no_such_function" in (triton["wrong"].reason or "")


def test_a_kernel_that_needs_more_shared_memory_than_there_is_is_a_failure(triton: dict[str, Compiled]) -> None:
    assert triton["large"].status == "failed"
    assert "shared memory, Required: " in (triton["large"].reason or "")
    assert "Hardware limit: 232448" in (triton["large"].reason or "")


def test_a_process_that_dies_is_one_failure_with_its_last_words(triton: dict[str, Compiled]) -> None:
    how = "the compiling process {} during compilation at optimized_gemm__{}.py:14: {}".format
    assert triton["crash"].status == "failed"
    assert triton["crash"].reason == how("was killed by SIGABRT", "crash", "LLVM ERROR: no")
    assert triton["exits"].reason == how("exited with code 3", "exits", "SystemExit: 3")


def test_a_step_that_looks_at_values_is_compiled_at_the_size_that_has_them_and_says_so(
    triton: dict[str, Compiled],
) -> None:
    assert triton["item"].status == "compiled"
    assert len(triton["item"].kernels) == 2  # the first was launched before it looked
    assert (triton["item"].reason or "").startswith("compiled for the test size alone: DataDependent")


def test_what_a_pair_asks_of_the_gpu_is_answered_for_the_architecture(triton: dict[str, Compiled]) -> None:
    assert triton["asks"].status == "compiled", triton["asks"].reason
    assert len(triton["asks"].kernels) == 2  # of 128 elements, as on 132 multiprocessors, and of 64


def test_only_what_needs_a_gpu_is_excused_and_what_launches_nothing_does_not_pass(triton: dict[str, Compiled]) -> None:
    assert (triton["idle"].status, triton["idle"].reason) == ("skipped", "launches no Triton kernel")
    assert triton["stream"].status == "skipped"
    assert (triton["stream"].reason or "").startswith("cannot be run without a GPU: ")
    assert triton["breaks"].status == "failed"
    line = VARIANTS["breaks"].split("raise")[0].count("\n") + 1
    assert (triton["breaks"].line, "not here" in (triton["breaks"].reason or "")) == (line, True)


# CUDA, and the command.


@pytest.fixture(scope="module")
def build(tree: Tree) -> Callable[..., Done]:
    """The command, in this process so that it has the tree's caches, over chapters of .cu files."""
    needs = "from common.python.requirements import needs\nrequires = needs(targets=['sm_90a'])\n"
    load = "from common.python.cuda import load_cuda\n"
    sources = {
        ("ch03", "local"): (CUDA % ("", LOCAL), load),
        ("ch03", "hopper"): (CUDA % ("// targets: sm_90a (wgmma)", FENCE), load + needs),
        ("ch04", "wrong"): (CUDA % ("", "\nout[0] = missing;"), load),
    }
    for (chapter, name), (text, imports) in sources.items():
        path = tree.file(chapter, f"baseline_{name}", PYTHON % imports)
        path.with_suffix(".cu").write_text(text)
    tree.file("ch05", "baseline_plain", WORKLOAD)

    return lambda *words: cli("build", *words, "--root", tree.root, "--artifacts-dir", tree.artifacts)


def test_a_sweep_prints_a_table_with_warnings_reasons_and_counts_and_keeps_it(
    build: Callable[..., Done], tree: Tree
) -> None:
    done = build("ch03", "--arch", "sm_90a,sm_121a")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    lines = done.stdout.splitlines()
    hopper, *local = ([cell.strip() for cell in line.split("│")[1:-1]] for line in lines if line.startswith("│"))
    assert hopper[:3] == ["ch03/baseline_hopper.cu", "sm_90a", "product"]
    assert [row[:3] for row in local] == [["ch03/baseline_local.cu", arch, "product"] for arch in ("sm_90a", "sm_121a")]
    assert [row[-1] for row in local] == ["256 B", "256 B"]  # columns that are empty are left out
    warning = "product has a stack frame of 256 bytes in local memory"
    assert f"warning: ch03/baseline_local.cu, sm_121a: {warning}" in lines
    assert "skipped for sm_121a: for sm_90a only: wgmma: ch03/baseline_hopper.cu" in lines
    assert "2 files, 2 architectures: 3 compiled (0 from the cache), 1 skipped, 0 failed, 2 warnings" in lines[-2]
    folder = Path(lines[-1].removeprefix("results: "))
    kept = Build.model_validate_json((folder / "build.json").read_text())
    assert [one.status for one in kept.compiled] == ["compiled", "skipped", "compiled", "compiled"]
    assert kept.manifest.versions["nvcc"] == nvcc_version()
    assert len(kept.warnings) == 2
    assert "3 compiled (3 from the cache)" in build("ch03", "--arch", "sm_90a", "--arch", "sm_121a").stdout


def test_a_file_that_does_not_compile_ends_with_1_and_its_line(build: Callable[..., Done]) -> None:
    done = build("--targets", "ch4", "--arch", "sm_90a")
    assert done.returncode == 1
    (told,) = [line for line in done.stdout.splitlines() if line.startswith("failed: ")]
    assert told.startswith("failed: ch04/baseline_wrong.cu:5, sm_90a: baseline_wrong.cu does not compile for sm_90a: ")
    assert 'identifier "missing" is undefined' in told


def test_a_sweep_in_which_nothing_is_compiled_does_not_pass(build: Callable[..., Done]) -> None:
    nothing = build("ch05")
    assert nothing.returncode == 4
    assert "nothing to compile: no .cu file and no Triton kernel among these pairs" in nothing.stdout
    skipped = build("ch03/baseline_hopper.py", "--arch", "sm_100a")
    assert skipped.returncode == 4
    assert "0 compiled (0 from the cache), 1 skipped" in skipped.stdout


@pytest.mark.parametrize("arch", ["sm_42", ""])
def test_what_does_not_exist_is_one_line_and_2(build: Callable[..., Done], arch: str, tree: Tree) -> None:
    before = list(tree.artifacts.glob("*"))
    assert_usage(build("--arch", arch), f"'{arch}' is not an architecture; known are sm_80, sm_86, sm_89, sm_90, ")
    assert list(tree.artifacts.glob("*")) == before


@pytest.fixture(scope="module")
def hangs(tree: Tree) -> Path:
    """A chapter whose step never ends; the file to which it writes its process number."""
    seen = tree.root / "seen"
    waits = f"import os, time; open({str(seen)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    tree.file("ch06", "baseline_gemm", WORKLOAD)
    tree.file("ch06", "optimized_gemm", OPENING.replace("ch01", "ch06") + STEP.replace("%s", waits))
    return seen


def test_a_step_that_hangs_is_one_failure(tree: Tree, hangs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation, "LIMIT_S", 1)
    one = built(tree, "ch06", "sm_90a")["gemm", "sm_90a"]
    assert one.status == "failed"
    assert (one.reason or "").startswith("no answer within 1 s during compilation")
    hangs.unlink(missing_ok=True)


def test_a_sweep_that_is_killed_leaves_no_process(tree: Tree, hangs: Path) -> None:
    """The compiling process, and those that it forked, follow their parent."""
    command = [sys.executable, str(ROOT / "tools" / "cli" / "benchmark_cli.py"), "build", "ch06", "--arch", "sm_90a"]
    command += ["--root", str(tree.root), "--artifacts-dir", str(tree.artifacts)]
    sweep = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        until(lambda: hangs.exists() and hangs.read_text() != "")
    finally:
        sweep.kill()
        sweep.wait()
    until(lambda: not alive(int(hangs.read_text())), 30)
