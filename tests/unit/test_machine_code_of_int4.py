"""The int4 weight of chapter 19 comes 16 bytes a lane, is widened by lop3 alone and multiplied on the matrix unit."""

import pytest
from test_machine_code import ARCH, ROOT, count, opcodes

from common.python.base.toolkit import find_nvcc, find_program
from common.python.cuda import compile_source

FUSED, PACKED = "ch19/optimized_int4_prepacked_gemm__fused.cu", "ch19/optimized_int4_prepacked_gemm.cu"
KERNEL = "linearILi16E"  # up to 16 rows
HALVES, TILES, STEPS, ROWS = 2, 4, 4, 2  # of a group; of 16 outputs, a warp; of 16 features, in a half; of 8 rows

pytestmark = [
    pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc"),
    pytest.mark.skipif(find_program("cuobjdump") is None, reason="needs cuobjdump"),
]


def test_a_lanes_codes_are_one_load_of_four_fragments_and_the_rung_gathers_them_by_bytes() -> None:
    assert count(PACKED, KERNEL, "LDS.128") == HALVES * TILES
    assert count(FUSED, KERNEL, "LDS.128") == 0
    flag = 1  # of the last block, a byte too
    assert count(PACKED, KERNEL, "LDS.U8") == flag
    assert count(FUSED, KERNEL, "LDS.U8") == HALVES * TILES * STEPS * 4 + flag


@pytest.mark.parametrize("source", [FUSED, PACKED])
def test_codes_become_bf16_without_arithmetic(source: str) -> None:
    assert count(source, KERNEL, "LOP3.LUT") >= HALVES * TILES * STEPS * 4
    assert not any(one.startswith(("HFMA2", "HADD2", "HMUL2", "I2FP")) for one in opcodes(source, KERNEL))


@pytest.mark.parametrize("source", [FUSED, PACKED])
def test_products_are_on_the_matrix_unit_and_the_offset_takes_one_for_all_outputs(source: str) -> None:
    assert count(source, KERNEL, "HMMA.16816.F32.BF16") == HALVES * STEPS * ROWS * (TILES + 1)
    assert count(source, KERNEL, "LDSM.16.M88.4") == HALVES * ROWS * 2
    assert count(source, KERNEL, "FFMA") == HALVES * TILES * ROWS * 4  # scales, once a sum


@pytest.mark.parametrize("source", [FUSED, PACKED])
def test_what_is_read_from_memory_goes_past_the_registers(source: str) -> None:
    assert count(source, KERNEL, "LDGSTS.E.BYPASS.128") >= 16384 // (128 * 16)  # codes of a step, over 128 threads
    loads = [one for one in opcodes(source, KERNEL) if one.startswith("LDG.")]
    assert {*loads} == {"LDG.E.128.STRONG.GPU"}  # other blocks' sums of a shared tile


@pytest.mark.parametrize("source", [FUSED, PACKED])
def test_nothing_lies_in_local_memory(source: str) -> None:
    kernels = compile_source(ROOT / source, ARCH).kernels
    assert len(kernels) == 4
    for kernel in kernels:
        assert (kernel.spill_bytes, kernel.stack_bytes) == (0, 0), kernel.name
