"""Hand-written kernels at sizes that neither `bench` nor `test` has: one element, none left over, one too many.

A kernel that handles whole words and what is left over has two paths, and `bench` runs only the first of them.
"""

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_map_only

from common.python.base.machine import machine
from common.python.corpus.discovery import find_pairs
from common.python.proof.comparison import compare, in_order, leaves
from common.python.requirements import unmet
from common.python.workload import Draw, Metered

NO_PEAKS = "nothing is held against peaks here, so none are measured"
LENGTHS = [{"n": n} for n in (1, 3, 15, 16, 17, 255, 256, 257, 4095, 65536, 65537, 1 << 20, (1 << 20) + 5)]


def shapes(names: str, *extents: tuple[int | str, ...]) -> list[dict[str, Any]]:
    """A size for each tuple of extents."""
    return [dict(zip(names.split(), one)) for one in extents]


SIZES: dict[str, list[dict[str, Any]]] = {
    "ch01:arithmetic_intensity": LENGTHS,
    "ch06:constant_fir": LENGTHS,
    "ch06:debug_sync_chain": LENGTHS,
    "ch06:float_literal_gelu": LENGTHS,
    "ch06:mapped_result": LENGTHS,
    "ch06:occupancy_block_size": LENGTHS,
    "ch06:vector_add_grid": LENGTHS,
    "ch07:vectorized_bf16": LENGTHS,
    "ch08:digamma_branch_free": LENGTHS,
    "ch08:filter_warp_aggregated": LENGTHS,
    "ch08:unpack_3bit": LENGTHS,
    "ch01:coalescing": shapes("rows columns", (1, 1), (1, 4), (33, 31), (31, 132), (257, 255), (129, 1024)),
    "ch06:fast_divmod_broadcast": shapes("batch channels area", (1, 1, 1), (1, 3, 7), (2, 64, 49), (3, 257, 1)),
    "ch06:grid_sync_normalize": shapes("vectors n", (1, 1), (1, 4), (2, 1023), (3, 65536), (2, 1 << 20)),
    "ch06:managed_read_mostly": shapes("n count host_count", (1, 1, 1), (1024, 257, 3), (65537, 4097, 255)),
    "ch06:pool_alloc": shapes("count n", (1, 1), (2, 257), (3, 65536)),
    "ch06:qk_norm_warp": shapes("tokens heads", (1, 1), (3, 8), (33, 31)),
    "ch06:stencil_block_shape": shapes("rows columns", (1, 1), (1, 9), (9, 1), (32, 64), (33, 65), (257, 255)),
    "ch07:bank_conflict_router": shapes("rows experts", (1, 64), (33, 32), (257, 64)),
    "ch07:bulk_block_gather": shapes("pages page", (1, 8), (7, 16), (133, 264), (7000, 2048)),
    "ch07:cp_async_bag": shapes("bags most width", (1, 1, 1), (3, 7, 4), (33, 65, 128), (5, 300, 129)),
    "ch07:embedding_gather": shapes("rows columns count", (1, 1, 1), (9, 8, 8), (100, 64, 257), (70, 65, 129)),
    "ch07:embedding_grad_sorted": shapes("tokens vocab width", (1, 1, 1), (257, 3, 64), (100, 513, 129)),
    "ch07:hadamard_shuffle": shapes("rows", (1,), (8,), (257,)),
    "ch07:hwc_to_chw": shapes("count height width", (1, 1, 1), (1, 32, 64), (3, 65, 63), (2, 1, 1028)),
    "ch07:l2_persisting_table": shapes("n rows width", (1, 1, 1), (257, 64, 32), (65, 9, 33)),
    "ch07:prefix_scan": [*LENGTHS, {"n": (1 << 24) + 1}],
    "ch07:smem_row_cache": shapes("rows columns", (1, 1), (3, 4), (2, 1023), (3, 24576)),
    "ch07:tma_halo_box": shapes("batch channels height width", (1, 1, 1, 4), (2, 3, 33, 132), (40, 3, 65, 256)),
    "ch07:unaligned_rows": shapes("rows columns", (1, 1), (700, 5), (3, 8), (2, 1024), (5, 4095)),
    "ch08:batched_cholesky": shapes("count", (1,), (3,), (5,), (4099,)),
    "ch08:argmax_last_block": shapes("rows vocabulary", (1, 1), (3, 256), (2, 65537)),
    "ch08:depthwise_tile_occupancy": shapes(
        "images channels rows columns", (1, 1, 1, 4), (2, 3, 65, 68), (1, 2, 128, 256), (1, 2, 129, 260)
    ),
    "ch08:l1_distance_half2": shapes("m n width", (1, 1, 2), (128, 64, 32), (129, 65, 34), (257, 1032, 128)),
    "ch08:median_filter_registers": shapes("rows columns", (1, 1), (2, 2), (3, 5), (37, 64), (64, 63), (257, 255)),
    "ch08:rope_table_sincospi": shapes("positions half", (1, 1), (3, 33), (129, 64), (1025, 31), (1 << 20, 32)),
    "ch09:cutlass_blackwell_2sm": shapes("m n k", (1, 8, 8), (129, 264, 72), (257, 8, 328), (4097, 1032, 200)),
    "ch09:nearest_codeword": shapes("vectors codes width dtype", (1, 9, 72, "float16"), (70000, 384, 256, "bfloat16")),
    "ch09:cutlass_schedule": shapes("m n k", (1, 8, 8), (129, 264, 72), (257, 8, 328), (4097, 1032, 200)),
    "ch09:depthwise_pointwise_fusion": shapes(
        "images side channels results dtype",
        *((1, 1, 8, 8, "bfloat16"), (2, 9, 72, 128, "float16"), (1, 57, 128, 40, "bfloat16")),
    ),
    "ch09:stencil_temporal_blocking": shapes("rows columns", (1, 4), (9, 112), (128, 116), (129, 128), (257, 452)),
    "ch08:spmv_row_balance": shapes("rows", (1,), (2,), (33,), (3001,), (65537,)),
    "ch08:polynomial_ilp": shapes("points count", (1, 1), (3, 8), (4, 257), (129, 1024)),
    "ch10:attention_pingpong": shapes("heads tokens", (1, 1), (2, 64), (1, 176), (3, 177), (2, 385), (1, 705)),
    "ch10:cluster_group_no_dsmem": shapes("images channels side", (1, 1, 2), (1, 3, 16), (2, 5, 129)),
    "ch10:fir_toeplitz": shapes("channels n dtype", (1, 1, "float16"), (2, 65, "bfloat16"), (70, 20480, "bfloat16")),
    "ch10:fp8_wgmma_gemm": shapes("m n k", (1, 16, 16), (128, 256, 128), (257, 272, 144), (2300, 4112, 528)),
    "ch10:swap_ab_small_m": shapes("tokens features outputs", (1, 16, 2), (16, 128, 128), (9, 1168, 1002)),
    "ch10:splitk_dsmem_reduce": shapes("m n k", (1, 8, 8), (64, 128, 256), (33, 264, 72)),
    "ch10:stft_as_gemm": shapes("clips frames", (1, 2), (2, 15), (1, 16), (3, 33)),
    "ch10:tma_im2col_conv": shapes("images side channels results", (1, 32, 64, 8), (2, 33, 72, 264), (99, 3, 128, 16)),
    "ch10:tma_reduce_scatter_add": shapes("batches tokens experts width", (1, 1, 1, 4), (2, 17, 3, 132)),
    "ch10:small_bmm_tiles": shapes("count dtype", (1, "float16"), (31, "bfloat16"), (100_003, "bfloat16")),
    "ch10:tma_store_epilogue": shapes("m n k", (1, 8, 8), (128, 256, 64), (129, 264, 72)),
    "ch10:vocab_count_dsmem": shapes("n vocabulary", (1, 1), (255, 3), (65537, 128256)),
    "ch11:batched_page_copy": shapes("pages count width", (1, 1, 1), (9, 5, 8), (300, 257, 1032)),
    "ch11:green_context_partition": shapes("n links width", (1, 1, 1), (1027, 3, 33), (65536, 2, 512)),
    "ch11:host_callback_stall": shapes("steps rows vocabulary", (1, 1, 1), (2, 3, 8), (3, 37, 1024), (4, 5, 2051)),
    "ch11:null_stream_serialization": shapes("pictures n", (1, 1), (3, 16), (9, 65536), (17, 4097)),
    "ch12:amp_skip_if_node": shapes("count overflows n", (1, 0, 1), (2, 1, 257), (3, 3, 1024)),
    "ch12:bfs_tail_launch": shapes("side", (1,), (2,), (9,), (130,), (1100,)),
    "ch12:device_graph_relaunch": shapes("batch vocabulary", (1, 2), (3, 257), (70, 1000)),
    "ch12:device_node_update": shapes("layers rows pairs width", (1, 16, 1, 4), (2, 257, 3, 512), (32, 1000, 7, 260)),
    "ch12:expert_switch_node": shapes("layers experts width inner", (1, 1, 8, 8), (2, 3, 72, 136)),
    "ch12:graph_exec_update": shapes("kernels slots n", (1, 1, 1), (3, 2, 257), (5, 4, 1024)),
    "ch12:persistent_gru": shapes("steps batch features width", (1, 1, 8, 8), (3, 16, 40, 72)),
    "ch12:viterbi_work_queue": shapes("count mean longest", (1, 1, 1), (3, 7, 9), (133, 20, 65)),
    "ch14:jit_specialized_solve": shapes("n batch", (1, 1), (3, 129), (10, 1000), (12, 257)),
    "ch18:indexer_topk": shapes(
        "rows keys heads width dtype",
        *((1, 2049, 16, 16, "bfloat16"), (2, 8191, 16, 64, "bfloat16"), (3, 65537, 4, 24, "float32")),
    ),
    "ch08:kde_exp2_split": shapes("n count", (1, 1), (4097, 3), (65537, 1024)),
    "ch16:decode_megakernel": shapes("layers heads kv_heads inner tokens", (1, 1, 1, 8, 1), (3, 40, 8, 4104, 700)),
    "ch06:block_reduction": [*LENGTHS, {"n": (1 << 24) + 1}],
    "ch06:managed_prefetch": [*LENGTHS, {"n": 1 << 22}, {"n": (1 << 22) + 1}, {"n": (1 << 23) + 5}],
    "ch07:strided_copy": [*LENGTHS, *({"n": n} for n in (31, 33, 1023, 1024, 1025, 8191, 8193))],
    # The next two: of one element, of whole tiles, of whole pieces of 16 bytes, and of neither.
    "ch07:transpose": shapes(
        "rows columns", (1, 1), (1, 7), (7, 1), (4, 8), (32, 64), (64, 128), (68, 132), (65, 63), (129, 4), (4, 257)
    ),
    "ch07:sgemm_tiling": shapes(
        "m n k", (1, 1, 1), (128, 128, 16), (256, 384, 48), (129, 132, 20), (128, 128, 8), (65, 63, 257)
    ),
    # Of one box, of one stage more than the ring has, and of more tiles than multiprocessors.
    "ch10:gemm_wgmma": shapes(
        "m n k", (1, 64, 8), (128, 256, 64), (129, 264, 72), (257, 8, 320), (4097, 1032, 200), (2300, 4104, 264)
    ),
    "ch10:tcgen05_epilogue_overlap": shapes("m n k", (1, 8, 8), (129, 264, 72), (257, 8, 328), (4097, 5128, 200)),
    "ch10:tcgen05_gemm": shapes("m n k", (1, 64, 8), (128, 256, 64), (129, 264, 72), (257, 8, 328), (4097, 1032, 200)),
    "ch08:histogram_privatized": [*LENGTHS, {"n": (1 << 26) + 7}],
    # N and k are multiples of 8.
    "ch02:tensor_core_gemm": shapes("m n k", (1, 8, 8), (256, 384, 192), (129, 264, 40), (300, 8, 1000)),
    "ch10:cp_async_stages": shapes("m n k", (1, 8, 8), (256, 128, 32), (257, 136, 40), (2304, 1032, 96), (300, 8, 200)),
    "ch02:zero_copy_gather": shapes(
        "rows count width", (1, 1, 1), (9, 8, 4), (9, 9, 3), (1000, 257, 128), (70, 65, 129)
    ),
    "ch10:softmax_dsmem": shapes("rows columns", (1, 1), (3, 4), (2, 8192), (1, 262143), (2, 262140), (40, 16384)),
    # A grid that closes on itself in one point of a side, whole blocks of 256, and neither.
    "ch12:cg_solver_graph": shapes("rows columns", (1, 7), (7, 1), (5, 3), (16, 16), (17, 15), (129, 33), (255, 257)),
    # One iteration and many, fewer than a warp and more than a block.
    "ch12:sinkhorn_while_node": shapes(
        "rows columns", (1, 1), (1, 9), (9, 1), (3, 5), (33, 31), (8, 256), (257, 7), (65, 129), (129, 255)
    ),
    "ch12:pdl_decode_chain": shapes("layers width inner", (1, 8, 8), (3, 40, 136), (2, 1032, 264)),
    # Rows of each kernel; one group and one tile, tiles that blocks share, whole tiles.
    "ch19:int4_prepacked_gemm": shapes(
        "rows features outputs",
        *((1, 128, 8), (7, 256, 264), (8, 14336, 4096), (9, 4096, 1032), (15, 640, 256), (16, 384, 248)),
        *((17, 512, 520), (31, 4096, 2056), (32, 128, 34056), (33, 896, 328), (48, 8192, 1000), (64, 4096, 14336)),
        (16, 128, 135176),
    ),
    "ch09:conv2d_implicit_gemm": shapes(
        "images side channels results dtype",
        (1, 1, 8, 8, "float16"),
        (2, 33, 72, 264, "bfloat16"),
        (99, 3, 128, 16, "bfloat16"),
    ),
    "ch09:cross_entropy_grad": shapes("tokens vocabulary", (1, 2), (3, 4097), (2, 128250)),
    "ch09:groupnorm_one_pass": shapes("images channels side", (1, 8, 1), (2, 8, 33), (3, 16, 200), (2, 12, 128)),
    "ch18:quantized_kv_decode": shapes(
        "requests heads group keys width dtype",
        *((1, 1, 1, 1, 64, "float16"), (2, 3, 8, 17, 128, "bfloat16"), (1, 2, 5, 1025, 128, "bfloat16")),
    ),
    # Of one token the gradients are all zeros, which no rounded sum is.
    "ch18:flash_backward": shapes("heads tokens width dtype", (1, 2, 64, "float16"), (3, 129, 128, "bfloat16")),
    "ch18:mla_absorbed_decode": shapes("requests heads keys latent width dtype", (2, 69, 301, 512, 128, "bfloat16")),
    "ch19:fp8_cast_transpose": shapes("rows columns", (1, 1), (8, 8), (129, 127), (136, 264), (1032, 8200)),
    "ch19:hadamard_fp4_quantize": shapes("rows blocks", (1, 1), (3, 17), (129, 33)),
    "ch17:relu_sparse_ffn": shapes("width wide active dtype", (8, 1, 1, "bfloat16"), (1032, 257, 23, "bfloat16")),
    "ch19:mxfp4_moe_decode": shapes("tokens experts top busy width wide", (1, 2, 1, 1, 64, 32), (8, 9, 3, 7, 224, 160)),
    "ch19:w4a8_moe": shapes("rows experts width outputs", (1, 1, 32, 8), (128, 2, 128, 256), (300, 9, 736, 520)),
    # A graph warms up with three tokens.
    "ch20:decode_8b": shapes("model new dtype context", ("odd", 3, "bfloat16", 1), ("odd", 7, "bfloat16", 300)),
    "ch13:int8_dynamic_linear": shapes("tokens features outputs", (1, 16, 8), (129, 144, 264), (4097, 400, 1032)),
    "ch13:wgrad_accumulate": shapes("tokens features outputs", (1, 8, 8), (65, 264, 136), (200, 1032, 4104)),
    "ch14:blockwise_fp8_gemm": shapes("tokens features outputs", (1, 128, 128), (257, 384, 256), (600, 1024, 8832)),
    "ch19:nvfp4_gemm": shapes("m n k", (1, 8, 64), (128, 256, 256), (129, 264, 320), (257, 8, 1088), (300, 1160, 2560)),
    "ch08:bytes_in_flight": shapes(
        "rows columns",
        *((1, 2), (3, 4), (2, 8), (5, 1023), (5, 1028), (3, 2048), (3, 2052), (7, 8188), (7, 8192)),
        *((7, 8196), (1057, 8200), (2000, 257)),
    ),
}
# Rounding grows with the condition number, 801, and few unknowns do not average it out: 1.2e-5 in float32 on a CPU.
# One number near digamma's root, where terms cancel, has no others beside it that the error is small against.
TOLERANCE = {"ch12:cg_solver_graph": 5e-5, "ch08:digamma_branch_free": 1e-5}
VARIANTS = {
    f"{pair.key} {variant.name}": (pair.baseline.module, variant)
    for pair in find_pairs(Path(__file__).resolve().parents[2])
    if pair.key in SIZES and pair.baseline is not None
    for variant in pair.variants
    if "CUDA" in variant.kinds or variant.role == "optimized"  # a graph of the baseline's kernels has none of its own
}


