"""A GPU's peaks, kept to be read: `python -m tools.documentation.peak_results RUN`, or without RUN the pages anew.

RUN is a run's folder or a file of peaks. Into docs/results/<gpu>/peaks.json goes what was measured, less what names a
machine (reasons stay as they were told). The tables of peaks.md beside it are made of that, between markers; what is
outside of them stays. A survey of one GPU knows no links: these are in links.json, of `benchmark_cli peak --publish`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from common.python.base.hardware import file_name
from common.python.base.journal import write
from common.python.base.results import Manifest
from common.python.peaks import store
from common.python.peaks.store import CPU, Peak, Survey, Unit
from common.python.regress.expectations import origin
from common.python.report.artifacts import read_model
from common.python.report.markdown import escaped, replace_between_markers
from common.python.report.peak_text import figure, size_text
from common.python.report.publish import KEPT as LINKS
from common.python.report.publish import RESULTS
from tools.arguments import Arguments

ROOT = Path(__file__).resolve().parents[2]
KEPT, PAGE = "peaks.json", "peaks.md"
BEGIN, END = "<!-- peaks:begin -->", "<!-- peaks:end -->"
MOST_APART = 0.05  # from what is expected; beyond it, the page has to say why
MESSAGE = 2 * 2**20
MESSAGE_NAME = f"all_reduce of {size_text(MESSAGE)}"
# What the project's design had from earlier measurements, in B/s, FLOP/s and seconds.
EXPECTED = {
    "NVIDIA H200": {
        **{"hbm_copy": 4.25e12, "bf16": 781e12, "fp16": 749e12, "tf32": 364e12, "fp32": 51e12, "fp64": 61e12},
        **{"fp8": 1419e12, "fp8_rowwise": 1284e12, "pcie_to_device": 55.5e9, "pcie_to_device_pageable": 25.7e9},
        **{"nvlink_copy": 373e9, "all_reduce": 329e9, MESSAGE_NAME: 32e-6, "launch_eager": 5.3e-6},
        "graph_node": 0.88e-6,
    }
}
COLUMNS = ("peak", "value", "95% interval", "sustained", "expected", "difference", "clock, power", "how")


@dataclass(frozen=True)
class Line:
    """One figure of the page, with what was expected of it."""

    name: str
    unit: Unit
    value: float
    low: float
    high: float
    expected: float | None
    sustained: float | None = None
    state: str = ""
    how: str = ""

    def apart(self) -> float | None:
        return None if self.expected is None else self.value / self.expected - 1


def keep(place: Path, root: Path) -> Path:
    """Write the survey beside its page, whose path it gives. Raises ValueError, in one line, for none of a GPU."""
    survey = store.load(place / KEPT if place.is_dir() else place)
    if survey is None or survey.uuid == CPU:
        raise ValueError(f"{place} holds no peaks of a GPU: name a run's folder or a file of peaks")
    folder = root / RESULTS / file_name(survey.device)
    current((folder / PAGE).read_text(), folder)  # which raises before anything is written
    curves = [curve.model_copy(update={"settings": _nameless(curve.settings)}) for curve in survey.curves]
    kept = survey.model_copy(update={"uuid": "", "commit": _commit(place, survey, root), "curves": curves})
    write(folder / KEPT, kept.model_dump_json(indent=1) + "\n")
    return folder / PAGE


def _nameless(settings: Mapping[str, str]) -> dict[str, str]:
    """Those that are numbers or versions: others may name hosts, networks or folders."""
    return {name: value for name, value in settings.items() if re.fullmatch(r"\d[\d.-]*", value)}


def _commit(place: Path, survey: Survey, root: Path) -> str | None:
    """That of the run which measured them; None if they were stored before it, or its tree differed from it."""
    if not (place / "manifest.json").is_file():
        return None
    about = read_model(place / "manifest.json", Manifest)
    commit, dirty = origin(about, root)
    return None if dirty or survey.measured < datetime.fromisoformat(about.started) else commit


def current(text: str, folder: Path) -> str:
    """The page's text with its tables as what is kept in the folder makes them. Raises ValueError without markers."""
    return replace_between_markers(text, section(folder), BEGIN, END)


def section(folder: Path) -> str:
    parts = []
    for survey, lines in _surveys(folder):
        parts += [_origin(survey), _table(lines)]
        parts += [f"Not measured: {'; '.join(missing)}."] if (missing := _missing(survey)) else []
    return "\n\n".join(parts)


