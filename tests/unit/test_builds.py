"""What ptxas and PTX say of kernels is read as it is written; the table of features is what ptxas accepts."""

import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from rich.console import Console
from synthetic_run import manifest

from common.python.base.toolkit import find_nvcc, nvcc_version
from common.python.build.record import CHIPS, UNITS, Build, Compiled, KernelUse, kernel_uses
from common.python.build.report import print_build

# As nvcc 13.0 writes them with `-Xptxas -v`: a function that is not inlined stands below the kernel that calls it.
LOG = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z4copyILi64EEvPKfPf' for 'sm_90a'
ptxas info    : Function properties for _Z4copyILi64EEvPKfPf
    256 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 80 registers, used 0 barriers, 256 bytes cumulative stack size
ptxas info    : Compile time = 17.371 ms
ptxas info    : Compiling entry function '_ZN29_GLOBAL__N__82b42667_4_m_cu_f2mmEPK6__halfPf' for 'sm_90a'
ptxas info    : Function properties for _ZN29_GLOBAL__N__82b42667_4_m_cu_f2mmEPK6__halfPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 26 registers, used 1 barriers, 4096 bytes smem
ptxas info    : Compile time = 28.680 ms
ptxas info    : Compiling entry function 'spill' for 'sm_90a'
ptxas info    : Function properties for spill
    912 bytes stack frame, 680 bytes spill stores, 920 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 912 bytes cumulative stack size
ptxas info    : Compile time = 41.082 ms
ptxas info    : Function properties for _Z3devPfi
    16 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
