"""Where the peaks of a run come from. The GPU is a name here, and what would be measured on it is given."""

from pathlib import Path
from typing import Any

import pytest
from synthetic_run import host, peak, survey

from common.python.base.machine import Machine
from common.python.peaks import store as peak_store
from common.python.peaks import survey as peak_survey
from common.python.peaks.store import Peak, Survey
from common.python.peaks.survey import _Surveyor, peaks_for_run
from common.python.performance_targets import Peaks, datasheet_peaks
from common.python.workers.process import WorkerError

FOUND = {"device": "NVIDIA H200", "uuid": "ab-12"}
GAP = Peak(name="hbm_copy", unit="B/s", reason="failed: out of memory")


def measured(hbm: float = 4.25e12, uuid: str = "ab-12") -> Survey:
    return survey(peak("hbm_copy", hbm), uuid=uuid)


class Place:
    """An artifacts folder, the run in it, what was said, and how often a survey was made."""

    def __init__(self, root: Path) -> None:
        self.artifacts, self.folder, self.said, self.surveys = root / "artifacts", root / "artifacts" / "run", [], 0  # type: ignore[var-annotated]

    @property
    def store(self) -> Path:
        return self.artifacts / "peaks" / "ab-12.json"

    def peaks(self, found: dict[str, Any] = FOUND, measure: bool = True) -> Peaks | None:
        return peaks_for_run(Path("/"), self.artifacts, self.folder, host(), found, self.said.append, measure=measure)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    here = Place(tmp_path)

    def counted(root: Path, log: Path, machine: Machine, found: dict[str, Any], say: Any, deadline: float) -> Survey:
        here.surveys += 1
        assert log == here.folder / "logs" / "peaks.log"
        return measured()

    monkeypatch.setattr(peak_survey, "survey", counted)
    return here


def test_the_first_run_measures_stores_and_says_so_and_the_next_one_uses_that(place: Place) -> None:
    first = place.peaks()
    assert (first.values, place.surveys) == ({"hbm": 4.25e12}, 1)
    assert place.said[0] == (
        f"there are no peaks in {place.store}: measuring those of this NVIDIA H200, once, which takes about a minute"
    )
    assert place.said[-1].startswith("limits come from peaks measured on ")
    assert place.said[-1].endswith(f", kept in {place.store}")
    assert place.store.read_bytes() == (place.folder / "peaks.json").read_bytes()
    place.said.clear()
    assert place.peaks() == first
    assert (place.surveys, len(place.said)) == (1, 1)


def test_peaks_of_another_gpu_are_measured_anew_and_replaced(place: Place) -> None:
    peak_store.save(place.store, measured(hbm=1e12, uuid="cd-34"))
    found = place.peaks()
    assert (found.values["hbm"], place.surveys) == (4.25e12, 1)
    assert "another GPU, NVIDIA H200 cd-34" in place.said[0]
    place.peaks()
    assert place.surveys == 1


def test_who_does_not_ask_for_measuring_has_stored_peaks_or_the_datasheets(place: Place) -> None:
    assert place.peaks(measure=False) == datasheet_peaks("NVIDIA H200")
    where = "limits come from the datasheet of H200; `benchmark_cli peak` measures them"
    assert place.said == [f"there are no peaks in {place.store}: {where}"]
    assert (place.surveys, place.store.exists()) == (0, False)
    kept = place.peaks()
    assert (place.peaks(measure=False), place.surveys) == (kept, 1)
    peak_store.save(place.store, measured(hbm=1e12, uuid="cd-34"))
    assert place.peaks(measure=False) == datasheet_peaks("NVIDIA H200"), "those of another GPU are none"


def test_on_a_cpu_nothing_is_measured_and_there_are_no_limits(place: Place) -> None:
    assert place.peaks({"device": "cpu"}) is None
    assert (place.surveys, place.said, place.artifacts.exists()) == (0, [], False)


@pytest.mark.parametrize("how", ["no worker", "no memory"])
def test_where_measuring_fails_the_datasheet_is_used_and_that_is_said_loudly(
    how: str, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> Survey:
        if how == "no worker":
            raise WorkerError("workload", "the worker was killed by SIGKILL during start")
        return survey(GAP, uuid="ab-12")

    monkeypatch.setattr(peak_survey, "survey", fail)
    assert place.peaks() == datasheet_peaks("NVIDIA H200")
    reason = {"no worker": "killed by SIGKILL", "no memory": "failed: out of memory"}[how]
    assert place.said[-1].startswith("THE PEAKS OF THIS GPU COULD NOT BE MEASURED")
    assert reason in place.said[-1]
    assert place.said[-1].endswith("LIMITS COME FROM THE DATASHEET OF H200")
    assert not place.store.exists()  # the next run tries again
    assert not (place.folder / "peaks.json").exists()
    assert place.peaks({"device": "NVIDIA A10", "uuid": "ab-12"}) is None
    assert place.said[-1].endswith("THERE ARE NO LIMITS")


def answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, *spreads: float) -> tuple[Peak, int]:
    """The peak that is kept where the worker gives these best samples, over their medians, one after the other."""
    asked: list[float] = []

    def ask(surveyor: _Surveyor, command: str, limit_s: float, ranks: int = 0, **arguments: Any) -> Any:
        asked.append(spreads[len(asked)])
        figures = {"value": 1e12, "low": 1e12, "high": 1e12, "fastest": asked[-1] * 1e12}
        return {"peak": {"name": name, "unit": "B/s", **figures}, "curve": None}

    monkeypatch.setattr(_Surveyor, "ask", ask)
    return _Surveyor(tmp_path, tmp_path, tmp_path / "log").measure(name, "B/s")[0], len(asked)


@pytest.mark.parametrize("name", ["hbm_write", "bf16", "fp32_fma"])
def test_a_peak_of_the_gpu_alone_that_something_disturbed_is_taken_again_and_is_none_if_it_stays_so(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Seen on an H200 beside another program: 1.84 for hbm_write, 2.14 for bf16; limits were then half as high."""
    assert answers(monkeypatch, tmp_path, name, 1.09)[0].value == 1e12
    kept, tries = answers(monkeypatch, tmp_path, name, 1.84, 1.02)
    assert (kept.value, kept.fastest, tries) == (1e12, 1.02e12, 2)
    kept, tries = answers(monkeypatch, tmp_path, name, 1.84, 1.3, 1.11)
    assert (kept.value, tries) == (None, 3)
    assert kept.reason == (
        "disturbed, 3 times: its best sample is 1.11 times its median, as when another process uses the GPU"
    )
