"""What holds for every .cu file of the corpus: its kernels stay in registers, and are run at odd sizes on a GPU.

Of Triton's kernels, those that once spilled before Hopper are compiled for it here; `verify` warns of any that do.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from common.python.base.builds import KernelUse, kernel_uses, sm_of
from common.python.base.machine import machine
from common.python.base.toolkit import find_nvcc, include_dirs
from common.python.build.compilation import TARGETS
from common.python.corpus.discovery import find_pairs
from common.python.cuda import compile_source
from common.python.requirements import Requirements, arch_of, cuda_targets, unmet
from tools.testing.sanitize import kernels

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
PAIRS = {variant.path.with_suffix(".cu"): pair for pair in find_pairs(ROOT) for variant in pair.variants}
SOURCES = {path: pair for path, pair in PAIRS.items() if path.exists()}
NEEDS = {variant.path.with_suffix(".cu"): variant.required for pair in PAIRS.values() for variant in pair.variants}
# Other tests compile these to whole libraries, which are kept; of the rest only the machine code is made, in a third of
# the time.
KEPT_ELSEWHERE = "".join(path.read_text() for path in HERE.glob("test_machine_code*.py"))
LEAST = "sm_80"  # for which only what speaks for its pair is compiled in here; `build` does it for all
SPILLS = re.compile(r"^// spills: \S", re.MULTILINE)  # a label in the first lines: that is what the file is about

needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc")


def uses(source: Path, arch: str) -> list[KernelUse]:
    """What ptxas says of each kernel of a file."""
    pair = SOURCES.get(source)
    if pair and arch == "sm_90a" and re.search(rf"\b\w*_{pair.name}\b", KEPT_ELSEWHERE) and "peer" not in source.name:
        return compile_source(source, arch).kernels
    includes = [f"-I{folder}" for folder in include_dirs()]
    command = [str(find_nvcc()), "-O3", "-std=c++17", "-Xptxas", "-v", f"-arch={arch}", *includes, "-cubin"]
    done = subprocess.run([*command, str(source), "-o", "/dev/null"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return kernel_uses(done.stderr + done.stdout, "")


def in_local_memory(source: Path, arch: str) -> dict[str, tuple[int | None, int | None]]:
    """Bytes spilled and bytes of stack of the kernels that have any, or of which ptxas said nothing."""
    found = {kernel.name: (kernel.spill_bytes, kernel.stack_bytes) for kernel in uses(source, arch)}
    return {name: local for name, local in found.items() if local != (0, 0)}


def labelled(source: Path) -> bool:
    return SPILLS.search("\n".join(source.read_text().splitlines()[:12])) is not None


def cases() -> list[tuple[Path, str]]:
    lead = [path for path in SOURCES if path.stem.startswith("optimized_") and "__" not in path.stem]
    asked = [(path, "sm_90a") for path in SOURCES] + [(path, LEAST) for path in lead]
    return [
        (path, arch)
        for path, arch in asked
        if arch in (cuda_targets(path)[0] or (arch,)) and sm_of(arch) >= (NEEDS[path].sm or 0)
    ]


@needs_nvcc
@pytest.mark.parametrize(("source", "arch"), cases(), ids=lambda one: getattr(one, "stem", one))
def test_no_kernel_goes_through_local_memory(source: Path, arch: str) -> None:
    if lacking := unmet(Requirements(headers=NEEDS[source].headers), machine()):
        pytest.skip("; ".join(lacking))
    found = in_local_memory(source, arch)
    assert bool(found) == labelled(source), found


@needs_nvcc
def test_a_kernel_that_indexes_an_array_is_found_and_may_be_labelled(tmp_path: Path) -> None:
    source = tmp_path / "optimized_x.cu"
    body = (
        "__global__ void f(float* a, int n) { float b[64]; for (int i = 0; i < n; i++) b[i % 64] = a[i]; *a = b[n]; }"
    )
    source.write_text(f"// It copies.\n{body}\n")
    assert [stack for _, stack in in_local_memory(source, "sm_90a").values()] == [256]
    assert not labelled(source)
    source.write_text(f"// It copies.\n// spills: to show what that costs\n{body}\n")
    assert labelled(source)


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_a_file_is_compiled_for_the_least_gpu_that_it_says_it_runs_on(source: Path) -> None:
    targets, least = NEEDS[source].targets, NEEDS[source].sm
    assert set(targets or [arch_of(least or 80)]) <= set(TARGETS)


def test_every_pair_with_a_kernel_has_odd_sizes() -> None:
    table = (ROOT / "tests" / "gpu" / "test_odd_sizes.py").read_text()
    written = {pair.key for path, pair in SOURCES.items() if kernels(path.read_text())}
    assert {key for key in written if f'    "{key}": ' not in table} == set()


def test_what_once_spilled_before_hopper_does_not(tmp_path: Path) -> None:
    """Either a smaller tile is chosen there, or the file says that it needs a later GPU."""
    once = ("ch02:depth_first_mlp", "ch14:triton_persistent_matmul", "ch17:moe_grouped_gemm", "ch18:flash_forward")
    build = ["-m", "tools.cli.benchmark_cli", "build", *once, "--arch", "sm_80", "--artifacts-dir", str(tmp_path)]
    done = subprocess.run([sys.executable, *build], cwd=ROOT, capture_output=True, text=True, check=True)
    told = done.stdout + done.stderr
    assert re.search(r"^\d+ files, 1 architecture: [4-9] compiled", told, re.MULTILINE), told
    assert not re.search(r"\bspill", told), told
