"""run --profile with stand-ins for ncu and nsys on the PATH: they record their arguments and replay a report."""

import json
import os
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from small_tree import ROOT, alive, until
from synthetic_run import program, written

from common.python.base.results import PairResult, Why
from common.python.corpus.discovery import Pair, find_pairs
from common.python.profile import nsight
from common.python.profile.nsight import NO_TIME, Uncaptured, profile, speed_of_light
from common.python.report.templates import pair_markdown
from common.python.run.session import Settings
from common.python.run.variant_status import new_result

NCU = 'case "$1" in --import) cat "$HERE/table.csv";; *) printf report > "$2.ncu-rep";; esac'
NSYS = 'case "$1" in export) cp "$HERE/kernels.sqlite" "${3#--output=}";; *) printf report > "$3.nsys-rep";; esac'
# Not recorded, but written from public uses of ncu: `--page raw --csv --print-units base`
# prints a line of metrics, a line of their units and a line for each launch, every cell in quotation marks.
COLUMNS = ("ID", "Process ID", "Kernel Name", *nsight.UNITS)
UNITS = ("", "", "", "ns", "byte", "byte", "%", "%", "%")
FIRST = ("0", "71", "void tile<1>(const float *, float *)", "3,000", "2,000,000", "500", "90.5", "20", "80")
SECOND = ("1", "71", "copy", "1,000", "0", "1,500", "50.5", "60", "40")


def table(*lines: tuple[str, ...], units: tuple[str, ...] = UNITS) -> str:
    quoted = (",".join(f'"{cell}"' for cell in line) for line in (COLUMNS, units, *lines))
    return "==PROF== Connected to process 71\n" + "\n".join(quoted) + "\n"


@dataclass
class Place:
    """A pair with a result as its session leaves it, and a folder of stand-ins that comes first on the PATH."""

    folder: Path
    pair: Pair
    settings: Settings
    result: PairResult

    def tool(self, name: str, body: str) -> None:
        told = f'#!/bin/sh\nHERE={self.folder}\necho "$@" >> $HERE/{name}.calls\n{body}\n'
        program(self.folder / "bin" / name, told)

    def calls(self, name: str) -> list[str]:
        path = self.folder / f"{name}.calls"
        return path.read_text().splitlines() if path.exists() else []

    def profile(self, **changes: Any) -> list[str]:
        """The notes that it leaves."""
        return profile(self.result, self.pair, replace(self.settings, **changes)).notes


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    files = {f"ch01/{role}_x.py": '"""Doubles every element."""\n' for role in ("baseline", "optimized")}
    (pair,) = find_pairs(written(tmp_path / "root", files))
    result = PairResult(chapter="ch01", name="x", status="measured", verdict="faster", device="NVIDIA H200")
    result.variants = new_result(pair, "cpu").variants
    for row in result.variants:
        row.status, row.why = "measured", Why(kernels=2)
    settings = Settings(
        folder=tmp_path / "artifacts" / "ch01_x",
        scratch=tmp_path / "scratch",
        size="bench",
        seed=7,
        device="NVIDIA H200",
        profile=True,
    )
    settings.scratch.mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    found = Place(tmp_path, pair, settings, result)
    (tmp_path / "table.csv").write_text(table(FIRST, SECOND))
    # As `nsys export --type sqlite` is said to make it, not recorded: a row for each launch.
    with closing(sqlite3.connect(tmp_path / "kernels.sqlite")) as base, base:
        base.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (demangledName INTEGER, shortName INTEGER)")
        base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (0, 0), (1, 1)")
    found.tool("ncu", NCU)
    found.tool("nsys", NSYS)
    return found


def test_every_variant_gets_a_report_a_timeline_and_figures(place: Place) -> None:
    assert place.profile() == []
    for row in place.result.variants:
        assert row.speed_of_light.dram_percent == pytest.approx(80.5)
        for suffix in ("ncu-rep", "nsys-rep"):
            assert (place.settings.folder / "profiles" / f"{row.name}.{suffix}").read_text() == "report"
    assert place.result.seconds["profilers"] > 0
    shown = pair_markdown(place.result)
    assert "| 80.5% | 30.0% | 70.0% | 2.0 MB | 2.0 kB | 2 | 4.00 us |" in shown


