"""A run's files as they come: each whole or not there, and a journal that says which results are kept.

The journal is written anew after a pair's own files are synced, so what it names is whole, whenever the process ends.
"""

import os
from collections.abc import Iterable
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


def keep(folder: Path, results: Iterable[PairResult]) -> None:
    """Say that these results, and no others, are kept in their folders. Raises OSError that names the journal."""
    lines = [
        Line(pair=one.key, status=one.status, verdict=one.verdict, folder=f"{one.chapter}_{one.name}")
        for one in results
    ]
    write(folder / JOURNAL, "".join(line.model_dump_json() + "\n" for line in lines))