"""
PTX = """\
.func (.param .b32 func_retval0) _Z3devPfi( ) { mma.sync.aligned.m16n8k8; }
.visible .entry _Z4copyILi64EEvPKfPf( ) { ld.global.f32; }
.entry _ZN29_GLOBAL__N__82b42667_4_m_cu_f2mmEPK6__halfPf( ) { wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32; }
.visible .entry spill( ) { %s }
"""


def test_each_kernel_has_what_its_own_lines_say() -> None:
    copy, product, spill = kernel_uses(LOG, PTX % "")
    assert copy == KernelUse(name="copy<64>", registers=80, spill_bytes=0, stack_bytes=256, shared_bytes=0)
    assert (product.registers, product.shared_bytes, product.stack_bytes) == (26, 4096, 0)
    assert product.name == "(anonymous namespace)::mm"
    assert (spill.registers, spill.spill_bytes, spill.stack_bytes) == (32, 680 + 920 + 4 + 8, 912 + 16)


@pytest.mark.parametrize(
    ("code", "matrix"),
    [
        ("fma.rn.f32", None),
        ("wmma.load.a.sync.aligned.row.m16n16k16.global.f16", None),
        ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "mma"),
        ("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col", "mma"),
        ("wgmma.fence.sync.aligned; mma.sync.aligned.m16n8k8", "mma"),
        ("mma.sync.aligned.m16n8k8; wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", "wgmma"),
        ("tcgen05.alloc.cta_group::1.sync.aligned", None),
        ("mma.sync.aligned.m16n8k8; tcgen05.mma.cta_group::1.kind::f16", "tcgen05"),
    ],
)
def test_the_matrix_instruction_is_the_greatest_in_the_kernel_itself(code: str, matrix: str | None) -> None:
    assert [use.matrix for use in kernel_uses(LOG, PTX % code)] == [None, "mma", matrix]


def test_what_ptxas_does_not_say_is_unknown_rather_than_none() -> None:
    (use,) = kernel_uses("ptxas info : Compiling entry function 'f' for 'sm_200'\nin words that nobody knows yet", "")
    assert use == KernelUse(name="f")
    assert (use.registers, use.spill_bytes, use.stack_bytes, use.shared_bytes) == (None, None, None, None)


def test_local_memory_is_a_warning_with_kernel_file_and_architecture() -> None:
    kernels = [
        KernelUse(name="fits", registers=255, spill_bytes=0, stack_bytes=0),
        KernelUse(name="spills", spill_bytes=8, stack_bytes=16),
        KernelUse(name="indexes", spill_bytes=0, stack_bytes=256),
    ]
    fields = {"source": "ch07/optimized_x.cu", "language": "CUDA", "arch": "sm_90a", "status": "compiled"}
    compiled = Compiled(**fields, kernels=kernels)
    assert compiled.warnings == [
        "ch07/optimized_x.cu, sm_90a: spills spills 8 bytes and has a stack frame of 16 bytes in local memory",
        "ch07/optimized_x.cu, sm_90a: indexes has a stack frame of 256 bytes in local memory",
    ]


def test_the_table_is_titled_compiled_not_run_and_cuts_long_kernel_names_and_nothing_else(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = [KernelUse(name=f"cutlass::device_kernel<{'cute::tuple<int>, ' * 100}>::end", registers=168)]
    fields = {"source": "ch09/optimized_x.cu", "language": "CUDA", "status": "compiled", "kernels": kernels}
    compiled = [Compiled(**fields, arch=arch) for arch in ("sm_90a", "sm_100a")]
    archs = [one.arch for one in compiled]
    build = Build(manifest=manifest(), finished="", seconds=1, archs=archs, warnings=[], compiled=compiled)
    print_build(build, Path())
    title, row, _ = (line for line in capsys.readouterr().out.splitlines() if "not run" in line or "168" in line)
    assert "compiled, not run" in title
    cells = [cell.strip() for cell in row.split("│")[1:-1]]
    assert cells[:4] == ["ch09/optimized_x.cu", "sm_90a", "cutlass::device_kern…:tuple<int>, >::end", "168"]
    monkeypatch.setattr("common.python.build.report.wide_console", lambda: Console(width=80))
    print_build(build, Path())
    rows = [line.split("│")[1:-1] for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    folded = ["".join(cell.strip() for cell in column) for column in zip(*rows)]
    assert folded == [cells[0] * 2, "sm_90asm_100a", cells[2] * 2, "168" * 2]  # whole, and no column that is empty


# One instruction a feature, assembled for each compute capability.
COPY = "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
FRAGMENTS = "{f0, f1, f2, f3}, {r0, r1, r2, r3}, {r4, r5}, {f0, f1, f2, f3}"
FP4 = (
    f"mma.sync.aligned.kind::mxf4.block_scale.scale_vec::2X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue8m0 {FRAGMENTS}, "
    "r6, {h, h}, r7, {h, h};"
)
INSTRUCTIONS = {
    "wgmma": "wgmma.fence.sync.aligned;",
    "TMA": f"{COPY} [r0], [d0, {{r1}}], [r2];",
    "clusters": "barrier.cluster.arrive;",
    "DSMEM": "mapa.shared::cluster.u32 r0, r1, 1; ld.shared::cluster.u32 r2, [r0];",
    "cluster multicast": f"{COPY}.multicast::cluster [r0], [d0, {{r1}}], [r2], h;",
    "tcgen05": "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [r0], 32;",
    "fp8": f"mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {FRAGMENTS};",
    "fp4": FP4,
}
TENSOR_MEMORY_FP4 = "tcgen05.mma.cta_group::1.kind::mxf4.block_scale [r0], d0, d0, r0, [r0], [r0], p;"
KERNEL = """.version 9.0
.target {target}
.address_size 64
.visible .entry k() {{ .reg .b64 d0; .reg .b32 r<8>; .reg .f32 f<4>; .reg .b16 h; .reg .pred p; {body} ret; }}
"""


def ptxas() -> str | None:
    nvcc = find_nvcc()
    return shutil.which("ptxas") or (shutil.which("ptxas", path=str(nvcc.resolve().parent)) if nvcc else None)


def assembles(folder: Path, sm: int, name: str) -> bool:
    """Whether ptxas takes the instruction without saying that it will be slow, which it says where it emulates."""
    target = f"sm_{sm}" + "a" * (sm >= 90)
    body = TENSOR_MEMORY_FP4 if name == "fp4" and "tcgen05" in CHIPS[sm].units else INSTRUCTIONS[name]
    source = folder / f"{sm}-{name}.ptx"
    source.write_text(KERNEL.format(target=target, body=body))
    command = [str(ptxas()), f"-arch={target}", str(source), "-o", str(source.with_suffix(".cubin"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    refused = re.search("not supported on|requires .target", done.stderr)  # and not misspelt
    assert done.returncode == 0 or refused, done.stderr
    return done.returncode == 0 and "reduced performance" not in done.stderr


@pytest.mark.skipif(ptxas() is None or (nvcc_version() or "") < "13", reason="needs the ptxas of CUDA 13")
def test_the_table_is_what_ptxas_says(tmp_path: Path) -> None:
    known = [sm for sm in CHIPS if sm >= 75]  # CUDA 13 assembles for none before
    cells = [(sm, name) for sm in known for name in UNITS]
    with ThreadPoolExecutor() as pool:
        found = dict(zip(cells, pool.map(lambda cell: assembles(tmp_path, *cell), cells)))
    for sm in known:
        assert CHIPS[sm].units == [name for name in UNITS if found[sm, name]], f"sm_{sm}"