def test_each_tool_starts_the_step_of_each_variant_at_the_size_that_was_timed(place: Place) -> None:
    place.tool("nsys", f"pwd > $HERE/pwd\n{NSYS}")
    place.profile()
    assert Path((place.folder / "pwd").read_text().strip()) == ROOT  # where `-m common.python...` is found
    for tool in ("ncu", "nsys"):
        starts = [call for call in place.calls(tool) if "one_step" in call]
        asked = [json.loads(call.partition("one_step ")[2]) for call in starts]
        variants = ("baseline_x", "optimized_x")
        assert [one["modules"] for one in asked] == [{name: f"ch01.{name}"} for name in variants]
        for name, call, one in zip(variants, starts, asked):
            assert f"step of {name}" in call
            assert (one["size"], one["seed"], one["baseline"]) == ("bench", 7, "ch01.baseline_x")
            assert Path(one["root"]).is_absolute()


def test_nothing_is_started_unless_asked_for_nor_for_what_was_not_measured(place: Place) -> None:
    assert place.profile(profile=False) == []
    place.result.variants[0].status = "failed"
    place.result.variants[1].why = None
    assert place.profile() == []
    assert not place.calls("ncu") + place.calls("nsys")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (': > "$2.ncu-rep"', "it wrote no baseline_x.ncu-rep"),
        ("echo ==ERROR== Unknown section; exit 1", "exit code 1: Unknown section"),
        ("exec /nowhere/at/all", "exit code 127"),
        (NCU.replace('cat "$HERE/table.csv"', "exit 5"), "exit code 5"),
    ],
)
def test_what_ncu_did_not_capture_is_a_note_and_no_failure(place: Place, body: str, reason: str) -> None:
    place.result.variants.pop()
    place.tool("ncu", body)
    (note,) = place.profile()
    assert note.startswith("ncu on baseline: ")
    assert reason in note
    assert place.result.variants[0].speed_of_light is None
    assert place.result.status == "measured"


def test_a_report_without_all_kernels_of_the_step_says_so(place: Place) -> None:
    for row in place.result.variants:
        row.why.kernels = 3
    said = "on baseline, optimized: its report has 2 of the step's 3 kernels"
    assert place.profile() == [f"ncu {said}", f"nsys {said}"]
    assert place.result.variants[0].speed_of_light.kernels == 2
    with closing(sqlite3.connect(place.folder / "kernels.sqlite")) as base, base:
        base.execute("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL")  # as where the tool saw no launch
    assert "nsys on baseline, optimized: its report has 0 of the step's 3 kernels" in place.profile()


def test_a_report_left_by_an_earlier_run_is_none_of_this_one(place: Place) -> None:
    place.profile()
    place.result.notes = []
    place.tool("ncu", "true")
    assert sum("it wrote no" in note for note in place.profile()) == 2


def test_counters_that_may_not_be_read_are_asked_for_once(place: Place) -> None:
    place.tool("ncu", "echo ==ERROR== ERR_NVGPUCTRPERM - The user does not have permission; exit 1")
    (note,) = place.profile()
    assert note.startswith("ncu on baseline, optimized: it may not read the GPU's counters (ERR_NVGPUCTRPERM)")
    assert len(place.calls("ncu")) == 1


def test_a_tool_that_hangs_is_ended_at_the_pairs_limit_with_all_that_it_started(place: Place) -> None:
    place.tool("ncu", "sleep 61 & echo $! > $HERE/child; wait")
    started = time.monotonic()
    notes = place.profile(time_limit_s=0.5)
    assert time.monotonic() - started < 5
    assert notes[0] == "ncu on baseline: it did not end in the 0.5 s that were left of the limit"
    assert notes[1:] == [f"ncu on optimized: {NO_TIME}", f"nsys on baseline, optimized: {NO_TIME}"]
    until(lambda: not alive(int((place.folder / "child").read_text())), 5)


def test_what_the_session_took_is_no_longer_there_for_profilers(place: Place) -> None:
    place.result.seconds = {"samples": 60.0, "proof": 61.0}
    late = [f"{tool} on baseline, optimized: {NO_TIME}" for tool in ("ncu", "nsys")]
    assert place.profile() == late
    place.result.notes, place.result.seconds = [], {}
    assert place.profile(suite_deadline=time.monotonic()) == late


# Reports and command lines.


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "holds no kernel"),
        (table(), "holds no kernel"),
        (table(FIRST, units=(*UNITS[:3], "us", *UNITS[4:])), "no number .* gpu__time_duration.sum in ns"),
        (table(FIRST).replace("sm__throughput", "gone"), "no number .* sm__throughput.avg.pct_of_peak"),
        (table((*FIRST[:6], "n/a", *FIRST[7:])), "no number .* dram__throughput.avg.pct_of_peak"),
        (table((*FIRST[:3], "0", *FIRST[4:])), "took no time"),
    ],
)
def test_a_table_that_gives_no_figures_says_why(text: str, reason: str) -> None:
    with pytest.raises(Uncaptured, match=reason):
        speed_of_light(text)
