"""A run's files as they come: each whole or not there, and a journal that says which results are kept.

The journal is appended and synced after the pair's own files are, so what it names is whole, whenever the process ends.
"""

import os
from datetime import datetime, timezone
from pathlib import Path

from common.python.base.results import Model, PairResult, Status, Verdict

JOURNAL = "journal.jsonl"


class Line(Model):
    """One line of the journal, written when a pair is done and its files are whole."""

    pair: str
    status: Status | None = None
    verdict: Verdict | None = None
    folder: str


def write(path: Path, text: str) -> None:
    """Replace a file as a whole: a reader never sees half of it. Raises OSError that names the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(path.suffix + ".partial")
    try:
        with partial.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        partial.unlink(missing_ok=True)


def new_folder(place: Path) -> Path:
    """A folder in this place for a run that starts now, by whose time (UTC) it is called."""
    folder = place / datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S.%fZ")
    folder.mkdir(parents=True)
    return folder


def append(folder: Path, result: PairResult) -> None:
    """Say that this pair's result is kept in its folder. Raises OSError that names the journal."""
    try:
        with (folder / JOURNAL).open("a") as journal:
            journal.write(_line(result))
            journal.flush()
            os.fsync(journal.fileno())
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(folder / JOURNAL)) from error


def rewrite(folder: Path, results: list[PairResult]) -> None:
    """Write the run's journal anew, with these results, so that the run can be resumed."""
    write(folder / JOURNAL, "".join(_line(result) for result in results))


def _line(result: PairResult) -> str:
    folder = f"{result.chapter}_{result.name}"
    return Line(pair=result.key, status=result.status, verdict=result.verdict, folder=folder).model_dump_json() + "\n"
