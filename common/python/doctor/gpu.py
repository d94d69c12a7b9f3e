"""What doctor asks of NVML and of the GPU's entries in /sys and /proc; it changes nothing and makes no CUDA context."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynvml

from common.python.base.machine import GIB, ask
from common.python.base.text import counted
from common.python.build.record import CHIPS, UNITS
from common.python.doctor.check_result import Answer, Check, Finding, examine, text, wanted
from common.python.timing.telemetry import HARMFUL, reasons

# A small program that shows that tcgen05 works.
PROBE = "nvcc -arch=compute_{sm}a -code=sm_{sm}a -o tcgen05_probe tools/tcgen05_probe.cu && ./tcgen05_probe"


@dataclass(frozen=True)
class NvmlGpu:
    """One GPU: how NVML names it, and where /proc and /sys are."""

    nvml: Any
    index: int
    root: Path

    def ask(self, function: str, *arguments: Any) -> Any:
        """What NVML answers about this GPU. Raises NVMLError, which `examine` makes a reason."""
        handle = self.nvml.nvmlDeviceGetHandleByIndex(self.index)
        return getattr(self.nvml, f"nvmlDeviceGet{function}")(handle, *arguments)

    def if_told(self, function: str, *arguments: Any) -> Any:
        """The same; None where NVML refuses."""
        try:
            return self.ask(function, *arguments)
        except pynvml.NVMLError:
            return None

    def smi(self, option: str) -> str:
        return f"sudo nvidia-smi -i {self.index} {option}"

    @property
    def sm(self) -> int:
        major, minor = self.ask("CudaComputeCapability")
        return int(10 * major + minor)


def examine_gpus(nvml: Any = pynvml, root: Path = Path("/")) -> list[Finding]:
    """Every GPU that an initialised NVML shows, whether or not CUDA_VISIBLE_DEVICES hides it."""
    count = ask(nvml, "nvmlDeviceGetCount")
    if not count:
        return [Finding("GPU", "GPU", "poor", "the driver shows none", "times of a CPU say nothing about a GPU")]
    gpus = [NvmlGpu(nvml, index, root) for index in range(count)]
    return [finding for gpu in gpus for finding in examine(f"GPU {gpu.index}", CHECKS, gpu)]


def device(gpu: NvmlGpu) -> Answer:
    memory, setting = gpu.if_told("MemoryInfo"), os.environ.get("CUDA_VISIBLE_DEVICES")
    size = f"{memory.total / GIB:.0f} GiB" if memory else "the host's memory"
    found = f"{gpu.ask('Name')}, sm_{gpu.sm}, {size}" + f"; CUDA_VISIBLE_DEVICES={setting}" * (setting is not None)
    return wanted(setting is None, found, "unset CUDA_VISIBLE_DEVICES")


def units(gpu: NvmlGpu) -> Answer:
    if gpu.sm not in CHIPS:
        raise ValueError(f"sm_{gpu.sm} is not in the table of common/python/build/chips.json")
    has = CHIPS[gpu.sm].units
    absent = [name for name in UNITS if name not in has]
    found = f"has {', '.join(has) or 'none of these'}" + f"; no {', '.join(absent)}" * bool(absent)
    return "good", found, PROBE.format(sm=gpu.sm) if "tcgen05" in has else None


def clocks(gpu: NvmlGpu) -> Answer:
    kinds = (("SM", gpu.nvml.NVML_CLOCK_SM), ("memory", gpu.nvml.NVML_CLOCK_MEM))
    now = [f"{name} {gpu.ask('ClockInfo', kind)} of {gpu.ask('MaxClockInfo', kind)} MHz" for name, kind in kinds]
    why = reasons(gpu.ask("CurrentClocksThrottleReasons"))
    found = ", ".join(now) + f"; held back by {', '.join(why)}" * bool(why)
    return "poor" if set(why) & set(HARMFUL) else "note" if why else "good", found, None


def persistence(gpu: NvmlGpu) -> Answer:
    on = bool(gpu.ask("PersistenceMode"))
    return wanted(on, "on" if on else "off", gpu.smi("-pm 1"), "poor")


def power(gpu: NvmlGpu) -> Answer:
    limit, default = (gpu.ask(f"PowerManagement{which}Limit") / 1000 for which in ("", "Default"))  # from mW
    found, change = f"{limit:g} W, default {default:g} W", gpu.smi(f"-pl {default:g}")
    return wanted(limit == default, found, change, "poor" if limit < default else "note")


def ecc(gpu: NvmlGpu) -> Answer:
    modes = gpu.ask("EccMode")
    return wanted(all(modes), _mode(*modes), gpu.smi("-e 1"))


def mig(gpu: NvmlGpu) -> Answer:
    modes = gpu.ask("MigMode")
    return wanted(not any(modes), _mode(*modes), gpu.smi("-mig 0"), "poor" if modes[0] else "note")


def _mode(now: int, later: int) -> str:
    word = "on" if now else "off"
    return word if now == later else f"{word}, {'on' if later else 'off'} after the next reset"


def pcie(gpu: NvmlGpu) -> Answer:
    generation, width, most, widest = (
        gpu.ask(f"{which}PcieLink{what}") for which in ("Curr", "Max") for what in ("Generation", "Width")
    )
    found = f"gen {generation} x{width}, at most gen {most} x{widest}"
    if width < widest:
        return "poor", f"{found}: lanes are missing, by slot, riser or seat", None
    if generation < most:
        return "note", f"{found}: an idle link may rest at a lower one, ask again under load", None
    return "good", found, None


def nvlink(gpu: NvmlGpu) -> Answer:
    """How many links are up, of those that the GPU has; NVML refuses to speak of others."""
    first, links = gpu.ask("NvLinkState", 0), range(1, gpu.nvml.NVML_NVLINK_MAX_LINKS)
    others = [gpu.if_told("NvLinkState", link) for link in links]
    states = [state for state in (first, *others) if state is not None]
    up = sum(states)
    found = f"{up} of {counted(len(states), 'link')} up"
    return wanted(up == len(states), found, "nvidia-smi nvlink -s", "poor" if up else "note")


def numa(gpu: NvmlGpu) -> Answer:
    where = gpu.ask("PciInfo")
    device = gpu.root / f"sys/bus/pci/devices/{where.domain:04x}:{where.bus:02x}:{where.device:02x}.0"
    node, near = int(text(device / "numa_node")), text(device / "local_cpulist")
    if not near:
        raise ValueError("/sys names no CPUs near it, as on some virtual machines")
    found = f"node {node}, CPUs {near}" if node >= 0 else f"the host's only one, CPUs {near}"
    its_own = (gpu.root / f"sys/devices/system/node/node{node}").glob("cpu[0-9]*")
    far = len(os.sched_getaffinity(0) - {int(cpu.name.removeprefix("cpu")) for cpu in its_own}) if node >= 0 else 0
    found += f"; this process may also run on {counted(far, 'CPU')} elsewhere" * bool(far)
    return wanted(not far, found, f"numactl --cpunodebind={node} --membind={node} benchmark_cli run ...")


def processes(gpu: NvmlGpu) -> Answer:
    compute = {process.pid for process in gpu.ask("ComputeRunningProcesses")} - {os.getpid()}
    drawing = gpu.if_told("GraphicsRunningProcesses") or []
    graphics = {process.pid for process in drawing} - {os.getpid()} - compute
    kinds = ((compute, "compute"), (graphics, "graphics"))
    files = {pid: gpu.root / f"proc/{pid}/comm" for pid in compute | graphics}  # none for one of another container
    names = {pid: f"{pid} ({text(file)})" if file.exists() else str(pid) for pid, file in files.items()}
    named = [f"{names[pid]}, {kind}" for pids, kind in kinds for pid in sorted(pids)]
    return "poor" if compute else "note" if graphics else "good", "; ".join(named) or "none", None


CHECKS = (
    Check("device", "results hold for this GPU and no other", device),
    Check("units", "a technique that needs a unit the GPU lacks is reported as unsupported", units),
    Check("clocks", "a GPU that is held back while samples are taken is measured slower than it is", clocks),
    Check("persistence", "without it the driver unloads between processes: seconds at each start", persistence),
    Check("power limit", "dense matrix products run at this limit: watts are speed", power),
    Check("ECC", "off, the card has more memory (and on GDDR more bandwidth) than the one compared with", ecc),
    Check("MIG", "a slice has a part of the SMs, the L2 and the bandwidth, and its own limits", mig),
    Check("PCIe link", "the limit of every copy between host and GPU", pcie),
    Check("NVLink", "the limit of every copy between GPUs; a link that is down takes its share away", nvlink),
    Check("NUMA node", "launches and copies from the far socket are slower, and vary", numa),
    Check("processes", "other processes take time, memory and clocks from the samples", processes),
)
