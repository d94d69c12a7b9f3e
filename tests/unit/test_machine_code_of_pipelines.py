"""What the rungs of `cp_async_stages` and the cluster of `softmax_dsmem` promise is in their machine code."""

from itertools import pairwise

import pytest
from test_machine_code import ARCH, ROOT, opcodes

from common.python.base.toolkit import find_nvcc, find_program
from common.python.cuda import compile_source

pytestmark = [
    pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc"),
    pytest.mark.skipif(find_program("cuobjdump") is None, reason="needs cuobjdump"),
]
BASELINE = "ch10/baseline_cp_async_stages.cu"
TWO_STAGE = "ch10/optimized_cp_async_stages__two_stage.cu"
LDMATRIX = "ch10/optimized_cp_async_stages__ldmatrix_swizzle.cu"
RING = "ch10/optimized_cp_async_stages.cu"
LADDER = (BASELINE, TWO_STAGE, LDMATRIX, RING)
SOFTMAX = "ch10/optimized_softmax_dsmem.cu"


def has(source: str, opcode: str, kernel: str = "product") -> int:
    return sum(one.startswith(opcode) for one in opcodes(source, kernel))


def test_copies_become_asynchronous_and_then_fragments_come_by_ldmatrix() -> None:
    assert [has(source, "LDG.E") > 0 for source in LADDER] == [True, False, False, False]
    assert [has(source, "LDGSTS.E.BYPASS") > 0 for source in LADDER] == [False, True, True, True]
    assert [has(source, "LDSM.16.M88.4") > 0 for source in LADDER] == [False, False, True, True]
    for source in LADDER:
        assert has(source, "HMMA.16816.F32.BF16") % (4 * 8 * 2) == 0  # 64 x 64 results a warp, 32 of k a stage
        assert has(source, "HGMMA") == has(source, "UTMALDG") == 0


def test_only_the_ring_has_fragments_at_hand_when_a_barrier_ends() -> None:
    for source in LADDER:
        code = [one for one in opcodes(source, "product") if one.startswith(("BAR", "LDS", "HMMA"))]
        after = [then for one, then in pairwise(code) if one.startswith("BAR")]
        assert any(one.startswith("HMMA") for one in after) == (source == RING), source


def test_a_cluster_meets_by_stores_into_distributed_shared_memory() -> None:
    assert has(SOFTMAX, "STAS", "softmax_sharedILi4E") == 1
    assert has(SOFTMAX, "LDGSTS.E.128", "softmax_sharedILi4E") > 0
    assert has(SOFTMAX, "LDG.E.128", "softmax_sharedILi4E") == 4  # a row is read once: 16 floats here, and 48 by LDGSTS
    assert has("ch10/baseline_softmax_dsmem.cu", "STAS", "softmax_twiceILi4E") == 0


@pytest.mark.parametrize("source", [*LADDER, "ch10/baseline_softmax_dsmem.cu", SOFTMAX])
def test_nothing_lies_in_local_memory(source: str) -> None:
    for kernel in compile_source(ROOT / source, ARCH).kernels:
        assert (kernel.spill_bytes, kernel.stack_bytes) == (0, 0), kernel.name
