"""A kernel for a GPU that was not at hand runs on the CPU; what its instructions do is restated from the PTX ISA."""

import ctypes
import re
import subprocess
from pathlib import Path

import pytest
import torch
from changed import ROOT, nightly_unless_changed

from ch19.baseline_nvfp4_gemm import workload as nvfp4
from common.python.base.toolkit import find_nvcc, find_program, include_dirs
from common.python.workload import Draw

LAUNCH = """
extern "C" void gemm(const uint8_t* a, const uint8_t* a_scales, const uint8_t* b, const uint8_t* b_scales, bf16* out,
                     int64_t m, int64_t n, int64_t k) {
  launch(ceil_div(n, SIDE), ceil_div(m, SIDE), product, a, a_scales, b, b_scales, out, m, n, k);
}
"""


@nightly_unless_changed("ch19:nvfp4_gemm")
@pytest.mark.skipif(find_program("g++") is None or find_nvcc() is None, reason="needs g++ and CUDA's headers")
def test_nvfp4_gemm_by_mma_sync_finds_every_code_and_scale(tmp_path: Path) -> None:
    code = (ROOT / "ch19" / "optimized_nvfp4_gemm__mma_sync.cu").read_text().replace("ampere.cuh", "emulated_block.h")
    code, changed = re.subn(
        r'asm volatile\(\s*"mma\.sync\.aligned\.m16n8k64\.row\.col\.kind::mxf4nvf4\.block_scale\.scale_vec::4X.*?\);',
        "multiply_block_scaled(sum, a, b0, b1, a_scales, b_scales);",
        code.partition('extern "C"')[0],
        flags=re.DOTALL,
    )
    assert changed == 1
    (tmp_path / "product.cpp").write_text(code + LAUNCH)
    folders = [f"-I{folder}" for folder in (Path(__file__).parent, *include_dirs())]
    command = ["g++", "-std=c++20", "-O2", "-w", "-shared", "-fPIC", "-pthread", *folders, "product.cpp", "-o", "it.so"]
    subprocess.run(command, check=True, cwd=tmp_path)

    m, n, k = 129, 136, 576  # a row and a part of a tile more than a tile; stages wrap around, and half of one is empty
    given = nvfp4.inputs(Draw(torch.device("cpu"), 0, tmp_path), m, n, k)
    out = torch.full((m, n), torch.nan, dtype=torch.bfloat16)
    tensors = [*(given[name] for name in ("a_codes", "a_scales", "b_codes", "b_scales")), out]
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
    ctypes.CDLL(str(tmp_path / "it.so")).gemm(*pointers, *map(ctypes.c_int64, (m, n, k)))
    expected = given["a"].double() @ given["b"].double().T
    torch.testing.assert_close(out.double(), expected, rtol=2**-8, atol=1e-3)
