"""Hand-written kernels at sizes that neither `bench` nor `test` has: one element, none left over, one too many.

A kernel that handles whole words and what is left over has two paths, and `bench` runs only the first of them.
"""

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch

from common.python.base.machine import machine
from common.python.corpus.discovery import Variant, find_pairs
from common.python.proof.comparison import compare, leaves
from common.python.requirements import unmet
from common.python.workload import Draw, Metered

ROOT = Path(__file__).resolve().parents[2]
LENGTHS = [{"n": n} for n in (1, 3, 15, 16, 17, 255, 256, 257, 4095, 65536, 65537, 1 << 20, (1 << 20) + 5)]
SIZES: dict[str, list[dict[str, Any]]] = {
    "ch01:arithmetic_intensity": LENGTHS,
    "ch06:vector_add_grid": LENGTHS,
    "ch06:block_reduction": [*LENGTHS, {"n": (1 << 24) + 1}],
    "ch06:managed_prefetch": [*LENGTHS, {"n": 1 << 22}, {"n": (1 << 22) + 1}, {"n": (1 << 23) + 5}],
    "ch07:strided_copy": [*LENGTHS, *({"n": n} for n in (31, 33, 1023, 1024, 1025, 8191, 8193))],
    "ch07:transpose": [  # of one element, of whole tiles, of whole pieces of 16 bytes, and of neither
        {"rows": rows, "columns": columns}
        for rows, columns in (
            (1, 1),
            (1, 7),
            (7, 1),
            (4, 8),
            (32, 64),
            (64, 128),
            (68, 132),
            (65, 63),
            (129, 4),
            (4, 257),
        )
    ],
    "ch07:sgemm_tiling": [  # sizes of one, of whole tiles, of whole pieces of 16 bytes, and of neither
        {"m": m, "n": n, "k": k}
        for m, n, k in ((1, 1, 1), (128, 128, 16), (256, 384, 48), (129, 132, 20), (128, 128, 8), (65, 63, 257))
    ],
    "ch10:gemm_wgmma": [  # of one box, of one stage more than the ring has, and of more tiles than multiprocessors
        {"m": m, "n": n, "k": k}
        for m, n, k in ((1, 64, 8), (128, 256, 64), (129, 264, 72), (257, 8, 320), (4097, 1032, 200), (2300, 4104, 264))
    ],
    "ch08:histogram_privatized": [*LENGTHS, {"n": (1 << 26) + 7}],
    "ch02:tensor_core_gemm": [  # k is a multiple of 8
        {"m": m, "n": n, "k": k}
        for m, n, k in ((1, 1, 8), (128, 256, 64), (256, 384, 192), (129, 257, 40), (127, 255, 8), (300, 8, 1000))
    ],
    "ch02:zero_copy_gather": [
        {"rows": rows, "count": count, "width": width}
        for rows, count, width in ((1, 1, 1), (9, 8, 4), (9, 9, 3), (1000, 257, 128), (70, 65, 129))
    ],
    "ch10:cp_async_stages": [  # n and k are multiples of 8
        {"m": m, "n": n, "k": k}
        for m, n, k in ((1, 8, 8), (256, 128, 32), (257, 136, 40), (2304, 1032, 96), (300, 8, 200))
    ],
    "ch10:softmax_dsmem": [
        {"rows": rows, "columns": columns}
        for rows, columns in ((1, 1), (3, 4), (2, 8192), (1, 262143), (2, 262140), (40, 16384))
    ],
    "ch12:cg_solver_graph": [  # a grid that closes on itself in one point of a side, whole blocks of 256, and neither
        {"rows": rows, "columns": columns}
        for rows, columns in ((1, 7), (7, 1), (5, 3), (16, 16), (17, 15), (129, 33), (255, 257))
    ],
    "ch12:sinkhorn_while_node": [  # one iteration and many, fewer than a warp and more than a block
        {"rows": rows, "columns": columns}
        for rows, columns in ((1, 1), (1, 9), (9, 1), (3, 5), (33, 31), (8, 256), (257, 7), (65, 129), (129, 255))
    ],
    "ch12:pdl_decode_chain": [  # width and inner are multiples of 8; less than a warp's part of a row, and more
        {"layers": layers, "width": width, "inner": inner}
        for layers, width, inner in ((1, 8, 8), (3, 40, 136), (2, 1032, 264))
    ],
    "ch19:int4_prepacked_gemm": [  # rows of each kernel; one group and one tile, tiles that blocks share, whole tiles
        {"rows": rows, "features": features, "outputs": outputs}
        for rows, features, outputs in (
            *((1, 128, 8), (7, 256, 264), (8, 14336, 4096), (9, 4096, 1032), (15, 640, 256), (16, 384, 248)),
            *((17, 512, 520), (31, 4096, 2056), (32, 128, 34056), (33, 896, 328), (48, 8192, 1000), (64, 4096, 14336)),
            (16, 128, 135176),
        )
    ],
    "ch08:bytes_in_flight": [
        {"rows": rows, "columns": columns}
        for rows, columns in (
            *((1, 2), (3, 4), (2, 8), (5, 1023), (5, 1028), (3, 2048), (3, 2052), (7, 8188), (7, 8192)),
            *((7, 8196), (1057, 8200), (2000, 257)),
        )
    ],
}
# Rounding grows with the condition number, 801, and few unknowns do not average it out: 1.2e-5 in float32 on a CPU.
TOLERANCE = {"ch12:cg_solver_graph": 5e-5}
VARIANTS = {
    f"{pair.key} {variant.name}": (pair.baseline.module, variant)
    for pair in find_pairs(ROOT)
    if pair.key in SIZES and pair.baseline is not None
    for variant in pair.variants
    if "CUDA" in variant.kinds or variant.role == "optimized"  # a graph of the baseline's kernels has none of its own
}


def wrong(
    baseline: str,
    module: str,
    size: dict[str, Any],
    device: torch.device,
    scratch: Path,
    within: float | None = None,
) -> str | None:
    """Why a variant's first step at this size is not the answer, within the workload's tolerance or this."""
    workload = importlib.import_module(baseline).workload
    inputs = workload.inputs(Draw(device, 1, scratch), **size)
    doubled = {
        name: value.to(device, torch.float64 if value.dtype.is_floating_point else value.dtype, copy=True)
        for name, value in inputs.items()
    }
    expected = leaves(workload.reference(**doubled))
    made = importlib.import_module(module).prepare(**inputs)
    output = leaves((made.step if isinstance(made, Metered) else made)())
    if device.type == "cuda":
        torch.cuda.synchronize()
    return compare(output, expected, [leaf.dtype for leaf in output], within or workload.tolerance).reason


@pytest.mark.parametrize("name", VARIANTS)
def test_a_kernel_is_right_at_every_size(name: str, tmp_path: Path) -> None:
    baseline, variant = VARIANTS[name]
    lacking(variant)
    key = name.split()[0]
    asked = baseline, variant.module
    found = {str(size): wrong(*asked, size, torch.device("cuda"), tmp_path, TOLERANCE.get(key)) for size in SIZES[key]}
    assert {size: reason for size, reason in found.items() if reason} == {}


def lacking(variant: Variant) -> None:
    if reasons := unmet(variant.required, machine()):
        pytest.skip("; ".join(reasons))
