"""The product of chapter 2 is on the matrix unit, fed by asynchronous copies, and its baseline on FMA lanes alone."""

import pytest
from test_machine_code import ROOT, count, opcodes

from common.python.base.toolkit import find_nvcc, find_program
from common.python.cuda import compile_source

BASELINE, OPTIMIZED = "ch02/baseline_tensor_core_gemm.cu", "ch02/optimized_tensor_core_gemm.cu"
GATHER = "ch02/optimized_zero_copy_gather.cu"

pytestmark = [
    pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc"),
    pytest.mark.skipif(find_program("cuobjdump") is None, reason="needs cuobjdump"),
]


def test_the_baseline_makes_each_product_with_an_fma_of_a_lane() -> None:
    assert count(BASELINE, "product", "FFMA") == 16 * 8 * 8  # depths of a tile, and the sums of a thread
    assert not any(one.startswith(("HMMA", "HGMMA")) for one in opcodes(BASELINE, "product"))


@pytest.mark.parametrize("kernel", ["productILb1E", "productILb0E"])
def test_fragments_are_loaded_whole_and_multiplied_on_the_matrix_unit(kernel: str) -> None:
    # Two steps of a stage: 4 x 8 products of 16 x 8 x 16, of 4 + 4 loads. Those of the first step stand ahead of the
    # loop too.
    assert count(OPTIMIZED, kernel, "HMMA.16816.F32.BF16") == 2 * 4 * 8
    assert count(OPTIMIZED, kernel, "LDSM.16.M88.4") == (1 + 2) * (4 + 4)
    assert count(OPTIMIZED, kernel, "LD.E") == count(OPTIMIZED, kernel, "FFMA") == 0


@pytest.mark.parametrize("kernel", ["productILb1E", "productILb0E"])
def test_tiles_are_copied_asynchronously_past_the_registers(kernel: str) -> None:
    # In a step a thread copies 1 + 2 pieces of 16 bytes: of each of three stages ahead of the loop, and twice in it.
    assert count(OPTIMIZED, kernel, "LDGSTS.E.BYPASS.LTC128B.128") == (3 + 2) * (1 + 2)
    assert count(OPTIMIZED, kernel, "LDG.E.128") == 0


@pytest.mark.parametrize("kernel", ["productILb1E", "productILb0E"])
def test_copies_of_the_loop_stand_behind_the_loads_of_their_step(kernel: str) -> None:
    letters = {"LDSM": "L", "LDGSTS": "C", "HMMA": "H"}
    order = "".join(letters.get(one.split(".")[0], "") for one in opcodes(OPTIMIZED, kernel))
    loop = order[order.index("H") :].replace("H", "")
    assert loop == 2 * ("L" * (4 + 4) + "C" * (1 + 2))


@pytest.mark.parametrize("kernel", ["productILb1E", "productILb0E"])
def test_sums_go_straight_from_registers_to_memory(kernel: str) -> None:
    # 4 x 8 products with 4 sums in each lane, which leave in eights where the sizes are whole.
    store, times = ("STG.E.128", 16) if kernel == "productILb1E" else ("STG.E.U16", 128)
    assert count(OPTIMIZED, kernel, store) == times
    assert count(OPTIMIZED, kernel, "STS") == 0


@pytest.mark.parametrize("kernel", ["productILb1E", "productILb0E"])
def test_fragments_are_loaded_while_others_are_multiplied(kernel: str) -> None:
    order = [one for one in opcodes(OPTIMIZED, kernel) if one.startswith(("LDSM", "HMMA"))]
    together = "".join("L" if one.startswith("LDSM") else "H" for one in order)
    assert max(map(len, together.split("H"))) <= 4 + 4  # loads in a row: those ahead of the loop
    assert together.lstrip("L").count("HL") >= 2 * 4  # the loads of a step in the loop are spread over products


@pytest.mark.parametrize("source", [BASELINE, OPTIMIZED, GATHER])
def test_nothing_lies_in_local_memory(source: str) -> None:
    for kernel in compile_source(ROOT / source, "sm_90a").kernels:
        assert (kernel.spill_bytes, kernel.stack_bytes) == (0, 0), kernel.name


def test_a_lane_fetches_16_bytes_of_a_row_at_a_time_where_rows_allow_it() -> None:
    assert count(GATHER, "gather_rowsI6float4E", "LDG.E.128.CONSTANT") >= 1
    assert count(GATHER, "gather_rowsIfE", "LDG.E.CONSTANT") >= 1
