"""A run's folder is read back whole, or refused in one line."""

import os
from pathlib import Path

import pytest
from synthetic_run import pair, write_run

from common.python.regress.runs import run_folders
from common.python.report.artifacts import followed, mark_latest, read_run


def test_a_run_without_peaks_has_those_of_the_datasheet_if_there_is_one(tmp_path: Path) -> None:
    for device, source in (("NVIDIA H200", "datasheet of H200"), ("cpu", None), (None, None)):
        folder = write_run(tmp_path / str(device), [pair({"baseline": 400.0}, device=device)])
        (folder / "peaks.json").unlink()
        peaks = read_run(folder).peaks
        assert (peaks.source if peaks else None) == source


def test_a_run_of_another_schema_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has schema version 99: this harness reads"):
        read_run(write_run(tmp_path, [], schema_version=99))


@pytest.mark.parametrize("links", [True, False])
def test_latest_names_the_run_that_was_marked_last(
    links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("no links on this file system")

    if not links:
        monkeypatch.setattr(os, "symlink", refuse)
    folders = [write_run(tmp_path / name, []) for name in ("20260101T000000Z", "20260102T000000Z")]
    for folder in folders:
        mark_latest(folder)
    latest = tmp_path / "latest"
    assert latest.is_symlink() == links
    assert followed(latest) == folders[1]
    assert followed(folders[0]) == folders[0]
    assert run_folders(tmp_path) == folders
    assert {path.name for path in tmp_path.iterdir()} == {"latest", *(folder.name for folder in folders)}
