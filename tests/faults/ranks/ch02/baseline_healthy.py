"""An all-reduce: each rank returns the sum of what all ranks hold."""

from ch01.all_reduce import prepare as prepare

from common.python.workload import Cost, Workload

workload = Workload(
    inputs=lambda draw, n: {"a": draw.normal(n)},
    reference=lambda rank, a: sum(a),
    cost=lambda n: Cost(nvlink_bytes=4 * n),
    sizes={"bench": {"n": 1 << 22}, "cpu": {"n": 1 << 12}, "test": {"n": 67}},
    tolerance=1e-6,
    gpus=2,
)
