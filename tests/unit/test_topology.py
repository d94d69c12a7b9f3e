"""How GPUs reach each other, as a fake NVML tells it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from common.python.base.topology import Topology, topology, topology_of


class Refused(Exception):
    """Stands for pynvml.NVMLError."""


def state(handle: str, link: int) -> int:
    if link >= 18:
        raise Refused
    return int(link != 17)  # one link is down


def p2p(one: str, other: str, index: int) -> int:
    return 0 if {one, other} == {"a", "b"} else 6


def nvml(**changed: Any) -> SimpleNamespace:
    known = {
        "NVMLError": Refused,
        "NVML_FEATURE_ENABLED": 1,
        "NVML_P2P_CAPS_INDEX_NVLINK": 2,
        "NVML_P2P_STATUS_OK": 0,
        "nvmlDeviceGetHandleByUUID": lambda uuid: uuid[-1],
        "nvmlDeviceGetPciInfo": lambda handle: SimpleNamespace(domain=0, bus=10 * (ord(handle) - 96), device=0),
        "nvmlDeviceGetNvLinkState": state,
        "nvmlDeviceGetMaxPcieLinkGeneration": lambda handle: 5,
        "nvmlDeviceGetMaxPcieLinkWidth": lambda handle: 16,
        "nvmlDeviceGetP2PStatus": p2p,
        "nvmlDeviceGetTopologyCommonAncestor": lambda one, other: 50,
    }
    return SimpleNamespace(**(known | changed))


def seen(tmp_path: Path, **changed: Any) -> Topology:
    node = tmp_path / "sys/bus/pci/devices/0000:0a:00.0/numa_node"
    node.parent.mkdir(parents=True)
    node.write_text("1\n")
    return topology(["GPU-a", "GPU-b", "GPU-c"], nvml(**changed), tmp_path)


def test_gpus_with_nvlink_between_them_are_told_from_those_across_pcie(tmp_path: Path) -> None:
    found = seen(tmp_path)
    assert found.links == [["X", "NV17", "SYS"], ["NV17", "X", "SYS"], ["SYS", "SYS", "X"]]
    first, second, _ = found.gpus
    assert (first.pci, first.numa_node, first.pcie_generation, first.pcie_width) == ("0000:0a:00.0", 1, 5, 16)
    assert (first.nvlinks, second.numa_node) == (17, None)


def test_one_gpu_has_no_topology() -> None:
    assert topology_of(["GPU-a"]) is None
