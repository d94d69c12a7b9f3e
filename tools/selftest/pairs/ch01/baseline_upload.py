"""A copy of 16 MiB from pageable memory over PCIe: the driver's CPU thread and the bus share the time."""

from torch import Tensor

from common.python.requirements import needs
from common.python.workload import Cost, Step, Workload

requires = needs(gpus=1)
workload = Workload(
    inputs=lambda draw, n: {"host": draw.host.normal(n), "device": draw.normal(n)},
    reference=lambda host, device: host.to(device.device),
    cost=lambda n: Cost(pcie_bytes=4 * n, read=4 * n, host_bytes=4 * n),
    sizes={"bench": {"n": 1 << 22}, "test": {"n": 1027}},
    tolerance=0.0,  # a copy is exact
    mutates=("device",),
    clock="end_to_end",
)


def prepare(host: Tensor, device: Tensor) -> Step:
    def step() -> Tensor:
        return device.copy_(host)

    return step
