"""How the GPUs of a machine hang together: by NVLink or by which part of PCIe, and at which NUMA node each is."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.python.base.machine import ask

LINKS = 36  # NVML_NVLINK_MAX_LINKS
PCIE = {0: "same board", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}  # nvmlGpuTopologyLevel_t, as topo -m


@dataclass(frozen=True)
class Seat:
    """Where one GPU is. What NVML or /sys does not tell is null."""

    uuid: str
    pci: str | None
    numa_node: int | None
    pcie_generation: int | None  # at most, as is the width
    pcie_width: int | None
    nvlinks: int  # that are up


@dataclass(frozen=True)
class Topology:
    """The visible GPUs in their order, and a row for each of how it reaches every other, as `nvidia-smi topo -m` says.

    NV18: 18 NVLinks, directly or through a switch. PIX, PXB, PHB, NODE, SYS: PCIe, further apart each. X: itself.
    """

    gpus: list[Seat]
    links: list[list[str]]


def topology(uuids: Sequence[str], nvml: Any, root: Path = Path("/")) -> Topology:
    """Ask an initialised NVML about these GPUs."""
    handles = [nvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in uuids]
    seats = [_seat(nvml, handle, uuid, root) for handle, uuid in zip(handles, uuids)]
    rows = [
        ["X" if one == other else _link(nvml, handles[one], handles[other], seats[one]) for other in range(len(seats))]
        for one in range(len(seats))
    ]
    return Topology(seats, rows)


def topology_of(uuids: Sequence[str]) -> Topology | None:
    """That of several GPUs; None for one, which has no other to reach."""
    if len(uuids) < 2:
        return None
    import pynvml

    pynvml.nvmlInit()
    found = topology(uuids, pynvml)
    pynvml.nvmlShutdown()
    return found


def _seat(nvml: Any, handle: Any, uuid: str, root: Path) -> Seat:
    where = ask(nvml, "nvmlDeviceGetPciInfo", handle)
    pci = None if where is None else f"{where.domain:04x}:{where.bus:02x}:{where.device:02x}.0"
    node = root / f"sys/bus/pci/devices/{pci}/numa_node"
    states = [ask(nvml, "nvmlDeviceGetNvLinkState", handle, link) for link in range(LINKS)]
    return Seat(
        uuid=uuid,
        pci=pci,
        numa_node=int(node.read_text()) if pci and node.is_file() else None,
        pcie_generation=ask(nvml, "nvmlDeviceGetMaxPcieLinkGeneration", handle),
        pcie_width=ask(nvml, "nvmlDeviceGetMaxPcieLinkWidth", handle),
        nvlinks=states.count(nvml.NVML_FEATURE_ENABLED),
    )


def _link(nvml: Any, one: Any, other: Any, seat: Seat) -> str:
    if ask(nvml, "nvmlDeviceGetP2PStatus", one, other, nvml.NVML_P2P_CAPS_INDEX_NVLINK) == nvml.NVML_P2P_STATUS_OK:
        return f"NV{seat.nvlinks}"
    level = ask(nvml, "nvmlDeviceGetTopologyCommonAncestor", one, other)
    return "unknown" if level is None else PCIE.get(level, f"level {level}")
