"""Peaks as people read them: a line each, in the unit that suits."""

from common.python.base.text import clean
from common.python.peaks.store import NO_GPU, RESOURCE_OF, Curve, Peak, Survey
from common.python.performance_targets import Peaks, peak_text

MESSAGE_NAMES = {"all_reduce": "all-reduce", "nvlink_copy": "peer copy"}


def show(survey: Survey) -> None:
    """A line for each curve, one for the peaks that need a GPU where there is none, and the versions."""
    for curve in survey.curves:
        print(curve_text(curve))
    if missing := [peak.name for peak in survey.peaks if peak.reason == NO_GPU]:
        print(f"not measured, {NO_GPU}: {', '.join(missing)}")
    print(clean(", ".join(f"{name} {version}" for name, version in survey.versions.items() if version)))
    print(f"{len(survey.peaks) - len(missing)} peaks of {clean(survey.device)} in {survey.seconds:.0f} s")


def peak_line(peak: Peak, sheet: Peaks | None) -> str:
    """Its median, interval, sustained rate, share of the datasheet, clock, power and method; or why it has none."""
    if peak.value is None:
        return f"{clean(peak.name):24} not measured: {clean(peak.reason or '')}"
    value, low, high = (_rate(number or 0.0, peak.unit) for number in (peak.value, peak.low, peak.high))
    promised = sheet.values.get(RESOURCE_OF.get(peak.name, "")) if sheet else None
    further = [
        f"{low} to {high}",
        "" if peak.sustained is None else f"sustained {_rate(peak.sustained, peak.unit)}",
        f"{peak.value / promised:.1%} of the datasheet" if promised else "",
        "" if peak.sm_mhz is None else f"{peak.sm_mhz:.0f} MHz",
        "" if peak.power_w is None else f"{peak.power_w:.0f} W",
        clean("; ".join([peak.method, *peak.throttle])),
    ]
    return "  ".join(filter(None, (f"{clean(peak.name):24} {value:>14}", *further)))


def curve_text(curve: Curve) -> str:
    """One line: `all-reduce: 9.81 us at 1 KiB, 329 GB/s at 1 GiB (...)`; the latter is the best of all sizes."""
    small, best = curve.points[0], max(curve.points, key=curve.rate)
    how = "; ".join([curve.method, *(f"{name}={value}" for name, value in curve.settings.items())])
    slow = f"{_rate(small.seconds, 's')} at {size_text(small.bytes)}"
    fast = f"{_rate(curve.rate(best), 'B/s')} at {size_text(best.bytes)}"
    return clean(f"{MESSAGE_NAMES.get(curve.name, curve.name)}: {slow}, {fast} ({how})")


def size_text(count: float) -> str:
    """1 KiB, 64 MiB, 1 GiB: sizes of messages are powers of two."""
    unit, scale = next(((u, s) for u, s in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)) if count >= s), ("B", 1))
    return f"{count / scale:.4g} {unit}"


def _rate(value: float, unit: str) -> str:
    return f"{value * 1e6:.3g} us" if unit == "s" else peak_text("", value, unit)
