"""Where a run's results go besides its own files."""

from pathlib import Path

import pytest
from synthetic_run import every_kind, write_run

from common.python.artifacts import read_run
from common.python.publish import append_to_job_page, publish


def test_the_report_lies_with_the_run_and_the_junit_file_where_it_was_asked_for(tmp_path: Path) -> None:
    run, junit = read_run(write_run(tmp_path / "run", every_kind())), tmp_path / "ci" / "junit.xml"
    assert publish(run, tmp_path, junit) == run.folder / "report.html"
    assert (run.folder / "report.html").read_text().startswith("<!DOCTYPE html>")
    assert "<testsuites " in junit.read_text()
    before = sorted(tmp_path.rglob("*"))
    publish(run, tmp_path, None)
    assert sorted(tmp_path.rglob("*")) == before


def test_the_summary_is_added_to_the_page_of_a_job_and_to_nothing_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "summary.md").write_text("# Benchmark results\n")
    page = tmp_path / "page.md"
    page.write_text("before\n")
    append_to_job_page(tmp_path, {"GITHUB_STEP_SUMMARY": str(page)})
    assert page.read_text() == "before\n# Benchmark results\n\n"
    append_to_job_page(tmp_path, {})
    append_to_job_page(tmp_path, {"GITHUB_STEP_SUMMARY": ""})
    assert len(list(tmp_path.iterdir())) == 2
