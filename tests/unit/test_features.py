"""The table of features is what ptxas accepts: one instruction a feature, assembled for each compute capability."""

import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from common.python.base.toolkit import find_nvcc, nvcc_version
from common.python.build.record import CHIPS, UNITS

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
