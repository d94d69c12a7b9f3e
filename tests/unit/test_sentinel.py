"""A host that stands apart from the others of a merged run is named, and its pairs say so."""

from dataclasses import replace
from pathlib import Path

import pytest
from synthetic_run import SURVEY, manifest, pair, write_run

from common.python.base.results import STANDS_APART, PairResult
from common.python.regress.check import hold
from common.python.regress.runs import doubt, made_of
from common.python.report.artifacts import read_run
from common.python.run.shards import merge


def fleet(place: Path, copies: list[float], controls: list[float] | None = None) -> list[PairResult]:
    """A merged run of one pair a host, whose device copies at these multiples of 4 TB/s."""
    folders = []
    for number, copy in enumerate(copies):
        about = manifest()
        about = about.model_copy(update={"machine": replace(about.machine, hostname=f"node{number}")})
        control = 100.0 * (controls or [1.0] * len(copies))[number]
        one = pair({"baseline": 100.0, "optimized": 50.0}, name=f"copy{number}", control_us=control)
        folders.append(write_run(place / str(number), [one], about))
        value = 4e12 * copy
        peak = SURVEY.peaks[0].model_copy(update={"value": value, "low": value, "high": value, "fastest": value})
        survey = SURVEY.model_copy(update={"peaks": [peak, *SURVEY.peaks[1:]]})
        (folders[-1] / "peaks.json").write_text(survey.model_dump_json())
    return read_run(merge(folders, place / "merged")).summary.pairs


def test_the_host_whose_copies_are_slow_is_named_in_its_pairs_alone(tmp_path: Path) -> None:
    *sound, slow = fleet(tmp_path, [1.0, 1.01, 0.99, 1.0, 0.8])
    told = f"{STANDS_APART}, node4 GPU-1: hbm_copy at 1.25 times the median time of 5 hosts"
    assert slow.notes == [told]
    assert [one.notes for one in sound] == [[]] * 4
    assert doubt(slow, manifest()) == f"it was {told}"
    assert doubt(sound[0], manifest()) is None
    worse = slow.model_copy(deep=True)
    worse.variants[1].speedup = worse.variants[1].speedup.model_copy(update={"ratio": 1.5, "low": 1.49, "high": 1.51})
    held = [
        hold(one, made_of([(slow, manifest())] * 3, tmp_path), manifest())
        for one in (worse, worse.model_copy(update={"notes": []}))
    ]
    assert [row.status for row in held] == ["inconclusive", "regressed"]


def test_a_host_whose_control_reads_other_than_1_stands_apart(tmp_path: Path) -> None:
    assert "the control at 1.02 times" in fleet(tmp_path, [1.0] * 4, [1.0, 1.0, 1.02, 1.0])[2].notes[0]


@pytest.mark.parametrize("copies", [[1.0, 0.8], [1.0, 0.93, 1.0, 1.0], [1.0, 0.7, 1.3, 0.85, 1.15]])
def test_two_hosts_or_what_is_usual_among_them_name_nobody(tmp_path: Path, copies: list[float]) -> None:
    assert [one.notes for one in fleet(tmp_path, copies)] == [[]] * len(copies)
