"""What every CUDA file compiles to: its kernels stay in registers, and the instruction that it is about is there.

What has not changed since it passed is not compiled. `make check-all` compiles all for every kind of GPU.
"""

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest
from changed import CHANGED, PAIRS, PROVEN, ROOT

from common.python.base.machine import machine
from common.python.base.toolkit import find_nvcc, find_program
from common.python.build.compilation import TARGETS
from common.python.build.record import kernels_of, sm_of
from common.python.cuda import Library, compile_source, cuda_targets
from common.python.requirements import Requirements, arch_of, unmet

ARCH = "sm_90a"
FUNCTION = re.compile(r"^\s*Function : (\S+)$", re.MULTILINE)
OPCODE = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?\w+\s+)?([A-Z][\w.]*)", re.MULTILINE)
SPILLS = re.compile(r"^// spills: \S", re.MULTILINE)  # a label in the first lines: that is what the file is about
NEEDS = {v.path.with_suffix(".cu"): v.required for pair in PAIRS for v in pair.variants}
SOURCES = [path for path in NEEDS if path.exists()]

# File and kernel, a part of its mangled name: what the file's docstring promises, and (after a minus) is about leaving.
HOPPER = ("HGMMA", "UTMALDG", "SYNCS.EXCH", "UTMALDG.2D.MULTICAST", "UTMASTG")
INSTRUCTIONS = {
    "ch02/baseline_tensor_core_gemm product": "FFMA -HMMA -HGMMA",
    "ch02/optimized_tensor_core_gemm product": "HGMMA UTMALDG.2D SYNCS.EXCH UTMASTG -HMMA -LDGSTS",
    "ch02/optimized_tensor_core_gemm__mma_sync productILb1E": "HMMA.16816 LDSM LDGSTS.E.BYPASS -LDG.E -FFMA -STS",
    "ch02/optimized_zero_copy_gather gather_rowsI6float4E": "LDG.E.128.CONSTANT",
    "ch06/baseline_block_reduction sum_tree": "BAR -SHFL",
    "ch06/optimized_block_reduction__shuffle sum_shuffled": "SHFL",
    "ch06/optimized_block_reduction sum_in_registers": "SHFL LDG.E.128 RED",
    "ch06/optimized_vector_add_grid add": "LDG.E.128 STG.E.128",
    "ch06/optimized_vector_add_grid__full_grid add": "LDG.E -LDG.E.128",
    "ch06/baseline_float_literal_gelu activate": "DMUL DFMA F2F.F64",
    "ch06/optimized_float_literal_gelu activate": "MUFU -DMUL -DFMA -DADD -F2F",
    "ch07/optimized_sgemm_tiling productILb1E": "LDGSTS.E.BYPASS.128 FFMA -LDG.E",
    "ch07/optimized_sgemm_tiling__cp_async productILb1E": "LDGSTS FFMA -LDG.E",
    "ch07/optimized_sgemm_tiling__warp_tile productILb1E": "LDG.E.128 LDS.128",
    "ch07/optimized_sgemm_tiling__register_2d product": "FFMA -LDG.E.128",
    "ch07/optimized_transpose transposeILb1E": "LDG.E.128 STG.E.128 STS.128 LDS.128",
    "ch07/optimized_transpose__padded transpose": "LDS STS -LDG.E.128",
    "ch07/optimized_transpose__tile transpose": "LDS STS -LDG.E.128",
    "ch08/baseline_histogram_privatized count": "RED -ATOMS",
    "ch08/optimized_histogram_privatized count": "ATOMS RED",
    "ch08/optimized_histogram_privatized__block count": "ATOMS RED",
    "ch08/optimized_histogram_privatized__copies4 count": "ATOMS RED",
    "ch08/optimized_bytes_in_flight__vec8 dequantizeILi8E": "LDG.E.64 STG.E.128",
    "ch08/optimized_median_filter_registers median_sharedILb1E": "FMNMX -LDL -STL",
    "ch08/optimized_unpack_3bit unpack_eight": "LDG.E LOP3 HADD2.BF16 STG.E.128 -LDL -BSSY",
    "ch09/optimized_conv2d_implicit_gemm convolveILb0E": "HGMMA.64x256x16 UTMALDG.4D UTMALDG.2D.MULTICAST -LDGSTS",
    "ch09/optimized_cutlass_blackwell_2sm device_kernel": "UTCHMMA.2CTA UTMALDG.3D.2CTA LDTM UTMASTG",
    "ch09/optimized_cutlass_schedule device_kernel": "HGMMA.64x256x16.F32.BF16 UTMALDG.3D.MULTICAST UTMASTG",
    "ch09/optimized_nearest_codeword nearestI13__nv_bfloat16": "HGMMA.64x128x16.F32.BF16 UTMALDG.2D VOTE -HMMA",
    "ch10/optimized_attention_pingpong attention": "HGMMA.64x176x16.F32.BF16 HGMMA.64x128x16.F32.BF16 UTMALDG.2D -HMMA "
    "-LDGSTS",
    "ch10/baseline_cp_async_stages product": "LDG.E HMMA.16816.F32.BF16 -LDGSTS -LDSM -HGMMA",
    "ch10/optimized_cp_async_stages__two_stage product": "LDGSTS.E.BYPASS HMMA -LDG.E -LDSM -HGMMA",
    "ch10/optimized_cp_async_stages__ldmatrix_swizzle product": "LDGSTS.E.BYPASS LDSM.16.M88.4 HMMA -LDG.E -HGMMA",
    "ch10/optimized_cp_async_stages productILb1E": "LDGSTS.E.BYPASS LDSM.16.M88.4 HMMA -LDG.E -HGMMA",
    "ch10/baseline_softmax_dsmem softmax_twiceILi4E": "-STAS",
    "ch10/optimized_softmax_dsmem softmax_sharedILi4E": "STAS LDGSTS.E.128",
    "ch10/baseline_gemm_wgmma product": "HMMA.16816.F32.BF16 LDSM.16.M88.4 LDGSTS.E.BYPASS.128 -HGMMA -UTMALDG",
    **{
        f"ch10/optimized_gemm_wgmma{rung} product": " ".join([*HOPPER[:used], *(f"-{unit}" for unit in HOPPER[used:])])
        for rung, used in {"__wgmma": 1, "__multicast": 4, "": 5}.items()
    },
    **{
        f"ch10/optimized_gemm_wgmma__{rung} product": "HGMMA UTMALDG SYNCS.EXCH -UTMALDG.2D.MULTICAST -UTMASTG -HMMA"
        for rung in ("tma", "stages", "specialized", "wide_tile", "persistent")
    },
    "ch10/optimized_fp8_wgmma_gemm product": "QGMMA.64x256x32.F32.E4M3.E4M3 UTMALDG.2D.MULTICAST UTMASTG -HGMMA",
    "ch10/optimized_fp8_wgmma_gemm__promoted product": "QGMMA.64x128x32.F32.E4M3.E4M3 UTMASTG -HGMMA",
    "ch10/optimized_tma_im2col_conv convolve": "HGMMA.64x256x16.F32.BF16 UTMALDG.4D.IM2COL UTMASTG -LDGSTS",
    "ch10/optimized_tcgen05_epilogue_overlap product": "UTCHMMA UTMALDG.2D LDTM.x32 UTCBAR -HMMA -HGMMA",
    "ch10/optimized_tcgen05_gemm product": "UTCHMMA UTMALDG.2D LDTM.x32 UTCBAR -UTCHMMA.2CTA -HMMA -HGMMA",
    "ch10/optimized_tcgen05_gemm__pair product": "UTCHMMA.2CTA UTMALDG.2D.2CTA LDTM.x32 UTCBAR.2CTA.MULTICAST -HGMMA",
    "ch13/optimized_int8_dynamic_linear product": "IGMMA UTMALDG.2D.MULTICAST UTMASTG -HGMMA -IMMA",
    "ch13/optimized_wgrad_accumulate product": "HGMMA UTMALDG.2D.MULTICAST UTMAREDG.2D.ADD -UTMASTG",
    "ch16/optimized_decode_megakernel all_phases": "UBLKCP REDG.E.ADD.STRONG.GPU LDG.E.128.STRONG.GPU",
    "ch19/optimized_int4_prepacked_gemm linear": "HGMMA.64x16x16 LDS.128 LDGSTS.E.BYPASS HADD2.BF16 -HMMA -LDSM -I2FP",
    "ch19/optimized_int4_prepacked_gemm__mma_sync linearILi16E": (
        "HMMA.16816.F32.BF16 LDSM LDS.128 LDGSTS.E.BYPASS -HFMA2 -I2FP"
    ),
    "ch19/optimized_nvfp4_gemm product": "UTCOMMA UTCCP UTMALDG.2D UBLKCP LDTM.x32 -UTCHMMA -HMMA",
    "ch19/optimized_nvfp4_gemm__mma_sync product": "OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X LDSM.16.M88.4 LDGSTS.E.BYPASS",
    "ch19/optimized_int4_prepacked_gemm__fused linearILi16E": "HMMA.16816.F32.BF16 LDSM LOP3 -LDS.128 -HFMA2 -I2FP",
}
PROMISED = {ROOT / f"{where.split()[0]}.cu" for where in INSTRUCTIONS}
COMPILED = [
    path
    for pair in PROVEN
    for variant in pair.variants
    if (path := variant.path.with_suffix(".cu")) in SOURCES and (pair in CHANGED or path in PROMISED)
]
needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc")


