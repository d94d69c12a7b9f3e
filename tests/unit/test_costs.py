"""The declared cost of every pair at three sizes, worked out by hand from the problem: bytes in and out, and FLOPs.

The numbers are written out, not computed, so that a formula which changes has to be defended here.
"""

import importlib
from pathlib import Path
from typing import Any

import pytest

from common.python.base.results import Cost
from common.python.corpus.discovery import find_pairs

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
    # two layers of 9 weights: 2 rows x 18 multiply-adds; 6 numbers in, 6 out and 18 weights, of 2 bytes.
    (
        "ch02:depth_first_mlp",
        {"rows": 2, "width": 3, "layers": 2, "dtype": "bfloat16"},
        {"hbm_bytes": 60, "flops": 72, "dtype": "bf16", "items": 2, "unit": "rows"},
    ),
    (
        "ch02:depth_first_mlp",
        {"rows": 20011, "width": 24, "layers": 3, "dtype": "float16"},
        {"hbm_bytes": 1924512, "flops": 69158016, "dtype": "bf16", "items": 20011, "unit": "rows"},
    ),
    (
        "ch02:depth_first_mlp",
        {"rows": 1048576, "width": 256, "layers": 8, "dtype": "bfloat16"},
        {"hbm_bytes": 1074790400, "flops": 1099511627776, "dtype": "bf16", "items": 1048576, "unit": "rows"},
    ),
    # floats of 4 bytes go out over the link, are read in this GPU's memory, and as many that come in are written.
    ("ch02:p2p_copy", {"n": 10}, {"nvlink_bytes": 40, "hbm_bytes": 80}),
    ("ch02:p2p_copy", {"n": 1027}, {"nvlink_bytes": 4108, "hbm_bytes": 8216}),
    ("ch02:p2p_copy", {"n": 16777216}, {"nvlink_bytes": 67108864, "hbm_bytes": 134217728}),
    # 2 x 3 results of 4 multiply-adds; 8 + 12 + 6 numbers, of 2 bytes.
    ("ch02:tensor_core_gemm", {"m": 2, "n": 3, "k": 4}, {"hbm_bytes": 52, "flops": 48, "dtype": "bf16"}),
    (
        "ch02:tensor_core_gemm",
        {"m": 197, "n": 331, "k": 104},
        {"hbm_bytes": 240238, "flops": 13563056, "dtype": "bf16"},
    ),
    (
        "ch02:tensor_core_gemm",
        {"m": 4096, "n": 4096, "k": 4096},
        {"hbm_bytes": 100663296, "flops": 137438953472, "dtype": "bf16"},
    ),
    # 2 rows of 3 floats are read from host memory, cross PCIe and are written, and 2 ids of 4 bytes are read.
    (
        "ch02:zero_copy_gather",
        {"rows": 4, "count": 2, "width": 3},
        {"pcie_bytes": 24, "host_bytes": 24, "hbm_bytes": 32},
    ),
    (
        "ch02:zero_copy_gather",
        {"rows": 1013, "count": 307, "width": 37},
        {"pcie_bytes": 45436, "host_bytes": 45436, "hbm_bytes": 46664},
    ),
    (
        "ch02:zero_copy_gather",
        {"rows": 524288, "count": 131072, "width": 128},
        {"pcie_bytes": 67108864, "host_bytes": 67108864, "hbm_bytes": 67633152},
    ),
    # one image of 3 x 2 x 2: 12 bytes in, 12 floats out.
    ("ch03:malloc_page_faults", {"images": 1, "side": 2}, {"host_bytes": 60, "items": 1, "unit": "images"}),
    ("ch03:malloc_page_faults", {"images": 3, "side": 33}, {"host_bytes": 49005, "items": 3, "unit": "images"}),
    ("ch03:malloc_page_faults", {"images": 64, "side": 224}, {"host_bytes": 48168960, "items": 64, "unit": "images"}),
    # a row of 12 bytes is read and written, and its id of 8 bytes read: 32 a pick.
    ("ch03:huge_page_gather", {"rows": 2, "width": 3, "picks": 5}, {"host_bytes": 160, "items": 5, "unit": "rows"}),
    (
        "ch03:huge_page_gather",
        {"rows": 997, "width": 33, "picks": 211},
        {"host_bytes": 57392, "items": 211, "unit": "rows"},
    ),
    (
        "ch03:huge_page_gather",
        {"rows": 33554432, "width": 8, "picks": 1048576},
        {"host_bytes": 75497472, "items": 1048576, "unit": "rows"},
    ),
    # 4 bytes a float, over PCIe, out of the host's memory and into the device's.
    ("ch03:staging_threads", {"n": 10}, {"pcie_bytes": 40, "hbm_bytes": 40, "host_bytes": 40}),
    (
        "ch03:staging_threads",
        {"n": 5000011},
        {"pcie_bytes": 20000044, "hbm_bytes": 20000044, "host_bytes": 20000044},
    ),
    (
        "ch03:staging_threads",
        {"n": 100663296},
        {"pcie_bytes": 402653184, "hbm_bytes": 402653184, "host_bytes": 402653184},
    ),
    # two frames of 4, one apart: 5 samples and 2 numbers out for each of 8 clips; 4 x 4 filters and 4 x 1 bands.
    (
        "ch03:worker_thread_budget",
        {"clips": 1, "frames": 2, "length": 4, "bands": 1},
        {"host_bytes": 304, "items": 8, "unit": "clips"},
    ),
    (
        "ch03:worker_thread_budget",
        {"clips": 2, "frames": 5, "length": 37, "bands": 3},
        {"host_bytes": 11552, "items": 16, "unit": "clips"},
    ),
    (
        "ch03:worker_thread_budget",
        {"clips": 8, "frames": 32, "length": 1024, "bands": 80},
        {"host_bytes": 7471104, "items": 64, "unit": "clips"},
    ),
    # 4 x (4 + 2) floats in 8 gradients; two ranks send all of theirs.
    ("ch04:bucketed_allreduce", {"layers": 1, "width": 2}, {"nvlink_bytes": 96, "items": 8, "unit": "gradients"}),
    ("ch04:bucketed_allreduce", {"layers": 3, "width": 37}, {"nvlink_bytes": 67488, "items": 24, "unit": "gradients"}),
    (
        "ch04:bucketed_allreduce",
        {"layers": 16, "width": 512},
        {"nvlink_bytes": 67239936, "items": 128, "unit": "gradients"},
    ),
    # two layers of 9 weights: 5 products (the batch needs no gradient) of 36 FLOPs; weights in and gradients out, bf16.
    (
        "ch04:ddp_overlap",
        {"rows": 2, "width": 3, "layers": 2},
        {"flops": 180, "dtype": "bf16", "hbm_bytes": 72, "nvlink_bytes": 36, "items": 2, "unit": "rows"},
    ),
    (
        "ch04:ddp_overlap",
        {"rows": 19, "width": 67, "layers": 3},
        {"flops": 1364656, "dtype": "bf16", "hbm_bytes": 53868, "nvlink_bytes": 26934, "items": 19, "unit": "rows"},
    ),
    (
        "ch04:ddp_overlap",
        {"rows": 2048, "width": 8192, "layers": 6},
        {
            "flops": 4672924418048,
            "dtype": "bf16",
            "hbm_bytes": 1610612736,
            "nvlink_bytes": 805306368,
            "items": 2048,
            "unit": "rows",
        },
    ),
    # of two ranks each sends half of its 6 numbers there and half back; x in and out, bf16.
    (
        "ch04:moe_all_to_all",
        {"tokens": 2, "width": 3},
        {"nvlink_bytes": 12, "hbm_bytes": 24, "items": 2, "unit": "tokens"},
    ),
    (
        "ch04:moe_all_to_all",
        {"tokens": 211, "width": 37},
        {"nvlink_bytes": 15614, "hbm_bytes": 31228, "items": 211, "unit": "tokens"},
    ),
    (
        "ch04:moe_all_to_all",
        {"tokens": 32768, "width": 4096},
        {"nvlink_bytes": 268435456, "hbm_bytes": 536870912, "items": 32768, "unit": "tokens"},
    ),
    # one of two layers is this rank's: 3 products of 16 FLOPs; two rows of two bf16 cross once each way.
    (
        "ch04:pipeline_schedule",
        {"rows": 2, "width": 2, "layers": 2},
        {"flops": 48, "dtype": "bf16", "nvlink_bytes": 8, "items": 2, "unit": "rows"},
    ),
    (
        "ch04:pipeline_schedule",
        {"rows": 28, "width": 131, "layers": 8},
        {"flops": 11532192, "dtype": "bf16", "nvlink_bytes": 7336, "items": 28, "unit": "rows"},
    ),
    (
        "ch04:pipeline_schedule",
        {"rows": 12288, "width": 4096, "layers": 8},
        {"flops": 4947802324992, "dtype": "bf16", "nvlink_bytes": 100663296, "items": 12288, "unit": "rows"},
    ),
    (
        "ch04:symmetric_allreduce",
        {"tokens": 1, "width": 8},
        {"nvlink_bytes": 16, "launches": 1, "items": 1, "unit": "tokens"},
    ),
    (
        "ch04:symmetric_allreduce",
        {"tokens": 5, "width": 104},
        {"nvlink_bytes": 1040, "launches": 1, "items": 5, "unit": "tokens"},
    ),
    (
        "ch04:symmetric_allreduce",
        {"tokens": 16, "width": 4096},
        {"nvlink_bytes": 131072, "launches": 1, "items": 16, "unit": "tokens"},
    ),
    (
        "ch04:symmetric_put",
        {"microbatches": 1, "tokens": 2, "width": 3},
        {"nvlink_bytes": 12, "items": 1, "unit": "microbatches"},
    ),
    (
        "ch04:symmetric_put",
        {"microbatches": 3, "tokens": 5, "width": 37},
        {"nvlink_bytes": 1110, "items": 3, "unit": "microbatches"},
    ),
    (
        "ch04:symmetric_put",
        {"microbatches": 8, "tokens": 2048, "width": 4096},
        {"nvlink_bytes": 134217728, "items": 8, "unit": "microbatches"},
    ),
    # 4 rows of 3 times 3 x 4, of which 2 x 4 sums are kept: 96 FLOPs; 12 + 12 numbers in, 8 out and 8 sent, bf16.
    (
        "ch04:tp_gemm_overlap",
        {"rows": 2, "inner": 3, "columns": 4},
        {"flops": 96, "dtype": "bf16", "hbm_bytes": 64, "nvlink_bytes": 16},
    ),
    (
        "ch04:tp_gemm_overlap",
        {"rows": 53, "inner": 29, "columns": 37},
        {"flops": 227476, "dtype": "bf16", "hbm_bytes": 12216, "nvlink_bytes": 3922},
    ),
    (
        "ch04:tp_gemm_overlap",
        {"rows": 16384, "inner": 1792, "columns": 4096},
        {"flops": 481036337152, "dtype": "bf16", "hbm_bytes": 266338304, "nvlink_bytes": 134217728},
    ),
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
    ("ch05:direct_read", {"n": 10}, {"disk_bytes": 10, "pcie_bytes": 10, "hbm_bytes": 10}),
    ("ch05:direct_read", {"n": 3149827}, {"disk_bytes": 3149827, "pcie_bytes": 3149827, "hbm_bytes": 3149827}),
    (
        "ch05:direct_read",
        {"n": 67108864},
        {"disk_bytes": 67108864, "pcie_bytes": 67108864, "hbm_bytes": 67108864},
    ),
    # 6 tokens of 4 numbers: 8 FLOPs for the layer and 2 for the head; 8 bytes a token are read and cross PCIe.
    (
        "ch05:dataloader_workers",
        {"texts": 2, "length": 3, "width": 4, "layers": 1},
        {"flops": 240, "pcie_bytes": 48, "host_bytes": 48, "items": 6, "unit": "tokens"},
    ),
    (
        "ch05:dataloader_workers",
        {"texts": 11, "length": 37, "width": 24, "layers": 2},
        {"flops": 175824, "pcie_bytes": 3256, "host_bytes": 3256, "items": 407, "unit": "tokens"},
    ),
    (
        "ch05:dataloader_workers",
        {"texts": 64, "length": 2048, "width": 4096, "layers": 4},
        {"flops": 18253611008, "pcie_bytes": 1048576, "host_bytes": 1048576, "items": 131072, "unit": "tokens"},
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
    ("ch06:managed_prefetch", {"n": 33554432}, {"pcie_bytes": 134217728, "flops": 67108864}),
    # 2 x 3 results of 4 multiply-adds; 8 + 12 + 6 numbers, of 4 bytes.
    ("ch07:sgemm_tiling", {"m": 2, "n": 3, "k": 4}, {"hbm_bytes": 104, "flops": 48, "dtype": "fp32"}),
    (
        "ch07:sgemm_tiling",
        {"m": 197, "n": 131, "k": 73},
        {"hbm_bytes": 199004, "flops": 3767822, "dtype": "fp32"},
    ),
    (
        "ch07:sgemm_tiling",
        {"m": 4096, "n": 4096, "k": 1024},
        {"hbm_bytes": 100663296, "flops": 34359738368, "dtype": "fp32"},
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
        {"tokens": 211, "width": 75, "vocabulary": 131, "dtype": "float16"},
        {"hbm_bytes": 104288, "flops": 12438450, "dtype": "bf16", "items": 211, "unit": "tokens"},
    ),
    (
        "ch09:linear_cross_entropy",
        {"tokens": 8192, "width": 4096, "vocabulary": 32000, "dtype": "bfloat16"},
        {"hbm_bytes": 658571264, "flops": 6442450944000, "dtype": "bf16", "items": 8192, "unit": "tokens"},
    ),
    ("ch09:softmax", {"rows": 2, "columns": 3}, {"hbm_bytes": 48}),
    ("ch09:softmax", {"rows": 5, "columns": 4999}, {"hbm_bytes": 199960}),
    ("ch09:softmax", {"rows": 32768, "columns": 8192}, {"hbm_bytes": 2147483648}),
    # 200 iterations, each with two sums that all later work waits for; b in and x out, 4 bytes each.
    ("ch12:cg_solver_graph", {"rows": 2, "columns": 3}, {"launches": 400, "hbm_bytes": 48}),
    ("ch12:cg_solver_graph", {"rows": 97, "columns": 89}, {"launches": 400, "hbm_bytes": 69064}),
    ("ch12:cg_solver_graph", {"rows": 128, "columns": 128}, {"launches": 400, "hbm_bytes": 131072}),
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
    ("ch10:cp_async_stages", {"m": 2, "n": 3, "k": 4}, {"hbm_bytes": 52, "flops": 48, "dtype": "bf16"}),
    (
        "ch10:cp_async_stages",
        {"m": 397, "n": 328, "k": 584},
        {"hbm_bytes": 1107232, "flops": 152092288, "dtype": "bf16"},
    ),
    (
        "ch10:cp_async_stages",
        {"m": 8192, "n": 8192, "k": 8192},
        {"hbm_bytes": 402653184, "flops": 1099511627776, "dtype": "bf16"},
    ),
    # a float in and one out.
    ("ch10:softmax_dsmem", {"rows": 2, "columns": 3}, {"hbm_bytes": 48}),
    ("ch10:softmax_dsmem", {"rows": 5, "columns": 4999}, {"hbm_bytes": 199960}),
    ("ch10:softmax_dsmem", {"rows": 1024, "columns": 262144}, {"hbm_bytes": 2147483648}),
    # q, k, v and the output have 6 numbers of 2 bytes each; two products of 2 x 2 x 3 multiply-adds.
    (
        "ch18:flash_forward",
        {"heads": 1, "tokens": 2, "width": 3, "dtype": "bfloat16"},
        {"hbm_bytes": 48, "flops": 48, "dtype": "bf16", "items": 2, "unit": "tokens"},
    ),
    (
        "ch18:flash_forward",
        {"heads": 3, "tokens": 197, "width": 64, "dtype": "float16"},
        {"hbm_bytes": 302592, "flops": 29805312, "dtype": "bf16", "items": 197, "unit": "tokens"},
    ),
    (
        "ch18:flash_forward",
        {"heads": 8, "tokens": 16384, "width": 128, "dtype": "bfloat16"},
        {"hbm_bytes": 134217728, "flops": 1099511627776, "dtype": "bf16", "items": 16384, "unit": "tokens"},
    ),
    # 12 numbers each of k and v, 8 each of q and the output, of 2 bytes; two products of 2 x 3 x 4 multiply-adds.
    (
        "ch18:split_kv_decode",
        {"requests": 1, "heads": 1, "group": 2, "keys": 3, "width": 4, "dtype": "bfloat16"},
        {"hbm_bytes": 80, "flops": 96, "dtype": "bf16", "items": 1, "unit": "tokens"},
    ),
    (
        "ch18:split_kv_decode",
        {"requests": 2, "heads": 3, "group": 5, "keys": 1237, "width": 64, "dtype": "float16"},
        {"hbm_bytes": 1907712, "flops": 9500160, "dtype": "bf16", "items": 2, "unit": "tokens"},
    ),
    (
        "ch18:split_kv_decode",
        {"requests": 1, "heads": 8, "group": 4, "keys": 131072, "width": 128, "dtype": "bfloat16"},
        {"hbm_bytes": 536887296, "flops": 2147483648, "dtype": "bf16", "items": 1, "unit": "tokens"},
    ),
    # documents of 1, 2 and 3 tokens have 1 + 3 + 6 pairs of a query and a key that it sees, with 2 x 2 multiply-adds
    # each; q, k, v and the output have 12 numbers of 2 bytes each, and 6 tokens a number of 8 bytes.
    (
        "ch18:flex_document_mask",
        {"heads": 1, "tokens": 6, "width": 2, "documents": 3},
        {"hbm_bytes": 144, "flops": 80, "dtype": "bf16", "items": 6, "unit": "tokens"},
    ),
    (
        "ch18:flex_document_mask",
        {"heads": 2, "tokens": 331, "width": 32, "documents": 5},
        {"hbm_bytes": 172120, "flops": 3478016, "dtype": "bf16", "items": 331, "unit": "tokens"},
    ),
    (
        "ch18:flex_document_mask",
        {"heads": 16, "tokens": 32768, "width": 128, "documents": 7},
        {"hbm_bytes": 537133056, "flops": 785595580416, "dtype": "bf16", "items": 32768, "unit": "tokens"},
    ),
    # 4 bytes a number in, and as many out, the other way; two products of rows x width x width.
    (
        "ch11:copy_compute_pipeline",
        {"chunks": 2, "rows": 3, "width": 5},
        {"pcie_bytes": 120, "flops": 600, "items": 2, "unit": "chunks"},
    ),
    (
        "ch11:copy_compute_pipeline",
        {"chunks": 7, "rows": 29, "width": 37},
        {"pcie_bytes": 30044, "flops": 1111628, "items": 7, "unit": "chunks"},
    ),
    (
        "ch11:copy_compute_pipeline",
        {"chunks": 32, "rows": 4096, "width": 1024},
        {"pcie_bytes": 536870912, "flops": 549755813888, "items": 32, "unit": "chunks"},
    ),
    # 18 multiply-adds of the prefill, and one for each of 24 numbers of keys and 24 of values: 66. 6 numbers in, 6 out,
    # 9 weights and the 48 of the caches, of 2 bytes.
    (
        "ch11:priority_prefill_decode",
        {"tokens": 2, "width": 3, "layers": 1, "links": 2, "heads": 1, "context": 3, "size": 4},
        {"hbm_bytes": 138, "flops": 132, "dtype": "fp16"},
    ),
    (
        "ch11:priority_prefill_decode",
        {"tokens": 131, "width": 37, "layers": 3, "links": 5, "heads": 3, "context": 77, "size": 16},
        {"hbm_bytes": 101522, "flops": 1149954, "dtype": "fp16"},
    ),
    (
        "ch11:priority_prefill_decode",
        {"tokens": 65536, "width": 2048, "layers": 6, "links": 64, "heads": 8, "context": 4096, "size": 128},
        {"hbm_bytes": 1660944384, "flops": 3299608625152, "dtype": "fp16"},
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
        {"layers": 8, "width": 128, "batch": 8, "length": 64},
        {"hbm_bytes": 45875200, "flops": 5234491392, "launches": 123, "items": 512, "unit": "tokens"},
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
    # 2, 4 and 8 tokens; 32 weights, 6 FLOPs for each and token but 2 for the first 16; all of two bytes.
    (
        "ch13:expandable_segments",
        {"first": 2, "last": 8, "batches": 3, "width": 2, "layers": 1},
        {"hbm_bytes": 184, "flops": 2240, "dtype": "bf16", "items": 14, "unit": "tokens"},
    ),
    (
        "ch13:expandable_segments",
        {"first": 5, "last": 61, "batches": 4, "width": 37, "layers": 2},
        {"hbm_bytes": 95312, "flops": 12529088, "dtype": "bf16", "items": 104, "unit": "tokens"},
    ),
    (
        "ch13:expandable_segments",
        {"first": 1024, "last": 8192, "batches": 24, "width": 512, "layers": 4},
        {"hbm_bytes": 119513088, "flops": 4048996532224, "dtype": "bf16", "items": 83944, "unit": "tokens"},
    ),
    # 32 weights, 6 FLOPs for each and token but 2 for the first 16; a rank sends 2(n - 1)/n of 4 bytes a weight.
    (
        "ch13:fsdp_sharding",
        {"blocks": 1, "width": 2, "tokens": 3},
        {"nvlink_bytes": 128, "flops": 480, "items": 3, "unit": "tokens"},
    ),
    (
        "ch13:fsdp_sharding",
        {"blocks": 3, "width": 37, "tokens": 11},
        {"nvlink_bytes": 131424, "flops": 2048024, "items": 11, "unit": "tokens"},
    ),
    (
        "ch13:fsdp_sharding",
        {"blocks": 8, "width": 1024, "tokens": 2048},
        {"nvlink_bytes": 268435456, "flops": 807453851648, "items": 2048, "unit": "tokens"},
    ),
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
    # 16,768 weights and 128 gains, and as many gradients; four times 2 tokens of 64, all of 2 bytes.
    # 6 FLOPs a weight and token; attention forward: 2 products of 2 x 2 x 64 multiply-adds, of which causal is half.
    (
        "ch14:compile_block",
        {"blocks": 1, "width": 64, "wide": 2, "batch": 1, "length": 2},
        {"hbm_bytes": 68608, "flops": 202752, "dtype": "bf16", "items": 2, "unit": "tokens"},
    ),
    (
        "ch14:compile_block",
        {"blocks": 1, "width": 128, "wide": 344, "batch": 3, "length": 37},
        {"hbm_bytes": 905216, "flops": 134777088, "dtype": "bf16", "items": 111, "unit": "tokens"},
    ),
    (
        "ch14:compile_block",
        {"blocks": 2, "width": 1024, "wide": 2816, "batch": 8, "length": 2048},
        {"hbm_bytes": 236994560, "flops": 2937757630464, "dtype": "bf16", "items": 16384, "unit": "tokens"},
    ),
    # 12 x 64 x 64 weights, 2 tokens of 64 in and out; attention adds 2 products of 2 x 2 x 64 multiply-adds.
    (
        "ch14:graph_breaks",
        {"layers": 1, "width": 64, "batch": 1, "length": 2},
        {"hbm_bytes": 98816, "flops": 197632, "dtype": "fp16", "launches": 1, "items": 2, "unit": "tokens"},
    ),
    (
        "ch14:graph_breaks",
        {"layers": 2, "width": 128, "batch": 3, "length": 37},
        {"hbm_bytes": 843264, "flops": 91499520, "dtype": "fp16", "launches": 1, "items": 111, "unit": "tokens"},
    ),
    (
        "ch14:graph_breaks",
        {"layers": 3, "width": 768, "batch": 8, "length": 512},
        {"hbm_bytes": 55050240, "flops": 193273528320, "dtype": "fp16", "launches": 1, "items": 4096, "unit": "tokens"},
    ),
    # 8 + 12 + 6 numbers of 2 bytes, 24 multiply-adds.
    (
        "ch14:triton_persistent_matmul",
        {"m": 2, "n": 3, "k": 4, "dtype": "bfloat16"},
        {"hbm_bytes": 52, "flops": 48, "dtype": "bf16"},
    ),
    (
        "ch14:triton_persistent_matmul",
        {"m": 397, "n": 328, "k": 136, "dtype": "float16"},
        {"hbm_bytes": 457632, "flops": 35418752, "dtype": "bf16"},
    ),
    (
        "ch14:triton_persistent_matmul",
        {"m": 8192, "n": 8192, "k": 8192, "dtype": "bfloat16"},
        {"hbm_bytes": 402653184, "flops": 1099511627776, "dtype": "bf16"},
    ),
    # two experts of 3 x 5 x 4 weights, 12 numbers in and out, of 2 bytes; 3 choices of 10 bytes; 3 x 60 multiply-adds.
    (
        "ch17:moe_grouped_gemm",
        {"tokens": 3, "experts": 2, "chosen": 1, "width": 4, "wide": 5, "dtype": "bfloat16"},
        {"hbm_bytes": 318, "flops": 360, "dtype": "bf16", "items": 3, "unit": "tokens"},
    ),
    (
        "ch17:moe_grouped_gemm",
        {"tokens": 37, "experts": 13, "chosen": 2, "width": 72, "wide": 88, "dtype": "float16"},
        {"hbm_bytes": 505604, "flops": 2813184, "dtype": "bf16", "items": 37, "unit": "tokens"},
    ),
    (
        "ch17:moe_grouped_gemm",
        {"tokens": 16384, "experts": 64, "chosen": 6, "width": 2048, "wide": 1408, "dtype": "bfloat16"},
        {"hbm_bytes": 1242497024, "flops": 1700807049216, "dtype": "bf16", "items": 16384, "unit": "tokens"},
    ),
    # 32 logits of 4 bytes; 16 choices of 4 + 8 + 8 bytes; 16 ends of 8.
    (
        "ch17:moe_gate_fused",
        {"tokens": 2, "experts": 16},
        {"hbm_bytes": 576, "launches": 2, "items": 2, "unit": "tokens"},
    ),
    (
        "ch17:moe_gate_fused",
        {"tokens": 37, "experts": 77},
        {"hbm_bytes": 17932, "launches": 2, "items": 37, "unit": "tokens"},
    ),
    (
        "ch17:moe_gate_fused",
        {"tokens": 4096, "experts": 256},
        {"hbm_bytes": 4851712, "launches": 2, "items": 4096, "unit": "tokens"},
    ),
    # two bytes in and twice one out.
    ("ch19:fp8_cast_transpose", {"rows": 2, "columns": 3}, {"hbm_bytes": 24}),
    ("ch19:fp8_cast_transpose", {"rows": 197, "columns": 331}, {"hbm_bytes": 260828}),
    ("ch19:fp8_cast_transpose", {"rows": 16384, "columns": 8192}, {"hbm_bytes": 536870912}),
    # 6 + 12 + 8 numbers of 2 bytes in and again out; three products of 24 multiply-adds.
    (
        "ch19:fp8_linear_training",
        {"tokens": 2, "width": 3, "wide": 4},
        {"hbm_bytes": 104, "flops": 144, "dtype": "fp8", "items": 2, "unit": "tokens"},
    ),
    (
        "ch19:fp8_linear_training",
        {"tokens": 80, "width": 48, "wide": 112},
        {"hbm_bytes": 72704, "flops": 2580480, "dtype": "fp8", "items": 80, "unit": "tokens"},
    ),
    (
        "ch19:fp8_linear_training",
        {"tokens": 16384, "width": 4096, "wide": 14336},
        {"hbm_bytes": 1442840576, "flops": 5772436045824, "dtype": "fp8", "items": 16384, "unit": "tokens"},
    ),
    # 256 x 8 codes of half a byte, 2 x 8 scales of 2; a row of 256 in, of 8 out; 2048 multiply-adds.
    (
        "ch19:int4_prepacked_gemm",
        {"rows": 1, "features": 256, "outputs": 8},
        {"hbm_bytes": 1584, "flops": 4096, "dtype": "bf16", "items": 1, "unit": "rows"},
    ),
    (
        "ch19:int4_prepacked_gemm",
        {"rows": 13, "features": 384, "outputs": 328},
        {"hbm_bytes": 83456, "flops": 3274752, "dtype": "bf16", "items": 13, "unit": "rows"},
    ),
    (
        "ch19:int4_prepacked_gemm",
        {"rows": 16, "features": 8192, "outputs": 57344},
        {"hbm_bytes": 244318208, "flops": 15032385536, "dtype": "bf16", "items": 16, "unit": "rows"},
    ),
    # One block of 2 x (6 + 15) = 42 weights, a head of 6, and 2 numbers a token in the cache; bf16. Two steps read all
    # 48 weights, and the second finds 3 tokens of each of 2 sequences; 4 tokens pass the block, 2 the head.
    (
        "ch15:kv_cache",
        {
            "shape": {"layers": 1, "vocabulary": 3, "width": 2, "heads": 2, "kv_heads": 1, "hidden": 5},
            **{"batch": 2, "prompt": 3, "new": 2, "dtype": "bfloat16"},
        },
        {"hbm_bytes": 216, "flops": 720, "dtype": "bf16", "items": 4, "unit": "tokens"},
    ),
    (
        "ch15:kv_cache",
        {
            "shape": {"layers": 2, "vocabulary": 97, "width": 96, "heads": 6, "kv_heads": 2, "hidden": 131},
            **{"batch": 3, "prompt": 7, "new": 5, "dtype": "float32"},
        },
        {"hbm_bytes": 2730624, "flops": 8503488, "dtype": "bf16", "items": 15, "unit": "tokens"},
    ),
    (
        "ch15:kv_cache",
        {
            "shape": {"layers": 2, "vocabulary": 32000, "width": 4096, "heads": 32, "kv_heads": 8, "hidden": 14336},
            **{"batch": 8, "prompt": 256, "new": 16, "dtype": "bfloat16"},
        },
        {"hbm_bytes": 18411487232, "flops": 1924950654976, "dtype": "bf16", "items": 128, "unit": "tokens"},
    ),
    # 10 tokens of 2 x 8 x 128 numbers come, are kept and are read; a query and an answer of 32 x 128; 2 bytes each.
    (
        "ch15:paged_kv",
        {"requests": 1, "longest": 10, "mean": 1e9, "spread": 1.0, "dtype": "bfloat16"},
        {"hbm_bytes": 139264, "flops": 163840, "dtype": "bf16", "items": 10, "unit": "tokens"},
    ),
    (
        "ch15:paged_kv",
        {"requests": 5, "longest": 61, "mean": 20.0, "spread": 1.0, "dtype": "float16"},
        {"hbm_bytes": 1138688, "flops": 1409024, "dtype": "bf16", "items": 86, "unit": "tokens"},
    ),
    (
        "ch15:paged_kv",
        {"requests": 256, "longest": 2048, "mean": 337.99, "spread": 0.9735, "dtype": "bfloat16"},
        {"hbm_bytes": 1038512128, "flops": 1379090432, "dtype": "bf16", "items": 84173, "unit": "tokens"},
    ),
    # The block of above: one request of 2 tokens takes two passes of 48 weights, and the second finds 3 tokens.
    (
        "ch15:continuous_batching",
        {
            "shape": {"layers": 1, "vocabulary": 3, "width": 2, "heads": 2, "kv_heads": 1, "hidden": 5},
            **{"requests": 1, "slots": 2, "prompt": 3, "mean": 1e9, "spread": 1.0, "longest": 2, "dtype": "bfloat16"},
        },
        {"hbm_bytes": 204, "flops": 360, "dtype": "bf16", "items": 2, "unit": "tokens"},
    ),
    (
        "ch15:continuous_batching",
        {
            "shape": {"layers": 2, "vocabulary": 97, "width": 96, "heads": 6, "kv_heads": 2, "hidden": 131},
            **{"requests": 7, "slots": 3, "prompt": 5, "mean": 4.0, "spread": 1.0, "longest": 9, "dtype": "float32"},
        },
        {"hbm_bytes": 3808640, "flops": 13138368, "dtype": "bf16", "items": 23, "unit": "tokens"},
    ),
    (
        "ch15:continuous_batching",
        {
            "shape": {"layers": 2, "vocabulary": 32000, "width": 4096, "heads": 32, "kv_heads": 8, "hidden": 14336},
            **{"requests": 32, "slots": 16, "prompt": 32, "mean": 58.45, "longest": 128},
            **{"spread": 0.9735, "dtype": "bfloat16"},
        },
        {"hbm_bytes": 112077242368, "flops": 2647828463616, "dtype": "bf16", "items": 1571, "unit": "tokens"},
    ),
    # 3 shared tokens and 2 of their own pass 42 weights, 2 states the head; they see 6 + 8 tokens, 4 FLOPs x 2 each.
    (
        "ch16:prefix_cache",
        {
            "shape": {"layers": 1, "vocabulary": 3, "width": 2, "heads": 2, "kv_heads": 1, "hidden": 5},
            **{"prompts": 1, "requests": 2, "shared": 3, "own": 1, "dtype": "bfloat16"},
        },
        {"hbm_bytes": 96, "flops": 556, "dtype": "bf16", "items": 8, "unit": "prompt tokens"},
    ),
    (
        "ch16:prefix_cache",
        {
            "shape": {"layers": 2, "vocabulary": 97, "width": 96, "heads": 6, "kv_heads": 2, "hidden": 131},
            **{"prompts": 2, "requests": 5, "shared": 150, "own": 13, "dtype": "float32"},
        },
        {"hbm_bytes": 535680, "flops": 116289600, "dtype": "bf16", "items": 815, "unit": "prompt tokens"},
    ),
    (
        "ch16:prefix_cache",
        {
            "shape": {"layers": 2, "vocabulary": 32000, "width": 4096, "heads": 32, "kv_heads": 8, "hidden": 14336},
            **{"prompts": 1, "requests": 8, "shared": 2048, "own": 64, "dtype": "bfloat16"},
        },
        {"hbm_bytes": 1134559232, "flops": 2339138174976, "dtype": "bf16", "items": 16896, "unit": "prompt tokens"},
    ),
    # 6 logits of 4 bytes, two ids of 8.
    ("ch16:topk_topp_sampling", {"rows": 2, "vocabulary": 3}, {"hbm_bytes": 40, "items": 2, "unit": "tokens"}),
    (
        "ch16:topk_topp_sampling",
        {"rows": 3, "vocabulary": 17011},
        {"hbm_bytes": 204156, "items": 3, "unit": "tokens"},
    ),
    (
        "ch16:topk_topp_sampling",
        {"rows": 64, "vocabulary": 128256},
        {"hbm_bytes": 32834048, "items": 64, "unit": "tokens"},
    ),
    # 1 of 5 tokens after the first is mistaken: two passes of 48 weights; 8 tokens pass the block, 6 the head.
    (
        "ch16:speculative_decoding",
        {
            "target": {"layers": 1, "vocabulary": 3, "width": 2, "heads": 2, "kv_heads": 1, "hidden": 5},
            "draft": {},
            **{"prompt": 3, "new": 6, "dtype": "bfloat16"},
        },
        {"hbm_bytes": 192, "flops": 744, "dtype": "bf16", "items": 6, "unit": "tokens"},
    ),
    (
        "ch16:speculative_decoding",
        {
            "target": {"layers": 2, "vocabulary": 97, "width": 96, "heads": 6, "kv_heads": 2, "hidden": 131},
            "draft": {"layers": 1, "vocabulary": 97, "width": 48, "heads": 3, "kv_heads": 1, "hidden": 67},
            **{"prompt": 7, "new": 19, "dtype": "float32"},
        },
        {"hbm_bytes": 2678400, "flops": 6584256, "dtype": "bf16", "items": 19, "unit": "tokens"},
    ),
    (
        "ch16:speculative_decoding",
        {
            "target": {"layers": 6, "vocabulary": 32000, "width": 4096, "heads": 32, "kv_heads": 8, "hidden": 14336},
            "draft": {"layers": 1, "vocabulary": 32000, "width": 1024, "heads": 8, "kv_heads": 2, "hidden": 3584},
            **{"prompt": 64, "new": 32, "dtype": "bfloat16"},
        },
        {"hbm_bytes": 23035117568, "flops": 257026949120, "dtype": "bf16", "items": 32, "unit": "tokens"},
    ),
    # 133,920 weights: 66,960 bytes and 2,092 of scales for each of 5 tokens; 128 floats for each of 10 earlier ones.
    (
        "ch20:decode_8b",
        {"model": "odd", "new": 5, "dtype": "float32"},
        {"hbm_bytes": 350380, "flops": 1339200, "dtype": "bf16", "items": 5, "unit": "tokens"},
    ),
    # 15,187,968 weights: 7,593,984 bytes, 237,312 of scales, 16 times; 120 earlier tokens of 3,456 floats.
    (
        "ch20:decode_8b",
        {"model": "stories15m", "new": 16, "dtype": "float32"},
        {"hbm_bytes": 126959616, "flops": 486014976, "dtype": "bf16", "items": 16, "unit": "tokens"},
    ),
    # 7,504,658,432 weights: 3,752,329,216 bytes, 117,260,288 of scales, 4 times; 6 earlier tokens of 131,072 bytes.
    (
        "ch20:decode_8b",
        {"model": "llama31_8b", "new": 4, "dtype": "bfloat16"},
        {"hbm_bytes": 15479144448, "flops": 60037267456, "dtype": "bf16", "items": 4, "unit": "tokens"},
    ),
    # 2 blocks of 396 x (16 x 66 + 3 x 131) weights, 396 x 97 in the head: 1,186,020. 111 tokens: 6 x 111 x 1,186,020
    # + 6 x 111 x 2 x 37 x 396 FLOPs. The embedding and 5 gains make 1,226,412 numbers, of 24 bytes each.
    (
        "ch20:train_step_8b",
        {"model": "odd", "batch": 3, "length": 37, "dtype": "float32"},
        {"hbm_bytes": 29433888, "flops": 809405784, "dtype": "bf16", "items": 111, "unit": "tokens"},
    ),
    # 2 blocks of 128 x (12 x 32 + 3 x 344) weights, 128 x 512 in the head: 428,032. 128 tokens; 494,208 numbers.
    (
        "ch20:train_step_8b",
        {"model": "small", "batch": 2, "length": 64, "dtype": "float32"},
        {"hbm_bytes": 11860992, "flops": 341311488, "dtype": "bf16", "items": 128, "unit": "tokens"},
    ),
    # 2 x 218,103,808 + 33,030,144 weights; 4,096 tokens; 502,288,384 numbers, 12 bytes each.
    (
        "ch20:train_step_8b",
        {"model": "llama31_8b_sixteenth", "batch": 2, "length": 2048, "dtype": "bfloat16"},
        {"hbm_bytes": 6027460608, "flops": 11944304050176, "dtype": "bf16", "items": 4096, "unit": "tokens"},
    ),
    # 2 blocks of 384 x (16 x 64 + 3 x 272) weights, 384 x 353 in the head: 1,548,672. 336 tokens; 1,686,144 numbers.
    (
        "ch20:train_step_fp8",
        {"model": "odd", "batch": 2, "length": 168},
        {"hbm_bytes": 20233728, "flops": 3382235136, "dtype": "fp8", "items": 336, "unit": "tokens"},
    ),
    # 48 tokens: 6 x 48 x 1,548,672 + 6 x 48 x 2 x 16 x 384 FLOPs.
    (
        "ch20:train_step_fp8",
        {"model": "odd", "batch": 3, "length": 16},
        {"hbm_bytes": 20233728, "flops": 449556480, "dtype": "fp8", "items": 48, "unit": "tokens"},
    ),
    # As of train_step_8b.
    (
        "ch20:train_step_fp8",
        {"model": "llama31_8b_sixteenth", "batch": 2, "length": 2048},
        {"hbm_bytes": 6027460608, "flops": 11944304050176, "dtype": "fp8", "items": 4096, "unit": "tokens"},
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
