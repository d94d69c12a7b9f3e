"""What doctor asks of NVML and of the GPU's entries in /sys and /proc; it changes nothing and makes no CUDA context."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.python.base.machine import GIB, ask, cpu_list, visible
from common.python.base.text import counted
from common.python.doctor.check_result import Answer, Check, Finding, Unknown, examine, ranges, text
from common.python.doctor.features import FEATURES, features
from common.python.timing.telemetry import HARMFUL, reasons

LINKS = 36  # NVML_NVLINK_MAX_LINKS; asking for one beyond the GPU's own is refused
SWITCH = 2  # NVML_NVLINK_DEVICE_TYPE_SWITCH
PROBE = "nvcc -arch=compute_{sm}a -code=sm_{sm}a -o tcgen05_probe tools/tcgen05_probe.cu && ./tcgen05_probe"


@dataclass(frozen=True)
class Board:
    """One GPU: how NVML names it, and where /proc and /sys are."""

    nvml: Any
    handle: Any
    index: int
    root: Path

    def ask(self, function: str, *arguments: Any) -> Any:
        """What NVML answers about this GPU. Raises NVMLError, which `examine` makes a reason."""
        return getattr(self.nvml, f"nvmlDeviceGet{function}")(self.handle, *arguments)

    def has(self, function: str) -> Any:
        """The same, but None where the GPU has no such thing."""
        try:
            return self.ask(function)
        except self.nvml.NVMLError as error:
            if error.value == self.nvml.NVML_ERROR_NOT_SUPPORTED:
                return None
            raise

    @property
    def pci(self) -> Path:
        where = self.ask("PciInfo")
        return self.root / f"sys/bus/pci/devices/{where.domain:04x}:{where.bus:02x}:{where.device:02x}.0"

    def smi(self, option: str) -> str:
        return f"sudo nvidia-smi -i {self.index} {option}"

    @property
    def sm(self) -> int:
        major, minor = self.ask("CudaComputeCapability")
        return int(10 * major + minor)


def examine_gpus(nvml: Any, root: Path = Path("/")) -> list[Finding]:
    """Every GPU that an initialised NVML shows, whether or not CUDA_VISIBLE_DEVICES hides it."""
    count = ask(nvml, "nvmlDeviceGetCount")
    if not count:
        said = "NVML does not count them" if count is None else "the driver shows none"
        return [Finding("GPU", "GPU", "poor", said, "pairs run on the CPU, which says nothing about a GPU")]
    found = []
    for index in range(count):
        area = f"GPU {index}"
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
        except nvml.NVMLError as error:
            found.append(Finding(area, "device", "poor", f"NVML: {error}", "nothing can run on it"))
            continue
        found += examine(area, CHECKS, Board(nvml, handle, index, root), refusals=(nvml.NVMLError,))
    return found


def device(board: Board) -> Answer:
    memory = ask(board.nvml, "nvmlDeviceGetMemoryInfo", board.handle)
    size = f", {memory.total / GIB:.0f} GiB" if memory else ", the host's memory"
    found = f"{board.ask('Name')}, sm_{board.sm}{size}"
    setting = os.environ.get("CUDA_VISIBLE_DEVICES")
    nvml, count = board.nvml, range(board.nvml.nvmlDeviceGetCount())
    handles = [handle for index in count if (handle := ask(nvml, "nvmlDeviceGetHandleByIndex", index)) is not None]
    if board.ask("UUID") not in visible([nvml.nvmlDeviceGetUUID(handle) for handle in handles], setting):
        return Answer("note", f"{found}; hidden by CUDA_VISIBLE_DEVICES={setting}", "unset CUDA_VISIBLE_DEVICES")
    return Answer("good", found)


def units(board: Board) -> Answer:
    has = features(board.sm)
    if has is None:
        raise Unknown(f"sm_{board.sm} is not in the table of common/python/doctor/features.py")
    present, absent = ([name for name in FEATURES if has[name] is wanted] for wanted in (True, False))
    found = f"has {', '.join(present) or 'none of these'}" + f"; no {', '.join(absent)}" * bool(absent)
    if not has["tcgen05"]:
        return Answer("good", found)
    return Answer("good", f"{found}; a small program shows that tcgen05 works", PROBE.format(sm=board.sm))


def clocks(board: Board) -> Answer:
    sm, memory = (
        (board.ask("ClockInfo", kind), board.ask("MaxClockInfo", kind))
        for kind in (board.nvml.NVML_CLOCK_SM, board.nvml.NVML_CLOCK_MEM)
    )
    why = reasons(board.ask("CurrentClocksThrottleReasons"))
    found = f"SM {sm[0]} of {sm[1]} MHz, memory {memory[0]} of {memory[1]} MHz"
    found += f"; held back by {', '.join(why)}" * bool(why)
    return Answer("poor" if set(why) & set(HARMFUL) else "note" if why else "good", found)


def application_clocks(board: Board) -> Answer:
    kinds = (board.nvml.NVML_CLOCK_GRAPHICS, board.nvml.NVML_CLOCK_MEM)
    chosen = [board.ask("ApplicationsClock", kind) for kind in kinds]
    default = [board.ask("DefaultApplicationsClock", kind) for kind in kinds]
    found = f"SM {chosen[0]} MHz, memory {chosen[1]} MHz"
    if chosen == default:
        return Answer("good", f"{found}: the default")
    return Answer("note", f"{found}; the default is {default[0]} and {default[1]}", board.smi("-rac"))


def persistence(board: Board) -> Answer:
    if board.ask("PersistenceMode") == board.nvml.NVML_FEATURE_ENABLED:
        return Answer("good", "on")
    return Answer("poor", "off", board.smi("-pm 1"))


def power(board: Board) -> Answer:
    limit, default = (
        board.ask(f"PowerManagement{which}Limit") / 1000 for which in ("", "Default")
    )  # NVML counts milliwatts
    bounds = ask(board.nvml, "nvmlDeviceGetPowerManagementLimitConstraints", board.handle)
    found = f"{limit:g} W, default {default:g} W" + (f", at most {bounds[1] / 1000:g} W" if bounds else "")
    if limit == default:
        return Answer("good", found)
    return Answer("poor" if limit < default else "note", found, board.smi(f"-pl {default:g}"))


def ecc(board: Board) -> Answer:
    modes = board.has("EccMode")
    if modes is None:
        return Answer("note", "this GPU has none")
    now, next_boot = modes
    pending = f", {'on' if next_boot else 'off'} after the next reset" if now != next_boot else ""
    if now:
        return Answer("note" if pending else "good", f"on{pending}")
    return Answer("note", f"off{pending}", board.smi("-e 1"))


def mig(board: Board) -> Answer:
    modes = board.has("MigMode")
    if modes is None:
        return Answer("good", "this GPU has none")
    if modes[0]:
        return Answer("poor", "on", board.smi("-mig 0"))
    return Answer("note", "on after the next reset", board.smi("-mig 0")) if modes[1] else Answer("good", "off")


def compute_mode(board: Board) -> Answer:
    mode = board.ask("ComputeMode")
    if mode == board.nvml.NVML_COMPUTEMODE_DEFAULT:
        return Answer("good", "shared")
    if mode == board.nvml.NVML_COMPUTEMODE_PROHIBITED:
        return Answer("poor", "prohibited", board.smi("-c DEFAULT"))
    return Answer("note", "one process at a time", board.smi("-c DEFAULT"))


def pcie(board: Board) -> Answer:
    generation, width, most, widest = (
        board.ask(f"{which}PcieLink{what}") for which in ("Curr", "Max") for what in ("Generation", "Width")
    )
    found = f"gen {generation} x{width}, at most gen {most} x{widest}"
    if width < widest:
        return Answer("poor", f"{found}: lanes are missing, by slot, riser or seat")
    if generation < most:
        return Answer("note", f"{found}: an idle link may rest at a lower one, ask again under load")
    return Answer("good", found)


def nvlink(board: Board) -> Answer:
    """State and peer of each link, by peer: `0-5 to a switch at 0000:07:00`."""
    states = _link_states(board)
    if not states:
        return Answer("good", "this GPU has none")
    up = [link for link, state in enumerate(states) if state == board.nvml.NVML_FEATURE_ENABLED]
    peers: dict[str, list[int]] = {}
    for link in up:
        peers.setdefault(_peer(board, link), []).append(link)
    found = "; ".join(f"{ranges(links)} to {peer}" for peer, links in peers.items()) or "none is up"
    down = set(range(len(states))) - set(up)
    if up and down:
        return Answer("poor", f"{found}; down: {ranges(down)}", "nvidia-smi nvlink -s; nvidia-smi nvlink -e")
    return Answer("good" if up else "note", f"{counted(len(states), 'link')}: {found}")


def _link_states(board: Board) -> list[int]:
    """One state a link, up to the first that the GPU does not have."""
    ends = (board.nvml.NVML_ERROR_NOT_SUPPORTED, board.nvml.NVML_ERROR_INVALID_ARGUMENT)
    states: list[int] = []
    for link in range(LINKS):
        try:
            states.append(board.ask("NvLinkState", link))
        except board.nvml.NVMLError as error:
            if error.value not in ends:
                raise
            break
    return states


def _peer(board: Board, link: int) -> str:
    kind = ask(board.nvml, "nvmlDeviceGetNvLinkRemoteDeviceType", board.handle, link)
    where = ask(board.nvml, "nvmlDeviceGetNvLinkRemotePciInfo", board.handle, link)
    name = "a switch" if kind == SWITCH else "a GPU" if kind == 0 else "a peer"
    return name if where is None else f"{name} at {where.domain:04x}:{where.bus:02x}:{where.device:02x}"


def numa(board: Board) -> Answer:
    node, near = int(text(board.pci / "numa_node")), text(board.pci / "local_cpulist")
    if not near:
        raise Unknown("/sys names no CPUs near it, as on some virtual machines")
    if node < 0:
        return Answer("good", f"the host's only one, CPUs {near}")
    found = f"node {node}, CPUs {near}"
    far = os.sched_getaffinity(0) - cpu_list(near)
    if not far:
        return Answer("good", found)
    bind = f"numactl --cpunodebind={node} --membind={node} benchmark_cli run ..."
    return Answer("note", f"{found}; this process may also run on {counted(len(far), 'CPU')} elsewhere", bind)


def interrupts(board: Board) -> Answer:
    """Where the GPU's interrupts are handled, against the CPUs near it."""
    own = {int(entry.name) for entry in (board.pci / "msi_irqs").iterdir()}
    listed = {int(n) for n in re.findall(r"^\s*(\d+):.*nvidia", text(board.root / "proc/interrupts"), re.MULTILINE)}
    irqs = sorted(own & listed)
    if not irqs:
        raise Unknown("/proc/interrupts lists none of this GPU's")
    near = text(board.pci / "local_cpulist")
    allowed = {irq: text(board.root / f"proc/irq/{irq}/smp_affinity_list") for irq in irqs}
    found = "; ".join(f"IRQ {irq} on CPUs {cpus}" for irq, cpus in allowed.items())
    far = [irq for irq, cpus in allowed.items() if not cpu_list(cpus) <= cpu_list(near)]
    if not far:
        return Answer("good", found)
    move = f"echo {near} | sudo tee " + " ".join(f"/proc/irq/{irq}/smp_affinity_list" for irq in far)
    return Answer("note", f"{found}; near are {near}", f"{move} (irqbalance moves them back)")


