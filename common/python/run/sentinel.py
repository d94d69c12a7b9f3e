"""Hosts that stand apart from the others of a merged run, by what each of its runs measured anyway.

No pair is run for this: the survey of peaks has a copy, a product and a launch of each GPU, and each session has its
control and the pace of the host.
"""

import math
from collections import defaultdict
from collections.abc import Iterable
from statistics import median

from common.python.base.results import STANDS_APART, Manifest, PairResult
from common.python.peaks.store import MOST_SPREAD, Survey
from common.python.regress.environment import pace_us
from common.python.stats.host_pace import MOST_PACE
from common.python.stats.intervals import MARGIN

FEWEST_HOSTS = 3  # of which one can stand apart
USUAL = 1.4826 * 5  # times the median deviation: five standard deviations, if normal
LEAST = {  # factor from the median of the hosts within which no host stands apart
    **dict.fromkeys(("hbm_copy", "bf16", "launch_eager"), MOST_SPREAD),
    "the host's pace": MOST_PACE,
    "the control": 1 + MARGIN,
}
Measured = tuple[PairResult, Manifest, Survey | None]
Host = tuple[str | None, str, str]  # device, hostname, UUID of the GPU


def stand_apart(measured: Iterable[Measured]) -> dict[str, list[str]]:
    """A note on each pair whose host is unlike the others with such a device, by the pair's key.

    It says by which factor a time is above or below the median of the hosts.
    """
    pairs, readings = defaultdict[Host, list[str]](list), defaultdict[Host, dict[str, list[float]]](dict)
    for result, about, survey in measured:
        gpus = about.machine.gpus if result.device != "cpu" else []
        host = (result.device, about.machine.hostname, gpus[0].uuid if gpus else "")
        pairs[host].append(result.key)
        for name, value in _readings(result, survey).items():
            readings[host].setdefault(name, []).append(value)
    notes = dict[str, list[str]]()
    for host, keys in pairs.items():
        alike = {other: readings[other] for other in pairs if other[0] == host[0]}
        found = [text for name in LEAST if (text := _apart(name, host, alike))]
        name = " ".join(filter(None, host[1:]))
        notes |= {key: [f"{STANDS_APART}, {name}: {', '.join(found)}"] for key in keys if found}
    return notes


def _readings(result: PairResult, survey: Survey | None) -> dict[str, float]:
    """What tells hosts apart, each such that more is worse: times, and how far the control is from 1."""
    known = [(peak, peak.value) for peak in survey.peaks if peak.name in LEAST and peak.value] if survey else []
    found = {peak.name: value if peak.unit == "s" else 1 / value for peak, value in known}
    if pace := pace_us(result.blocks):
        found["the host's pace"] = pace
    if result.control:
        found["the control"] = math.exp(abs(math.log(result.control.ratio)))
    return found


def _apart(name: str, host: Host, alike: dict[Host, dict[str, list[float]]]) -> str | None:
    """`hbm_copy at 1.25 times the median of 8 hosts`, if that is beyond what is usual among them."""
    logs = {other: math.log(median(known[name])) for other, known in alike.items() if name in known}
    if host not in logs or len(logs) < FEWEST_HOSTS:
        return None
    middle = median(logs.values())
    usual = USUAL * median(abs(log - middle) for log in logs.values())
    if abs(logs[host] - middle) <= max(usual, math.log(LEAST[name])):
        return None
    return f"{name} at {math.exp(logs[host] - middle):.2f} times the median time of {len(logs)} hosts"
