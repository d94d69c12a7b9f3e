"""What each compute capability has of the units that this corpus' techniques need, and a kernel author must ask for.

Sources, for every cell: the target notes of the PTX ISA 9.0 (https://docs.nvidia.com/cuda/parallel-thread-execution/),
one instruction a feature, named below; tests/unit/test_features.py holds the table against the ptxas that is installed.
"""

# sm_90: wgmma.mma_async, for sm_90a alone ("Asynchronous warpgroup level matrix instructions").
# sm_90 and later: cp.async.bulk.tensor, barrier.cluster, mapa and ld.shared::cluster.
# sm_100, sm_103, sm_110: tcgen05.*, their fp4 is tcgen05.mma.kind::mxf4; sm_120, sm_121: mma.kind::mxf4.block_scale.
# sm_89 and later: mma with .e4m3 and .e5m2.
# Multicast is absent from sm_120 and sm_121 although ptxas accepts `.multicast::cluster` there: it warns of
# "substantially reduced performance" and emits a call of a routine in place of UTMALDG.MULTICAST; CUTLASS says that
# GeForce cards have no multicast and fixes their clusters to 1x1x1 (media/docs/cpp/blackwell_functionality.md).
FEATURES = ("wgmma", "TMA", "clusters", "DSMEM", "cluster multicast", "tcgen05", "fp8", "fp4")
CLUSTER = ("TMA", "clusters", "DSMEM")
TENSOR_MEMORY = (*CLUSTER, "cluster multicast", "tcgen05", "fp8", "fp4")
BY_SM: dict[int, tuple[str, ...]] = {
    **dict.fromkeys((70, 72, 75, 80, 86, 87, 88), ()),
    89: ("fp8",),
    90: ("wgmma", *CLUSTER, "cluster multicast", "fp8"),
    **dict.fromkeys((100, 103, 110), TENSOR_MEMORY),
    **dict.fromkeys((120, 121), (*CLUSTER, "fp8", "fp4")),
}


def features(sm: int) -> dict[str, bool] | None:
    """Which of FEATURES a compute capability (90 for 9.0) has; None for one that is not in the table."""
    has = BY_SM.get(sm)
    return None if has is None else {name: name in has for name in FEATURES}
