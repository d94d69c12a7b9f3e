"""The least time that physics allows for a cost, the rates that were achieved, and the rates that are impossible.

Peaks are measured on this machine, else from the datasheet; `Peaks.source` says which. All of it is arithmetic on a
cost, a time and the peaks that a run keeps in `peaks.json`.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from pydantic import ConfigDict, Field

from common.python.base.hardware import datasheet
from common.python.base.results import Cost, Limit, Model, optional

DATASHEET = "datasheet"
MARGIN = 0.05  # by which a measured peak may be beaten
# Vendors quote rates at the boost clock, and GeForce cards run beyond it: an RTX 4090 quoted at 2.52 GHz runs at 2.7
# and can be set to 3.1. A rate is impossible by its datasheet only where no clock explains it.
CLOCK_HEADROOM = 0.3
# Shared with other work, these have no lasting peak: one disk gave 1.3 to 1.8 GB/s while it was surveyed, and 1.95 soon
# after. A rate beyond the surveyed one is a note there, and accuses nobody.
SHARED = ("disk", "host")
# The share of the bytes that is written, in each mix that the survey measures.
MIXES = ((0.0, "hbm_read"), (1 / 3, "hbm_triad"), (1 / 2, "hbm_copy"), (1.0, "hbm_write"))

_BYTES = {"hbm": "GB/s", "pcie": "PCIe GB/s", "nvlink": "NVLink GB/s", "disk": "disk GB/s", "host": "host GB/s"}
_FIELDS = {name: f"{name}_bytes" for name in _BYTES if name != "hbm"}  # of a cost, with the bytes of each
_DECLARED = _FIELDS | {"hbm": "read + write", "launch": "launches"}  # else `flops`


class Peaks(Model):
    """The most that each resource of one machine can do.

    Resources are `hbm`, `pcie`, `nvlink`, `disk` and `host` in bytes/s, the dtypes in FLOP/s, `exp2` in exponentials/s,
    and `launch` in seconds for one launch.
    """

    model_config = ConfigDict(frozen=True)

    values: dict[str, float]
    fastest: dict[str, float] = optional("best single samples: a GEMM near the power cap wanders by 6%", {})
    mixes: dict[str, float] = optional("of device memory, by the mix of reads and writes; bytes/s", {})
    source: str = Field(description="'datasheet of ...' or 'measured on 2026-01-31'")
    l2_bytes: float = Field(default=0.0, ge=0, description="traffic that the cache can keep from memory in a step")


def datasheet_peaks(gpu_name: str) -> Peaks | None:
    """The peaks of a GPU by its datasheet; None when it has none. Disk, host and launches are in no datasheet."""
    sheet = datasheet(gpu_name)
    if sheet is None:
        return None
    links = {"hbm": sheet.hbm, "pcie": sheet.pcie, "nvlink": sheet.nvlink}
    values = {resource: peak for resource, peak in links.items() if peak is not None} | sheet.rates
    return Peaks(values=values, source=f"{DATASHEET} of {sheet.name}", l2_bytes=sheet.l2_bytes or 0)


def total(phases: Sequence[Cost]) -> Cost:
    """What all phases need together; the dtype is that of the phase with the most FLOPs."""
    if len(phases) == 1:
        return phases[0]
    amounts = [name for name, field in Cost.model_fields.items() if field.annotation in (float, int)]
    sums = {name: sum(getattr(phase, name) for phase in phases) for name in amounts}
    most = max(phases, key=lambda phase: phase.flops)
    unit = next((phase.unit for phase in phases if phase.unit), "")
    return Cost(**sums, dtype=most.dtype, unit=unit)


def limit(phases: Sequence[Cost], peaks: Peaks | None, floor_us: float | None = None) -> Limit | None:
    """The sum over phases of the largest of work over peak, over the resources of a phase, and at least `floor_us`.

    It is named after the resource that binds the longest phase. None when no peak of any resource is known.
    """
    if peaks is None:
        return None
    us, binding = _bound(phases, peaks)
    if binding is None:
        return None
    peak, unit, source = _peak(binding, total(phases), peaks), _unit(binding), peaks.source
    if floor_us and us < floor_us:
        us, binding, peak, unit, source = floor_us, "empty step", floor_us * 1e-6, "s", "measured in the session"
    return Limit(us=us, resource=binding, peak=peak, unit=unit, source=source)


def rates(cost: Cost, us: float, sheet: Peaks | None = None) -> dict[str, float]:
    """What a step of `us` microseconds achieved, in the field's units: `GB/s`, `PCIe GB/s`, `TFLOP/s`, `tokens/s`.

    Where items are tokens, `MFU` is the model FLOPs utilisation: the declared FLOPs over what the GPU would do in that
    time by its datasheet, `sheet`, from 0 to 1. It is defined by the theoretical peak (PaLM, arXiv:2204.02311,
    appendix B); the share of what this machine was measured to do is the % of limit.
    """
    seconds = us * 1e-6
    achieved = {}
    for resource, amount in _work(cost):
        if resource in _BYTES:
            achieved[_BYTES[resource]] = amount / seconds / 1e9
        elif resource != "launch":
            achieved["TOP/s" if _unit(resource) == "OP/s" else "TFLOP/s"] = amount / seconds / 1e12
    if cost.items:
        achieved[f"{cost.unit or 'items'}/s"] = cost.items / seconds
    if cost.unit == "tokens" and cost.flops and sheet is not None and cost.dtype in sheet.values:
        achieved["MFU"] = cost.flops / seconds / sheet.values[cost.dtype]
    return achieved


def impossible(phases: Sequence[Cost], us: float, peaks: Peaks | None) -> str | None:
    """The resource whose rate beats its peak by more than 5%, and what to doubt; None when physics allows `us`.

    A rate is held against the fastest sample of its peak, where that is known. Memory traffic that the cache can hold
    does not count, since steps repeated back to back find it there; nor do host memory and disk, which others share.
    """
    if peaks is None:
        return None
    own = {name: peak for name, peak in (peaks.values | peaks.fastest).items() if name not in SHARED}
    ceilings = peaks.model_copy(update={"values": own})
    least_us, resource = _bound(phases, ceilings, uncached=True)
    nominal = peaks.source.startswith(DATASHEET) and resource not in _BYTES
    if resource is None or least_us <= us * (1 + (CLOCK_HEADROOM if nominal else MARGIN)):
        return None
    amount, peak = dict(_work(total(phases)))[resource], peak_text(resource, ceilings.values[resource])
    return (
        f"{resource}: {us:.4g} us would be {least_us / us:.2f} times the peak of {peak} ({peaks.source}): doubt the "
        f"declared {_DECLARED.get(resource, 'flops')} of {amount:.4g}, the time, or the peak of {resource}"
    )


def _bound(phases: Sequence[Cost], peaks: Peaks, uncached: bool = False) -> tuple[float, str | None]:
    """The least microseconds of all phases, and the resource that binds the longest one; none without any peak."""
    longest = [max(times) for cost in phases if (times := _times(cost, peaks, uncached))]
    return 1e6 * sum(seconds for seconds, _ in longest), max(longest)[1] if longest else None


def _times(cost: Cost, peaks: Peaks, uncached: bool) -> list[tuple[float, str]]:
    """Seconds that each resource with a known peak needs; `uncached`: less what may stay in the GPU's cache."""
    cached = {"hbm": peaks.l2_bytes} if uncached else {}
    times = []
    for resource, amount in _work(cost):
        if resource in peaks.values:
            peak, work = _peak(resource, cost, peaks), max(amount - cached.get(resource, 0.0), 0.0)
            times.append((work * peak if resource == "launch" else work / peak, resource))
    return times


