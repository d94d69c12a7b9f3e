"""The source is pageable: the CPU copies it piece by piece into a buffer of the driver's, which alone crosses PCIe."""

from torch import Tensor

from common.python.requirements import needs
from common.python.workload import Cost, Step, Workload

requires = needs(gpus=1)

workload = Workload(
    inputs=lambda draw, n: {"host": draw.host.normal(n), "device": draw.normal(n)},
    reference=lambda host, device: host.to(device.device),
    cost=lambda n: Cost(pcie_bytes=4 * n, write=4 * n, host_bytes=4 * n),
    sizes={"bench": {"n": 1 << 24}, "test": {"n": 1027}},
    tolerance=0.0,  # a copy is exact
    mutates=("device", "host"),  # host too: page-locking changes its memory, so each variant has its own
    clock="end_to_end",
)


def prepare(host: Tensor, device: Tensor) -> Step:
    def step() -> Tensor:
        return device.copy_(host)

    return step
