"""A run's folder is read back whole, or refused in one line."""

from pathlib import Path

import pytest
from synthetic_run import PEAKS, every_kind, pair, write_run

from common.python.report.artifacts import read_run

TWO = {"baseline": 400.0, "optimized": 50.0}


def test_a_run_is_read_with_its_samples_and_the_peaks_of_its_day(tmp_path: Path) -> None:
    pairs = every_kind()
    run = read_run(write_run(tmp_path, pairs))
    assert run.summary.pairs == pairs
    assert run.peaks == PEAKS
    assert PEAKS.source == "measured on 2026-01-01"


def test_a_run_without_peaks_has_those_of_the_datasheet_if_there_is_one(tmp_path: Path) -> None:
    for device, source in (("NVIDIA H200", "datasheet of H200"), ("cpu", None), (None, None)):
        folder = write_run(tmp_path / str(device), [pair(TWO, device=device)])
        (folder / "peaks.json").unlink()
        peaks = read_run(folder).peaks
        assert (peaks.source if peaks else None) == source


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nowhere has no summary\.json"):
        read_run(tmp_path / "nowhere")