def _peak(resource: str, cost: Cost, peaks: Peaks) -> float:
    """A resource's peak; device memory's is interpolated between measured mixes, for the cost's reads and writes."""
    known = {share: peaks.mixes[name] for share, name in MIXES if name in peaks.mixes}
    if resource != "hbm" or len(known) < 2:
        return peaks.values[resource]
    return float(np.interp(cost.write / cost.hbm, [*known], [*known.values()]))


def _work(cost: Cost) -> Iterator[tuple[str, float]]:
    others = {name: getattr(cost, field) for name, field in _FIELDS.items()}
    amounts = {"hbm": cost.hbm, cost.dtype: cost.flops, **others, "launch": cost.launches}
    return ((resource, amount) for resource, amount in amounts.items() if amount)


def _unit(resource: str) -> str:
    if resource in _BYTES:
        return "B/s"
    return {"launch": "s", "int8": "OP/s", "exp2": "OP/s"}.get(resource, "FLOP/s")


def peak_text(resource: str, peak: float, unit: str = "") -> str:
    """A peak in the field's unit: `4.25 TB/s`, `1.54 PFLOP/s`, `0.88 us a launch`."""
    if (unit := unit or _unit(resource)) == "s":
        return f"{peak * 1e6:.3g} us a launch"
    prefix, scale = ("P", 1e15) if peak >= 1e15 else ("T", 1e12) if peak >= 1e12 else ("G", 1e9)
    return f"{peak / scale:.3g} {prefix}{unit}"
