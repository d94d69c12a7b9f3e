"""What docstrings and READMEs promise of Triton kernels, wgmma, TMA and other units, is in what they compile to.

As with CUDA files, what has not changed since it passed is not compiled, but for the first pair of each chapter.
"""

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from changed import PROVEN, ROOT

from common.python.base.toolkit import find_program

# By what is promised: what of it stands in PTX, and what in machine code.
UNITS = {
    "wgmma": (r"wgmma\.mma_async\.", r"HGMMA\.64x"),
    "wgmma, left operand in registers": (r"wgmma\.mma_async\S+ \{[^}]*\}, *\{", r"HGMMA\.\S+ R\d+, R\d+, gdesc"),
    "TMA": (r"cp\.async\.bulk\.tensor\.\dd\.shared::\w+\.global\.", r"UTMALDG\.\dD"),
    "cp.async": (r"cp\.async\.c[ag]\.shared\.global ", r"LDGSTS\.E"),
    "atomic": (r"atom\.global\.", r"(ATOMG|REDG)\.E"),
    "atomic whose old value nobody reads": (r"atom\.global\.", r"REDG\.E"),
    "saturating conversion to e4m3": (r"cvt\.rn\.satfinite\.e4m3x2\.f32 ", r"F2FP\.SATFINITE\.E4M3\.F32"),
}
PROMISED = [  # file, kernel, and what its docstring, or its README where it tells of that file, says that it uses
    ("ch02/optimized_depth_first_mlp.py", "network", "wgmma"),
    ("ch02/optimized_depth_first_mlp.py", "network", "wgmma, left operand in registers"),
    ("ch02/optimized_depth_first_mlp.py", "network", "TMA"),
    ("ch14/baseline_triton_persistent_matmul.py", "product", "wgmma"),
    ("ch14/baseline_triton_persistent_matmul.py", "product", "cp.async"),  # its pipeline
    ("ch14/optimized_triton_persistent_matmul.py", "product", "wgmma"),
    ("ch14/optimized_triton_persistent_matmul.py", "product", "TMA"),
    ("ch17/optimized_moe_gate_fused.py", "choose", "atomic whose old value nobody reads"),
    ("ch17/optimized_moe_grouped_gemm.py", "grouped_linear", "wgmma"),  # the product of chapter 14
    ("ch17/optimized_moe_grouped_gemm.py", "grouped_linear", "TMA"),
    ("ch18/optimized_flash_forward.py", "attend", "wgmma"),
    ("ch18/optimized_flash_forward.py", "attend", "TMA"),
    ("ch18/optimized_split_kv_decode__single_pass.py", "attend_part", "atomic"),  # its counter
    ("ch19/optimized_fp8_cast_transpose__triton.py", "cast_tile", "atomic whose old value nobody reads"),
    ("ch19/optimized_fp8_cast_transpose__triton.py", "cast_tile", "saturating conversion to e4m3"),  # exercise 1
]
# What other files do without, and some say so: the lesson is the difference.
WITHOUT = [
    ("ch14/baseline_triton_persistent_matmul.py", "product", "TMA"),
    ("ch14/baseline_triton_persistent_matmul.py", "product", "wgmma, left operand in registers"),
    ("ch14/baseline_triton_persistent_matmul.py", "product", "atomic"),
    ("ch14/baseline_triton_persistent_matmul.py", "product", "saturating conversion to e4m3"),
    ("ch14/optimized_triton_persistent_matmul.py", "product", "cp.async"),
    ("ch17/optimized_moe_grouped_gemm.py", "grouped_linear", "cp.async"),
    ("ch18/optimized_split_kv_decode__single_pass.py", "attend_part", "wgmma"),
    ("ch18/optimized_split_kv_decode__single_pass.py", "attend_part", "atomic whose old value nobody reads"),
    ("ch19/optimized_fp8_cast_transpose__triton.py", "cast_tile", "wgmma"),
]
DESCRIBED = sorted(
    str(path.relative_to(ROOT))
    for path in ROOT.glob("ch[0-9][0-9]/*.py")
    if "TensorDescriptor.from_tensor(" in path.read_text()
)
COMPILED = {PROMISED[3][0]} | {
    f"{pair.chapter}/{variant.name}.py" for pair in PROVEN for variant in pair.variants
}  # [3] lacks some, too


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the code of all these files lies, compiled for sm_90a by one process that sees no GPU."""
    made = tmp_path_factory.mktemp("triton")
    files = {*DESCRIBED, *(file for file, *_ in PROMISED + WITHOUT)} & COMPILED
    modules = sorted(file.removesuffix(".py").replace("/", ".") for file in files)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRITON_")}
    environment |= {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(Path(__file__).with_name("triton_code.py")), "90", str(made), *modules]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return made


def kernels(folder: Path, file: str, kernel: str) -> list[Path]:
    """The PTX of each launch of this kernel that was compiled anew: another dtype or shape is another one."""
    found = sorted((folder / file.removesuffix(".py").replace("/", ".")).glob(f"*.{kernel}.ptx"))
    assert found, f"{file} launches no {kernel}"
    return found


def missing(ptx: Path, unit: str) -> list[str]:
    """In which of its two forms this kernel lacks the unit; machine code is read where CUDA's cuobjdump is found."""
    in_ptx, in_code = UNITS[unit]
    text = ptx.read_text()
    assert re.search(r"^\.target sm_90a$", text, re.MULTILINE)
    lacking = [] if re.search(in_ptx, text) else ["PTX"]
    if cuobjdump := find_program("cuobjdump"):
        lacking += [] if re.search(in_code, machine_code(cuobjdump, ptx.with_suffix(".cubin"))) else ["machine code"]
    return lacking


@cache
def machine_code(cuobjdump: Path, cubin: Path) -> str:
    return subprocess.run([str(cuobjdump), "-sass", str(cubin)], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(("file", "kernel", "unit"), [one for one in PROMISED if one[0] in COMPILED])
def test_a_kernel_uses_what_its_file_or_readme_promises(folder: Path, file: str, kernel: str, unit: str) -> None:
    assert [(ptx.name, lacking) for ptx in kernels(folder, file, kernel) if (lacking := missing(ptx, unit))] == []


@pytest.mark.parametrize(("file", "kernel", "unit"), [one for one in WITHOUT if one[0] in COMPILED])
def test_the_check_fails_for_a_kernel_without_it(folder: Path, file: str, kernel: str, unit: str) -> None:
    for ptx in kernels(folder, file, kernel):
        assert missing(ptx, unit), ptx.name


def test_every_unit_is_seen_to_be_missing_somewhere() -> None:
    assert {unit for _, _, unit in PROMISED} == {unit for _, _, unit in WITHOUT} == set(UNITS)


@pytest.mark.parametrize("file", [file for file in DESCRIBED if file in COMPILED])
def test_each_file_that_describes_tensors_has_a_kernel_that_tma_feeds(folder: Path, file: str) -> None:
    assert [ptx.name for ptx in kernels(folder, file, "*") if not missing(ptx, "TMA")]


def test_each_file_of_which_tma_is_promised_describes_tensors() -> None:
    assert {file for file, _, unit in PROMISED if unit == "TMA"} <= set(DESCRIBED)
