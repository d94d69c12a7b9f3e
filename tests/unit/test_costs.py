"""The declared cost of every pair at three sizes, worked out by hand from the problem: bytes in and out, and FLOPs.

The numbers are written out, not computed, so that a formula which changes has to be defended here.
"""

import importlib
from pathlib import Path
from typing import Any

import pytest

from common.python.discovery import find_pairs
from common.python.results import Cost

ROOT = Path(__file__).resolve().parents[2]
Row = tuple[str, dict[str, Any], dict[str, Any]]

ROWS: list[Row] = [
    # fp32 in and out: 8 bytes an element; multiply, add, two comparisons, square, add: 6 FLOPs an element.
    ("ch01:arithmetic_intensity", {"n": 10}, {"hbm_bytes": 80, "flops": 60}),
    ("ch01:arithmetic_intensity", {"n": 1027}, {"hbm_bytes": 8216, "flops": 6162}),
    ("ch01:arithmetic_intensity", {"n": 67108864}, {"hbm_bytes": 536870912, "flops": 402653184}),
    # bf16: 2 x 4 x 4 weights and 12 numbers each in and out are 56 of 2 bytes; 3 requests x 32 weights x 2 FLOPs.
    (
        "ch01:batch_size",
        {"requests": 3, "width": 4, "layers": 2},
        {"hbm_bytes": 112, "flops": 192, "dtype": "bf16", "items": 3, "unit": "requests"},
    ),
    (
        "ch01:batch_size",
        {"requests": 11, "width": 37, "layers": 3},
        {"hbm_bytes": 9842, "flops": 90354, "dtype": "bf16", "items": 11, "unit": "requests"},
    ),
    (
        "ch01:batch_size",
        {"requests": 256, "width": 8192, "layers": 8},
        {"hbm_bytes": 1082130432, "flops": 274877906944, "dtype": "bf16", "items": 256, "unit": "requests"},
    ),
    # two products of 3 x 3: 27 multiply-adds each; three matrices of 9 floats each.
    ("ch01:batched_gemm", {"count": 2, "n": 3}, {"hbm_bytes": 216, "flops": 108, "launches": 1}),
    ("ch01:batched_gemm", {"count": 3, "n": 37}, {"hbm_bytes": 49284, "flops": 303918, "launches": 1}),
    ("ch01:batched_gemm", {"count": 40, "n": 256}, {"hbm_bytes": 31457280, "flops": 1342177280, "launches": 1}),
    # two layers of 9 weights and 3 biases, 6 numbers each in and out: 36 floats; 2 rows x 18 weights x 2 FLOPs.
    ("ch01:cuda_graph", {"batch": 2, "width": 3, "layers": 2}, {"hbm_bytes": 144, "flops": 72, "launches": 1}),
    ("ch01:cuda_graph", {"batch": 3, "width": 29, "layers": 4}, {"hbm_bytes": 14616, "flops": 20184, "launches": 1}),
    (
        "ch01:cuda_graph",
        {"batch": 8, "width": 256, "layers": 20},
        {"hbm_bytes": 5279744, "flops": 20971520, "launches": 1},
    ),
    # weights 2x3, 3x3, 3x2 are 21; eight steps of 2 x (3 x 21 - 6) FLOPs an image, for images need no gradient.
    # 8 images of 2 floats cross PCIe and are written and read in memory; 21 weights are read and written.
    (
        "ch01:goodput_loop",
        {"batch": 1, "pixels": 2, "width": 3, "layers": 3},
        {"hbm_bytes": 296, "flops": 912, "pcie_bytes": 64, "items": 8, "unit": "images"},
    ),
    (
        "ch01:goodput_loop",
        {"batch": 5, "pixels": 19, "width": 13, "layers": 3},
        {"hbm_bytes": 11384, "flops": 139360, "pcie_bytes": 3040, "items": 40, "unit": "images"},
    ),
    (
        "ch01:goodput_loop",
        {"batch": 128, "pixels": 3072, "width": 256, "layers": 8},
        {"hbm_bytes": 40894464, "flops": 10468982784, "pcie_bytes": 12582912, "items": 1024, "unit": "images"},
    ),
    ("ch01:pinned_copy", {"n": 10}, {"pcie_bytes": 40, "hbm_bytes": 40, "host_bytes": 40}),
    ("ch01:pinned_copy", {"n": 1027}, {"pcie_bytes": 4108, "hbm_bytes": 4108, "host_bytes": 4108}),
    (
        "ch01:pinned_copy",
        {"n": 16777216},
        {"pcie_bytes": 67108864, "hbm_bytes": 67108864, "host_bytes": 67108864},
    ),
    # one image of 3 x 2 x 2: 12 bytes in, 12 floats out.
    ("ch03:malloc_page_faults", {"images": 1, "side": 2}, {"host_bytes": 60, "items": 1, "unit": "images"}),
    ("ch03:malloc_page_faults", {"images": 3, "side": 33}, {"host_bytes": 49005, "items": 3, "unit": "images"}),
    ("ch03:malloc_page_faults", {"images": 64, "side": 224}, {"host_bytes": 48168960, "items": 64, "unit": "images"}),
    (
        "ch05:small_file_shards",
        {"shards": 1, "per_shard": 2, "record": 3},
        {"disk_bytes": 6, "items": 2, "unit": "samples"},
    ),
    (
        "ch05:small_file_shards",
        {"shards": 3, "per_shard": 7, "record": 501},
        {"disk_bytes": 10521, "items": 21, "unit": "samples"},
    ),
    (
        "ch05:small_file_shards",
        {"shards": 4, "per_shard": 128, "record": 32768},
        {"disk_bytes": 16777216, "items": 512, "unit": "samples"},
    ),
    # two arrays of floats in and one out, one addition an element.
    ("ch06:vector_add_grid", {"n": 10}, {"hbm_bytes": 120, "flops": 10}),
    ("ch06:vector_add_grid", {"n": 20011}, {"hbm_bytes": 240132, "flops": 20011}),
    ("ch06:vector_add_grid", {"n": 67108864}, {"hbm_bytes": 805306368, "flops": 67108864}),
    ("ch06:block_reduction", {"n": 10}, {"hbm_bytes": 40, "flops": 10}),
    ("ch06:block_reduction", {"n": 65543}, {"hbm_bytes": 262172, "flops": 65543}),
    ("ch06:block_reduction", {"n": 268435456}, {"hbm_bytes": 1073741824, "flops": 268435456}),
    # floats cross PCIe once in each direction, and each is multiplied and added to.
    ("ch06:managed_prefetch", {"n": 10}, {"pcie_bytes": 40, "flops": 20}),
    ("ch06:managed_prefetch", {"n": 20011}, {"pcie_bytes": 80044, "flops": 40022}),
    ("ch06:managed_prefetch", {"n": 67108864}, {"pcie_bytes": 268435456, "flops": 134217728}),
    # 2 x 3 results of 4 multiply-adds; 8 + 12 + 6 numbers, of 4 bytes.
    ("ch07:sgemm_tiling", {"m": 2, "n": 3, "k": 4}, {"hbm_bytes": 104, "flops": 48, "dtype": "fp32"}),
    (
        "ch07:sgemm_tiling",
        {"m": 197, "n": 131, "k": 73},
        {"hbm_bytes": 199004, "flops": 3767822, "dtype": "fp32"},
    ),
    (
        "ch07:sgemm_tiling",
        {"m": 4096, "n": 4096, "k": 4096},
        {"hbm_bytes": 201326592, "flops": 137438953472, "dtype": "fp32"},
    ),
    ("ch07:strided_copy", {"n": 10}, {"hbm_bytes": 80}),
    ("ch07:strided_copy", {"n": 20011}, {"hbm_bytes": 160088}),
    ("ch07:strided_copy", {"n": 268435456}, {"hbm_bytes": 2147483648}),
    ("ch07:transpose", {"rows": 2, "columns": 3}, {"hbm_bytes": 48}),
    ("ch07:transpose", {"rows": 97, "columns": 131}, {"hbm_bytes": 101656}),
    ("ch07:transpose", {"rows": 16384, "columns": 16384}, {"hbm_bytes": 2147483648}),
    # a byte a code, and 256 counters of 4 bytes.
    ("ch08:histogram_privatized", {"n": 10}, {"hbm_bytes": 1034, "items": 10, "unit": "codes"}),
    ("ch08:histogram_privatized", {"n": 65543}, {"hbm_bytes": 66567, "items": 65543, "unit": "codes"}),
    ("ch08:histogram_privatized", {"n": 268435456}, {"hbm_bytes": 268436480, "items": 268435456, "unit": "codes"}),
    # six codes of a byte in and six values of two bytes out, two scales of four.
    ("ch08:bytes_in_flight", {"rows": 2, "columns": 3}, {"hbm_bytes": 26, "flops": 6}),
    ("ch08:bytes_in_flight", {"rows": 13, "columns": 9001}, {"hbm_bytes": 351091, "flops": 117013}),
    ("ch08:bytes_in_flight", {"rows": 32768, "columns": 8192}, {"hbm_bytes": 805437440, "flops": 268435456}),
    # four bf16 matrices of 2 x 3, two in and two out, and the 3 gains: 27 numbers of 2 bytes.
    ("ch09:add_rmsnorm", {"rows": 2, "columns": 3}, {"hbm_bytes": 54}),
    ("ch09:add_rmsnorm", {"rows": 5, "columns": 1283}, {"hbm_bytes": 53886}),
    ("ch09:add_rmsnorm", {"rows": 32768, "columns": 4096}, {"hbm_bytes": 1073750016}),
    # hidden has 6 numbers and the weight 15, of 2 bytes, once in and once out as gradients; 2 targets of 8 bytes.
    # Three products of 2 x 3 x 5 multiply-adds.
    (
        "ch09:linear_cross_entropy",
        {"tokens": 2, "width": 3, "vocabulary": 5, "dtype": "bfloat16"},
        {"hbm_bytes": 100, "flops": 180, "dtype": "bf16", "items": 2, "unit": "tokens"},
    ),
    (
        "ch09:linear_cross_entropy",
        {"tokens": 37, "width": 75, "vocabulary": 211, "dtype": "float16"},
        {"hbm_bytes": 74696, "flops": 3513150, "dtype": "bf16", "items": 37, "unit": "tokens"},
    ),
    (
        "ch09:linear_cross_entropy",
        {"tokens": 8192, "width": 4096, "vocabulary": 32000, "dtype": "bfloat16"},
        {"hbm_bytes": 658571264, "flops": 6442450944000, "dtype": "bf16", "items": 8192, "unit": "tokens"},
    ),
    ("ch09:softmax", {"rows": 2, "columns": 3}, {"hbm_bytes": 48}),
    ("ch09:softmax", {"rows": 5, "columns": 4999}, {"hbm_bytes": 199960}),
    ("ch09:softmax", {"rows": 32768, "columns": 8192}, {"hbm_bytes": 2147483648}),
    # 60 iterations of two scalings, each of which waits for the other; distances in and the plan out.
    ("ch12:sinkhorn_while_node", {"rows": 2, "columns": 3}, {"launches": 120, "hbm_bytes": 48}),
    ("ch12:sinkhorn_while_node", {"rows": 67, "columns": 53}, {"launches": 120, "hbm_bytes": 28408}),
    ("ch12:sinkhorn_while_node", {"rows": 512, "columns": 512}, {"launches": 120, "hbm_bytes": 2097152}),
    # the same of 2 bytes each.
    ("ch10:gemm_wgmma", {"m": 2, "n": 3, "k": 4}, {"hbm_bytes": 52, "flops": 48, "dtype": "bf16"}),
    (
        "ch10:gemm_wgmma",
        {"m": 397, "n": 328, "k": 584},
        {"hbm_bytes": 1107232, "flops": 152092288, "dtype": "bf16"},
    ),
    (
        "ch10:gemm_wgmma",
        {"m": 8192, "n": 8192, "k": 8192},
        {"hbm_bytes": 402653184, "flops": 1099511627776, "dtype": "bf16"},
    ),
    # 12 x 16 weights in the block and 512 x 4 in the embedding: 2240. A weight is 6 FLOPs a token; causal attention
    # over 3 tokens of width 4 is another 6 x 12. AdamW reads weight, gradient and two moments, and writes all but the
    # gradient: 7 floats a weight. The chain: 5 products forward, 10 backward, 3 for the head.
    (
        "ch12:train_step_capture",
        {"layers": 1, "width": 4, "batch": 2, "length": 3},
        {"hbm_bytes": 62720, "flops": 81072, "launches": 18, "items": 6, "unit": "tokens"},
    ),
    (
        "ch12:train_step_capture",
        {"layers": 2, "width": 20, "batch": 3, "length": 7},
        {"hbm_bytes": 555520, "flops": 2535120, "launches": 33, "items": 21, "unit": "tokens"},
    ),
    (
        "ch12:train_step_capture",
        {"layers": 8, "width": 128, "batch": 4, "length": 64},
        {"hbm_bytes": 45875200, "flops": 2617245696, "launches": 123, "items": 256, "unit": "tokens"},
    ),
    # 12 x 64 x 64 weights and as many gradients, 2 x 64 numbers each of x and target, all bf16.
    (
        "ch13:activation_checkpointing",
        {"blocks": 1, "width": 64, "batch": 1, "length": 2},
        {"hbm_bytes": 197120, "flops": 591360, "dtype": "bf16", "items": 2, "unit": "tokens"},
    ),
    (
        "ch13:activation_checkpointing",
        {"blocks": 3, "width": 128, "batch": 3, "length": 37},
        {"hbm_bytes": 2416128, "flops": 402285312, "dtype": "bf16", "items": 111, "unit": "tokens"},
    ),
    (
        "ch13:activation_checkpointing",
        {"blocks": 24, "width": 512, "batch": 16, "length": 512},
        {"hbm_bytes": 318767104, "flops": 4020089389056, "dtype": "bf16", "items": 8192, "unit": "tokens"},
    ),
    # 48 weights, 18 biases and 8 of the norms are 74 parameters; 4 floats of each are read and 3 written.
    ("ch13:adamw_fused", {"layers": 1, "width": 2}, {"hbm_bytes": 2072, "launches": 1}),
    ("ch13:adamw_fused", {"layers": 2, "width": 19}, {"hbm_bytes": 256424, "launches": 1}),
    ("ch13:adamw_fused", {"layers": 4, "width": 1280}, {"hbm_bytes": 2203873280, "launches": 1}),
    # 6 codes of a byte; 3 scales, 2 numbers in and 3 out of two bytes.
    (
        "ch13:int8_weight_only_decode",
        {"tokens": 1, "features": 2, "outputs": 3, "dtype": "bfloat16"},
        {"hbm_bytes": 22, "flops": 12, "dtype": "bf16", "items": 1, "unit": "tokens"},
    ),
    (
        "ch13:int8_weight_only_decode",
        {"tokens": 3, "features": 331, "outputs": 77, "dtype": "float16"},
        {"hbm_bytes": 28089, "flops": 152922, "dtype": "bf16", "items": 3, "unit": "tokens"},
    ),
    (
        "ch13:int8_weight_only_decode",
        {"tokens": 4, "features": 8192, "outputs": 57344, "dtype": "bfloat16"},
        {"hbm_bytes": 470401024, "flops": 3758096384, "dtype": "bf16", "items": 4, "unit": "tokens"},
    ),
]


@pytest.mark.parametrize(
    ("key", "size", "wanted"), ROWS, ids=[f"{key}-{index % 3}" for index, (key, *_) in enumerate(ROWS)]
)
def test_the_declared_cost_is_what_the_problem_needs(key: str, size: dict[str, Any], wanted: dict[str, Any]) -> None:
    chapter, name = key.split(":")
    workload = importlib.import_module(f"{chapter}.baseline_{name}").workload
    assert workload.cost(**size) == Cost(**wanted)


def test_every_pair_is_here_at_three_sizes_two_of_them_its_own() -> None:
    pairs = {pair.key for pair in find_pairs(ROOT)}
    sizes: dict[str, list[dict[str, Any]]] = {}
    for key, size, _ in ROWS:
        sizes.setdefault(key, []).append(size)
    assert set(sizes) == pairs
    for key, given in sizes.items():
        chapter, name = key.split(":")
        own = importlib.import_module(f"{chapter}.baseline_{name}").workload.sizes
        assert len({str(size) for size in given}) >= 3, key
        assert own["bench"] in given, key
        assert own["test"] in given, key