def archs_for(source: Path) -> tuple[str, ...]:
    """What a file is compiled for: one for other GPUs alone for all of its targets."""
    targets = cuda_targets(source)[0] or (ARCH,)
    return (ARCH,) if ARCH in targets else targets


@cache
def compiled(source: Path, arch: str = "") -> Library:
    if lacking := unmet(Requirements(headers=NEEDS[source].headers), machine()):
        pytest.skip("; ".join(lacking))
    return compile_source(source, arch or archs_for(source)[0])


@needs_nvcc
@pytest.mark.parametrize("source", COMPILED, ids=lambda path: path.stem)
def test_its_kernels_stay_in_registers_unless_it_says_so(source: Path) -> None:
    if sm_of(archs_for(source)[0]) < (NEEDS[source].sm or 0):
        pytest.skip(f"not for {archs_for(source)[0]}")
    used = {one.name: (one.spill_bytes, one.stack_bytes) for one in kernels_of(compiled(source))}
    local = {name: sizes for name, sizes in used.items() if sizes != (0, 0)}
    labelled = SPILLS.search("\n".join(source.read_text().splitlines()[:12])) is not None
    assert bool(local) == labelled, local


@cache
def machine_code(library: Path) -> dict[str, list[str]]:
    """The opcodes of each kernel, in their order, by its mangled name."""
    command = [str(find_program("cuobjdump")), "-sass", str(library)]
    _, *parts = FUNCTION.split(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return {name: OPCODE.findall(code) for name, code in zip(parts[::2], parts[1::2])}


PROMISES = [
    pytest.param(where, arch, marks=[pytest.mark.nightly] if later else [])
    for where in INSTRUCTIONS
    if (source := ROOT / f"{where.split()[0]}.cu") in COMPILED
    for later, arch in enumerate(archs_for(source))
]


@needs_nvcc
@pytest.mark.skipif(find_program("cuobjdump") is None, reason="needs cuobjdump")
@pytest.mark.parametrize(("where", "arch"), PROMISES)
def test_its_machine_code_has_what_it_promises(where: str, arch: str) -> None:
    file, kernel = where.split()
    [code] = [code for name, code in machine_code(compiled(ROOT / f"{file}.cu", arch).path).items() if kernel in name]
    found = {
        word: any(opcode.startswith(word.removeprefix("-")) for opcode in code) for word in INSTRUCTIONS[where].split()
    }
    assert found == {word: not word.startswith("-") for word in found}


@needs_nvcc
@pytest.mark.parametrize("source", [path for path in COMPILED if path.stem.startswith("optimized_gemm_wgmma")], ids=str)
def test_the_compiler_puts_no_wait_between_products_of_a_warp_group(source: Path) -> None:
    """It would, if registers of the sums were touched in between; ptxas then warns that products are serialised."""
    [code] = [code for name, code in machine_code(compiled(source).path).items() if "product" in name]
    products = [index for index, one in enumerate(code) if one.startswith("HGMMA")]
    assert not any(one.startswith("WARPGROUP") for one in code[products[0] : products[-1]])


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_build_compiles_it_for_the_least_gpu_that_it_says_it_runs_on(source: Path) -> None:
    targets, least = NEEDS[source].targets, NEEDS[source].sm
    assert set(targets or [arch_of(least or 80)]) <= set(TARGETS)
