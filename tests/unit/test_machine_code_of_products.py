"""What each rung of the matrix products promises is in its machine code, and nothing of a later rung."""

from pathlib import Path

import pytest
from test_machine_code import ARCH, ROOT, opcodes

from common.python.base.toolkit import find_nvcc, find_program
from common.python.cuda import compile_source

pytestmark = [
    pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc"),
    pytest.mark.skipif(find_program("cuobjdump") is None, reason="needs cuobjdump"),
]
HOPPER = ("HGMMA", "UTMALDG", "SYNCS.EXCH", "UTMALDG.2D.MULTICAST", "UTMASTG")
RUNGS = {  # which of these units each rung uses
    "__wgmma": HOPPER[:1],
    "__tma": HOPPER[:3],
    "__stages": HOPPER[:3],
    "__specialized": HOPPER[:3],
    "__wide_tile": HOPPER[:3],
    "__persistent": HOPPER[:3],
    "__multicast": HOPPER[:4],
    "": HOPPER,
}
SOURCES = sorted([*ROOT.glob("ch07/*sgemm_tiling*.cu"), *ROOT.glob("ch10/*gemm_wgmma*.cu")])


def has(source: str, opcode: str, kernel: str = "product") -> int:
    return sum(one.startswith(opcode) for one in opcodes(source, kernel))


@pytest.mark.parametrize("rung", RUNGS)
def test_each_rung_uses_the_units_of_hopper_that_it_is_about(rung: str) -> None:
    source = f"ch10/optimized_gemm_wgmma{rung}.cu"
    assert [unit for unit in HOPPER if has(source, unit)] == list(RUNGS[rung])
    assert has(source, "HMMA") == has(source, "LDSM") == 0
    wide = rung not in ("__wgmma", "__tma", "__stages", "__specialized")
    assert has(source, "HGMMA.64x256x16.F32.BF16" if wide else "HGMMA.64x128x16.F32.BF16") == 4


def test_the_baseline_multiplies_fragments_as_ampere_does() -> None:
    source = "ch10/baseline_gemm_wgmma.cu"
    assert not any(has(source, unit) for unit in HOPPER)
    assert has(source, "HMMA.16816.F32.BF16") == 4 * 4 * 8
    assert has(source, "LDSM.16.M88.4") == 4 * 8
    assert has(source, "LDGSTS.E.BYPASS.128")


def test_the_compiler_puts_no_wait_between_products() -> None:
    """It would, if registers of the sums were touched in between; ptxas then warns that products are serialised."""
    for rung in RUNGS:
        code = opcodes(f"ch10/optimized_gemm_wgmma{rung}.cu", "product")
        products = [index for index, one in enumerate(code) if one.startswith("HGMMA")]
        between = code[products[0] : products[-1]]
        assert not any(one.startswith("WARPGROUP") for one in between), rung


def test_loads_become_wide_and_then_asynchronous() -> None:
    rungs = ("__register_2d", "__warp_tile", "__cp_async", "")
    plain, wide, fetched, final = (f"ch07/optimized_sgemm_tiling{rung}.cu" for rung in rungs)
    assert has(plain, "LDG.E.128") == 0
    assert has(wide, "LDG.E.128", "productILb1E") == 2
    assert has(wide, "FFMA", "productILb1E") == 16 * has(wide, "LDS.128", "productILb1E")
    assert has(fetched, "FFMA", "productILb1E") == 16 * has(fetched, "LDS.128", "productILb1E")
    assert has(fetched, "LDG.E", "productILb1E") == 0
    # 16 x 8 products of 16 + 8 floats, four floats to a load
    assert 6 * has(final, "FFMA", "productILb1E") == 128 * has(final, "LDS.128", "productILb1E")
    assert has(final, "LDG.E", "productILb1E") == 0
    assert has(final, "LDGSTS.E.BYPASS.128", "productILb1E") >= 2


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_nothing_lies_in_local_memory(source: Path) -> None:
    for kernel in compile_source(source, ARCH).kernels:
        assert (kernel.spill_bytes, kernel.stack_bytes) == (0, 0), kernel.name