def unexplained(text: str, folder: Path) -> list[str]:
    """What is over 5% from what is expected, and in the page's own words, outside its tables, is not named."""
    words = replace_between_markers(text, "", BEGIN, END)
    apart = [line for _, lines in _surveys(folder) for line in lines if abs(line.apart() or 0.0) > MOST_APART]
    return [line.name for line in apart if f"`{line.name}`" not in words]


def _surveys(folder: Path) -> list[tuple[Survey, list[Line]]]:
    """The surveys that are kept, each with its lines; links of their own file only where the survey has none."""
    shown: set[str] = set()
    found = []
    for name in (KEPT, LINKS):
        survey = store.load(folder / name)
        if survey is not None and (lines := [line for line in _lines(survey) if line.name not in shown]):
            shown |= {line.name for line in lines}
            found.append((survey, lines))
    return found


def _lines(survey: Survey) -> list[Line]:
    expected = EXPECTED.get(survey.device, {})
    lines = []
    for peak in survey.peaks:
        if peak.value is not None and peak.low is not None and peak.high is not None:
            figures, held = (peak.value, peak.low, peak.high), expected.get(peak.name)
            lines.append(Line(peak.name, peak.unit, *figures, held, peak.sustained, _state(peak), peak.method))
    for curve in survey.curves:
        for point in curve.points:
            if curve.name == "all_reduce" and point.bytes == MESSAGE:
                figures, held = (point.seconds, point.low, point.high), expected.get(MESSAGE_NAME)
                lines.append(Line(MESSAGE_NAME, "s", *figures, held, how=curve.method))
    return lines


def _state(peak: Peak) -> str:
    clock = "" if peak.sm_mhz is None else f"{peak.sm_mhz:.0f} MHz"
    power = "" if peak.power_w is None else f"{peak.power_w:.0f} W"
    return ", ".join(filter(None, [clock, power, *peak.throttle]))


def _missing(survey: Survey) -> list[str]:
    return [escaped(f"{peak.name}, {peak.reason}") for peak in survey.peaks if peak.reason is not None]


def _origin(survey: Survey) -> str:
    settings = {name: value for curve in survey.curves for name, value in curve.settings.items()}
    versions = [f"{name} {version}" for name, version in survey.versions.items() if version]
    versions += [f"{name}={value}" for name, value in settings.items()]
    commit = f"commit {survey.commit[:8]}" if survey.commit else "commit not recorded"
    when = f"{survey.device}, {survey.measured:%Y-%m-%d}, {len(survey.peaks)} peaks in {survey.seconds:.0f} s"
    return f"{escaped(', '.join([when, *versions, commit]))}."


def _table(lines: list[Line]) -> str:
    rows = [COLUMNS, ("---",) * len(COLUMNS), *map(_cells, lines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cells(line: Line) -> tuple[str, ...]:
    value, low, high = (figure(number, line.unit) for number in (line.value, line.low, line.high))
    sustained = "" if line.sustained is None else figure(line.sustained, line.unit)
    expected = "" if line.expected is None else figure(line.expected, line.unit)
    told = (value, f"{low} to {high}", sustained, expected, _difference(line), line.state, line.how)
    return (f"`{line.name}`", *map(escaped, told))


def _difference(line: Line) -> str:
    apart = line.apart()
    if apart is None or line.expected is None:
        return ""
    if abs(apart) <= MOST_APART or line.sustained is None:
        return f"{apart:+.1%}"
    return f"{apart:+.1%}, sustained {line.sustained / line.expected - 1:+.1%}"


def main(run: Path | None, root: Path) -> None:
    """Keep the run that is named, write the pages anew, and say which differences they do not explain."""
    for page in [keep(run, root)] if run else sorted((root / RESULTS).glob(f"*/{PAGE}")):
        text = current(page.read_text(), page.parent)
        write(page, text)
        print(page)
        for name in unexplained(text, page.parent):
            print(f"{page} does not say why `{name}` is over {MOST_APART:.0%} from what is expected")


if __name__ == "__main__":
    words = Arguments("peak_results", __doc__)
    words.add_argument("run", type=Path, nargs="?", metavar="RUN")
    try:
        main(words.parse_args().run, ROOT)
    except (ValueError, OSError) as error:
        words.error(str(error))
