"""Where the peaks of a run come from. The GPU is a name here, and what would be measured on it is given."""

from pathlib import Path
from typing import Any

import pytest
from synthetic_run import host, peak, survey

from common.python.base.machine import Machine
from common.python.peaks import store as peak_store
from common.python.peaks import survey as peak_survey
from common.python.peaks.store import Peak, Survey, difference, load, peaks_of
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


# The file in which they are kept.

VERSIONS = {"driver": "580.1", "CUDA of the driver": "13.0", "torch": "2.11.0", "triton": "3.6.0", "cuBLAS": None}


@pytest.mark.parametrize(
    ("given", "spoilt"), [("03:04:05Z", "03:04:05"), ("4000000000000.0", "-1.0"), ('"fastest":4000000000000.0,', "")]
)
def test_a_foreign_file_is_one_line_that_names_it_and_says_what_to_do(given: str, spoilt: str, tmp_path: Path) -> None:
    """A time of no zone, a rate below zero, a figure that is missing; test_fuzz has what else a file may hold."""
    good = survey(peak("hbm_read", 4e12)).model_dump_json()
    assert given in good
    path = tmp_path / "ab-12.json"
    path.write_text(good.replace(given, spoilt))
    with pytest.raises(ValueError, match=rf"^{path} .*`benchmark_cli peak` measures them again and replaces the file$"):
        load(path)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, None),
        ({"driver": "590.2"}, "were measured with driver 580.1, here is 590.2"),
        ({"cuBLAS": "13.1"}, "were measured with cuBLAS unknown, here is 13.1"),
        ({"torch": None}, "were measured with torch 2.11.0, here is unknown"),
    ],
)
def test_peaks_of_other_versions_are_not_used_and_the_version_is_named(changed: dict[str, Any], told: str) -> None:
    found = difference(survey(versions=VERSIONS), "GPU-1", {**VERSIONS, **changed})
    assert found is None if told is None else found is not None and told in found


def test_a_limit_is_made_of_the_best_that_was_seen_of_each_resource() -> None:
    measured = survey(
        peak("hbm_read", 4.4e12),
        peak("hbm_write", 4.1e12, fastest=4.5e12),
        peak("hbm_copy", 4.25e12),
        peak("l2_read", 6e12),
        peak("bf16", 781e12, fastest=850e12, unit="FLOP/s"),
        peak("bf16_sparse", 1200e12, unit="FLOP/s"),
        peak("fp32", 51e12, unit="FLOP/s"),
        peak("fp32_fma", 62e12, unit="FLOP/s"),
        peak("fp8", 1419e12, unit="FLOP/s"),
        peak("fp8_rowwise", 1284e12, unit="FLOP/s"),
        peak("pcie_to_device", 55e9),
        peak("pcie_to_host", 53e9),
        peak("pcie_both", 100e9),
        peak("launch_eager", 5.3e-6, fastest=5.1e-6, unit="s"),
        peak("graph_node", 0.88e-6, fastest=0.86e-6, unit="s"),
        Peak(name="disk_read", unit="B/s", reason="the disk is full"),
        l2_bytes=60e6,
    )
    peaks = peaks_of(measured)
    assert peaks.values == {
        "hbm": 4.4e12,
        "bf16": 781e12,
        "fp32": 62e12,
        "fp8": 1419e12,
        "pcie": 55e9,
        "launch": 0.88e-6,
    }
    assert (peaks.fastest["hbm"], peaks.fastest["bf16"], peaks.fastest["launch"]) == (4.5e12, 850e12, 0.86e-6)
    assert set(peaks.fastest) == set(peaks.values)
    assert (peaks.source, peaks.l2_bytes) == ("measured on 2026-01-01", 60e6)
