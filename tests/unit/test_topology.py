"""How GPUs reach each other, as a fake NVML tells it."""

from pathlib import Path

from fake_nvml import UUIDS, fake_nvml

from common.python.base.topology import topology, topology_of


def test_gpus_with_nvlink_between_them_are_told_from_those_across_pcie(tmp_path: Path) -> None:
    node = tmp_path / "sys/bus/pci/devices/0000:0a:00.0/numa_node"
    node.parent.mkdir(parents=True)
    node.write_text("1\n")
    found = topology(UUIDS, fake_nvml(), tmp_path)
    assert found.links == [["X", "NV17", "SYS"], ["NV17", "X", "SYS"], ["SYS", "SYS", "X"]]
    first, second, _ = found.gpus
    assert (first.pci, first.numa_node, first.pcie_generation, first.pcie_width) == ("0000:0a:00.0", 1, 5, 16)
    assert (first.nvlinks, second.numa_node) == (17, None)


def test_one_gpu_has_no_topology() -> None:
    assert topology_of(["GPU-a"]) is None
