"""A run's folder is read back whole, or refused in one line."""

import json
import re
from collections.abc import Callable
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


def remove_summary(folder: Path) -> None:
    (folder / "summary.json").unlink()


def cut_summary(folder: Path) -> None:
    path = folder / "summary.json"
    path.write_bytes(path.read_bytes()[:400])


def empty_summary(folder: Path) -> None:
    (folder / "summary.json").write_text("{}")


def other_schema(folder: Path) -> None:
    path = folder / "summary.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema_version": 99}))


def no_utf8(folder: Path) -> None:
    (folder / "summary.json").write_bytes(b"\xff\xfe")


def remove_pair(folder: Path) -> None:
    result_file(folder).unlink()


def cut_pair(folder: Path) -> None:
    result_file(folder).write_text(result_file(folder).read_text()[:-100])


def pair_of_another_run(folder: Path) -> None:
    result_file(folder).write_text(pair({**TWO, "optimized": 60.0}).model_dump_json())


def cut_peaks(folder: Path) -> None:
    (folder / "peaks.json").write_text('{"device": ')


def result_file(folder: Path) -> Path:
    return folder / "ch07_copy" / "results" / "benchmark_test_results.json"


@pytest.mark.parametrize(
    ("damage", "right"),
    [
        (remove_summary, "has no summary.json: name the folder of a finished run"),
        (cut_summary, "summary.json is damaged or foreign"),
        (empty_summary, "summary.json is damaged or foreign: manifest: Field required"),
        (other_schema, "has schema version 99: this harness reads 1"),
        (no_utf8, "summary.json is damaged or foreign"),
        (remove_pair, "benchmark_test_results.json cannot be read: No such file or directory"),
        (cut_pair, "benchmark_test_results.json is damaged or foreign"),
        (pair_of_another_run, "benchmark_test_results.json is not of the run"),
        (cut_peaks, "peaks.json"),
    ],
)
def test_what_is_no_whole_run_is_refused_in_one_line(
    tmp_path: Path, damage: Callable[[Path], None], right: str
) -> None:
    folder = write_run(tmp_path, [pair(TWO)])
    damage(folder)
    with pytest.raises(ValueError, match=re.escape(right)) as caught:
        read_run(folder)
    assert "\n" not in str(caught.value)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nowhere has no summary\.json"):
        read_run(tmp_path / "nowhere")
