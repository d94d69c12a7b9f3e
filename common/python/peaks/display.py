"""Peaks as people read them: a line or a row each, four digits, in the unit that suits."""

import math
from collections import defaultdict
from datetime import timezone

from common.python.base.text import clean, text_table, wide_console
from common.python.peaks.store import RESOURCE_OF, Curve, Peak, Survey
from common.python.performance_targets import Peaks, datasheet_peaks

COLUMNS = ("peak", "value", "95% interval", "sustained", "of datasheet", "SM clock", "power", "how")
MESSAGE_NAMES = {"all_reduce": "all-reduce", "nvlink_copy": "peer copy"}


def show(survey: Survey) -> None:
    """A table of the peaks that have a value, the reasons why others have none, the versions, and a line a curve."""
    sheet, missing = datasheet_peaks(survey.device), defaultdict[str, list[str]](list)
    for peak in survey.peaks:
        if peak.reason is not None:
            missing[peak.reason].append(peak.name)
    below = [f"not measured, {reason}: {', '.join(names)}" for reason, names in missing.items()]
    below.append(", ".join(f"{name} {version}" for name, version in survey.versions.items() if version))
    when = f"{survey.measured.astimezone(timezone.utc):%Y-%m-%d %H:%M} UTC in {survey.seconds:.0f} s"
    title, caption = f"Peaks of {survey.device}, measured {when}", "\n".join(map(clean, below))
    lines = [_cells(peak, sheet) for peak in survey.peaks if peak.value is not None]
    wide_console().print(text_table(COLUMNS, lines, title, caption, right=COLUMNS[1:-1]))
    for curve in survey.curves:
        print(curve_text(curve))


def peak_line(peak: Peak, sheet: Peaks | None) -> str:
    """One plain line: all cells of a peak that has a value, else why it has none."""
    if peak.value is None:
        return f"{clean(peak.name):24} not measured: {clean(peak.reason or '')}"
    name, value, *further = _cells(peak, sheet)
    return "  ".join(filter(None, (f"{name:24} {value:>14}", *further)))


def _cells(peak: Peak, sheet: Peaks | None) -> list[str]:
    """A measured peak's name, median, interval, sustained rate, share of the datasheet, clock, power and method."""
    value, low, high = (figure(number or 0.0, peak.unit) for number in (peak.value, peak.low, peak.high))
    promised = sheet.values.get(RESOURCE_OF.get(peak.name, "")) if sheet else None
    written = [
        peak.name,
        value,
        f"{low} to {high}",
        "" if peak.sustained is None else f"sustained {figure(peak.sustained, peak.unit)}",
        f"{(peak.value or 0.0) / promised:.1%} of the datasheet" if promised else "",
        "" if peak.sm_mhz is None else f"{peak.sm_mhz:.0f} MHz",
        "" if peak.power_w is None else f"{peak.power_w:.0f} W",
        "; ".join([peak.method, *peak.throttle]),
    ]
    return [clean(cell) for cell in written]


def curve_text(curve: Curve) -> str:
    """One line: `all-reduce: 9.810 us at 1 KiB, 329.1 GB/s at 1 GiB (...)`; the latter is the best of all sizes."""
    small, best = curve.points[0], max(curve.points, key=curve.rate)
    how = "; ".join([curve.method, *(f"{name}={value}" for name, value in curve.settings.items())])
    slow = f"{figure(small.seconds, 's')} at {size_text(small.bytes)}"
    fast = f"{figure(curve.rate(best), 'B/s')} at {size_text(best.bytes)}"
    return clean(f"{MESSAGE_NAMES.get(curve.name, curve.name)}: {slow}, {fast} ({how})")


def size_text(count: float) -> str:
    """1 KiB, 64 MiB, 1 GiB: sizes of messages are powers of two."""
    unit, scale = next(((u, s) for u, s in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)) if count >= s), ("B", 1))
    return f"{count / scale:g} {unit}"


def figure(value: float, unit: str) -> str:
    """Four digits in the unit that suits: 4.251 TB/s, 55.52 GB/s, 0.8800 us."""
    if unit == "s":
        return f"{_four_digits(value * 1e6)} us"
    letter, scale = next(((a, s) for a, s in (("T", 1e12), ("G", 1e9)) if value >= 0.9999 * s), ("M", 1e6))
    return f"{_four_digits(value / scale)} {letter}{unit}"


def _four_digits(value: float) -> str:
    return f"{value:.{max(0, 3 - math.floor(math.log10(float(f'{value:.4g}'))))}f}"