def wrong(baseline: str, module: str, size: dict[str, Any], scratch: Path, within: float | None) -> str | None:
    """Why a variant's first step at this size is not the answer, within the workload's tolerance or this."""
    workload = importlib.import_module(baseline).workload
    inputs = workload.inputs(Draw(torch.device("cuda"), 1, scratch), **size)
    doubled = tree_map_only(
        torch.Tensor, lambda x: x.to("cuda", torch.float64 if x.is_floating_point() else x.dtype, copy=True), inputs
    )
    made = importlib.import_module(module).prepare(**inputs)
    for name in workload.mutates:  # which a warm-up of `prepare` changes
        inputs[name].copy_(doubled[name])
    answer = workload.reference(**doubled)  # last, as it may work in place
    given = (made.step if isinstance(made, Metered) else made)()
    expected, output = in_order(answer, leaves(answer)), in_order(given, leaves(given))
    torch.cuda.synchronize()
    return compare(output, expected, [leaf.dtype for leaf in output], within or workload.tolerance).reason


@pytest.mark.parametrize("name", VARIANTS)
def test_a_kernel_is_right_at_every_size(name: str, tmp_path: Path) -> None:
    key, (baseline, variant) = name.split()[0], VARIANTS[name]
    if reasons := unmet(variant.required, machine()):
        pytest.skip("; ".join(reasons))
    asked = {str(size): wrong(baseline, variant.module, size, tmp_path, TOLERANCE.get(key)) for size in SIZES[key]}
    assert {size: reason for size, reason in asked.items() if reason} == {}
