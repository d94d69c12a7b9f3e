"""`benchmark_cli peak`: measure every peak of this machine, keep them, and show them."""

import sys
import tempfile
from collections import defaultdict
from datetime import timezone
from functools import partial
from pathlib import Path

from rich.table import Table

from common.python.base.lock import Claim, unclaimed
from common.python.base.text import clean, text_table, wide_console
from common.python.peaks import store
from common.python.peaks.store import Survey
from common.python.peaks.survey import survey
from common.python.peaks.text import cells, curve_text
from common.python.performance_targets import datasheet_peaks
from common.python.workers.probe import open_machine
from common.python.workers.process import WorkerError

COLUMNS = ("peak", "value", "95% interval", "sustained", "of datasheet", "SM clock", "power", "how")


def measure(root: Path, artifacts_dir: Path, as_json: bool = False, claim: Claim = unclaimed) -> Path:
    """Measure all peaks, replace the stored file and print a table; a line for each peak comes as it is measured.

    `claim` takes the device's lock first.

    Returns where the file is. With `as_json` stdout gets the file's JSON and nothing else. Raises RuntimeError when no
    worker can be started, and OSError when the file cannot be written.
    """
    with tempfile.TemporaryDirectory(prefix="benchmark-") as logs:
        artifacts_dir.mkdir(parents=True, exist_ok=True)
        machine, found = open_machine(root, Path(logs))
        claim(found.get("uuid"))
        output = sys.stderr if as_json else sys.stdout
        try:
            done = survey(root, Path(logs) / "peaks.log", machine, found, partial(print, file=output, flush=True))
        except WorkerError as error:
            raise RuntimeError(f"no peak can be measured: {error.reason}") from error
    path = store.path_of(artifacts_dir, done.uuid)
    store.save(path, done)
    if as_json:
        print(done.model_dump_json(indent=1))
    else:
        wide_console().print(table(done))
        for curve in done.curves:
            print(curve_text(curve))
        print(f"peaks: {path}")
    return path


def table(done: Survey) -> Table:
    """Every peak that has a value, a line each; under them the reasons why others have none, and the versions."""
    versions = ", ".join(f"{name} {version}" for name, version in done.versions.items() if version)
    when = f"{done.measured.astimezone(timezone.utc):%Y-%m-%d %H:%M} UTC in {done.seconds:.0f} s"
    title, sheet = f"Peaks of {done.device}, measured {when}", datasheet_peaks(done.device)
    lines = [cells(peak, sheet) for peak in done.peaks if peak.value is not None]
    return text_table(COLUMNS, lines, title, "\n".join([*_missing(done), clean(versions)]), right=COLUMNS[1:-1])


def _missing(done: Survey) -> list[str]:
    named: dict[str, list[str]] = defaultdict(list)
    for peak in done.peaks:
        if peak.reason is not None:
            named[peak.reason].append(peak.name)
    return [clean(f"not measured, {reason}: {', '.join(names)}") for reason, names in named.items()]
