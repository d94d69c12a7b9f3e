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


def stand_apart(measured: Iterable[tuple[PairResult, Manifest, Survey | None]]) -> dict[str, list[str]]:
    """A note on each pair whose host is unlike the others with such a device, by the pair's key.

    It says by which factor a time is above or below the median of the hosts.
    """
    pairs = defaultdict[tuple[str | None, str], list[str]](list)  # by device and host
    seen = defaultdict[tuple[str | None, str], dict[str, list[float]]](dict)  # logarithms by device, name and host
    for result, about, survey in measured:
        gpus = about.machine.gpus if result.device != "cpu" else []
        host = " ".join([about.machine.hostname, *(gpu.uuid for gpu in gpus[:1])])
        pairs[result.device, host].append(result.key)
        for name, value in _readings(result, survey).items():
            seen[result.device, name].setdefault(host, []).append(math.log(value))
    notes = defaultdict[str, list[str]](list)
    for (device, name), hosts in seen.items():
        logs = {host: median(values) for host, values in hosts.items()}
        middle = median(logs.values())
        usual = USUAL * median(abs(log - middle) for log in logs.values())
        for host, log in logs.items():
            if len(logs) >= FEWEST_HOSTS and abs(log - middle) > max(usual, math.log(LEAST[name])):
                found = f"{name} at {math.exp(log - middle):.2f} times the median time of {len(logs)} hosts"
                for key in pairs[device, host]:
                    notes[key].append(f"{STANDS_APART}, {host}: {found}")
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
