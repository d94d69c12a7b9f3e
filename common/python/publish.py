"""A run's results where others look for them: a page beside the results, a CI system's JUnit file, a job's page."""

from collections.abc import Mapping
from pathlib import Path

from common.python.artifacts import Run
from common.python.journal import write
from common.python.junit import junit_xml

STEP_SUMMARY = "GITHUB_STEP_SUMMARY"  # the file whose Markdown GitHub Actions shows on the job's page


def publish(run: Run, root: Path, junit: Path | None) -> Path:
    """Write report.html into the run's folder and, if asked for, the JUnit file; gives the report's path."""
    from common.python.report_html import page  # loads matplotlib, which takes a third of a second

    report = run.folder / "report.html"
    write(report, page(run, root))
    if junit is not None:
        write(junit, junit_xml(run.summary))
    return report


def append_to_job_page(folder: Path, environment: Mapping[str, str]) -> None:
    """In GitHub Actions, add the run's summary.md to the job's page; elsewhere do nothing."""
    if place := environment.get(STEP_SUMMARY):
        with Path(place).open("a") as page:
            page.write((folder / "summary.md").read_text() + "\n")