def processes(board: Board) -> Answer:
    compute = {process.pid for process in board.ask("ComputeRunningProcesses")} - {os.getpid()}
    drawing = ask(board.nvml, "nvmlDeviceGetGraphicsRunningProcesses", board.handle) or []
    graphics = {process.pid for process in drawing} - {os.getpid()} - compute
    if not compute and not graphics:
        return Answer("good", "none")
    names = [f"{pid}{_command(board.root, pid)}" for pid in sorted(compute | graphics)]
    kinds = [f"{len(pids)} {kind}" for pids, kind in ((compute, "compute"), (graphics, "graphics")) if pids]
    return Answer("poor" if compute else "note", f"{' and '.join(kinds)}: {', '.join(names)}")


def _command(root: Path, pid: int) -> str:
    """The name of a process, in brackets; nothing for one of another container, whose number is not ours."""
    file = root / f"proc/{pid}/comm"
    return f" ({text(file)})" if file.exists() else ""


CHECKS = (
    Check("device", "results hold for this GPU and no other", device),
    Check("units", "a technique that needs a unit the GPU lacks is reported as unsupported", units),
    Check("clocks", "a GPU that is held back while samples are taken is measured slower than it is", clocks),
    Check("application clocks", "a clock set by hand moves every result until it is reset", application_clocks),
    Check("persistence", "without it the driver unloads between processes: seconds at each start", persistence),
    Check("power limit", "dense matrix products run at this limit: watts are speed", power),
    Check("ECC", "off, the card has more memory (and on GDDR more bandwidth) than the one compared with", ecc),
    Check("MIG", "a slice has a part of the SMs, the L2 and the bandwidth, and its own limits", mig),
    Check("compute mode", "isolated pairs and ranks put several processes on one GPU", compute_mode),
    Check("PCIe link", "the limit of every copy between host and GPU", pcie),
    Check("NVLink", "the limit of every copy between GPUs; a link that is down takes its share away", nvlink),
    Check("NUMA node", "launches and copies from the far socket are slower, and vary", numa),
    Check("interrupts", "a far CPU answers later when a process sleeps until the GPU is done", interrupts),
    Check("processes", "whoever else runs here takes time, memory and clocks from the samples", processes),
)
