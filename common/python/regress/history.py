"""Times of pairs over many runs: the table that `run --history` appends to, where they changed, and one page of it."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from common.python.base.journal import write
from common.python.base.manifest import git
from common.python.base.results import Manifest, PairResult, Summary
from common.python.base.text import clean
from common.python.corpus.targets import CHAPTERS, homes
from common.python.regress.environment import differences
from common.python.report.charts import history_chart
from common.python.report.rows import time_text
from common.python.report.tables import text_table, wide_console
from common.python.report.templates import history_page
from common.python.stats.intervals import MARGIN

if TYPE_CHECKING:
    from pandas import DataFrame

SERIES = ["pair", "variant", "gpu", "size"]  # rows that agree in these are of one series
NUMBERS = ["us", "speedup", "low", "high"]
COLUMNS = ["started", *SERIES, "driver", "torch", "commit", *NUMBERS]
LEAST = 3  # points on each side of a change
PERMUTATIONS, LEVEL = 199, 0.05


@dataclass(frozen=True)
class ChangePoint:
    """Where the times of a series moved to another level: the last row before and the first behind, and medians."""

    last: dict[str, Any]
    row: dict[str, Any]
    before_us: float
    after_us: float

    def __str__(self) -> str:
        ratio = self.after_us / self.before_us
        moved = f"{100 * abs(ratio - 1):.1f}% {'slower' if ratio > 1 else 'faster'} since {self.row['started']}"
        told = [{what: row[what] for what in ("commit", "driver", "torch")} for row in (self.last, self.row)]
        return clean(", ".join([moved, *differences(*told)]))


@dataclass(frozen=True)
class Series:
    """One variant at one size on one kind of GPU, in the order of time: rows, the times of each level, and changes."""

    rows: list[dict[str, Any]]
    levels: list[list[float]]
    changes: list[ChangePoint]

    @property
    def name(self) -> str:
        own = self.rows[0]
        return clean(f"{own['pair']}, {own['variant']}, {own['size']}, {own['gpu']}")

    def chart(self) -> Markup:
        told = [clean(f"{time_text(row['us'])}, {row['started']}, {row['commit']}") for row in self.rows]
        return history_chart(self.name, self.levels, told)


def append(file: Path, summary: Summary, root: Path) -> int:
    """Add a row for each pair whose headline's times may be shown; how many. A run that is there already is replaced.

    Raises ValueError for a file that is no such table and OSError for one that cannot be written.
    """
    import pandas

    places = homes(root, summary.manifest.targets)
    rows = [_row(pair, summary.manifest, places.get(pair.chapter)) for pair in summary.pairs]
    fresh = pandas.DataFrame([row for row in rows if row], columns=COLUMNS)
    both = pandas.concat([read(file), fresh]) if file.exists() else fresh
    write(file, both.drop_duplicates(["started", *SERIES], keep="last").to_csv(index=False))
    return len(fresh)


def _row(pair: PairResult, about: Manifest, home: Path | None) -> dict[str, Any] | None:
    own = pair.headline
    if own is None or not pair.trusted(own) or not (us := pair.us(own)):
        return None
    commit, dirty = about.git_commit, about.git_dirty
    if home is not None and pair.chapter not in CHAPTERS:  # a folder of its own repository, or of none
        commit, dirty = git(home, "rev-parse", "HEAD"), bool(git(home, "status", "--porcelain", "."))
    size = " ".join(f"{name}={value}" for name, value in pair.shape.items()) or pair.size
    gain = {"speedup": own.speedup.ratio, "low": own.speedup.low, "high": own.speedup.high} if own.speedup else {}
    return {
        **{"started": about.started, "pair": pair.key, "variant": own.label, "gpu": pair.device, "size": size},
        **{"driver": about.machine.driver, "torch": about.versions.get("torch"), "us": us, **gain},
        "commit": (commit or "")[:12] + "+" * bool(commit and dirty),
    }


def read(file: Path) -> "DataFrame":
    """The table of a file. Raises ValueError, in one line, for a file that is no such table, and OSError."""
    import pandas

    texts = {name: str for name in COLUMNS if name not in NUMBERS}
    try:
        found = pandas.read_csv(file, dtype=texts, keep_default_na=False, na_values={name: [""] for name in NUMBERS})
    except ValueError:  # no CSV or no text
        found = pandas.DataFrame()
    if [*found.columns] != COLUMNS or not isinstance(found.index, pandas.RangeIndex):  # a longer line makes another
        told = f"`run --history` writes one, whose columns are {', '.join(COLUMNS)}"
        raise ValueError(f"{file} is no history of runs: {told}")
    times = pandas.to_numeric(found["us"], errors="coerce")
    if unknown := [*found.index[~((times > 0) & (times < np.inf))]]:
        raise ValueError(f"{file} has no time in us in line {unknown[0] + 2}: remove that line")
    return found


def series(table: "DataFrame") -> list[Series]:
    """The rows of each variant, size and GPU in the order of time, and where their times change by MARGIN or more."""
    found = []
    for _, own in table.sort_values("started", kind="stable").groupby(SERIES, sort=False):
        rows, starts = own.astype(object).where(own.notna(), None).to_dict("records"), [0]
        times = own["us"].to_numpy()
        for at, end in pairwise([*change_points(times), len(times)]):
            if abs(np.median(times[at:end]) / np.median(times[starts[-1] : at]) - 1) >= MARGIN:
                starts.append(at)
        levels = [level.tolist() for level in np.split(times, starts[1:])]
        middles = pairwise(float(np.median(level)) for level in levels)
        changes = [ChangePoint(rows[at - 1], rows[at], *both) for at, both in zip(starts[1:], middles)]
        found.append(Series(rows, levels, changes))
    return found


def change_points(times: Sequence[float]) -> list[int]:
    """Where the distribution of the times changes, by E-divisive: the first index of each new level.

    The split of largest energy distance is kept if at most LEVEL of random orders have one as large; then both parts
    are searched. Matteson and James, "A nonparametric approach for multiple change point analysis of multivariate
    data", JASA 2014.
    """
    random, logs = np.random.default_rng(0), np.log(np.asarray(times, dtype=float))
    found, parts = list[int](), [(0, len(logs))]
    while parts:
        start, end = parts.pop()
        if end - start < 2 * LEAST:
            continue
        gaps = abs(logs[start:end, None] - logs[None, start:end])
        at, energy = _best_split(gaps)
        orders = (random.permutation(end - start) for _ in range(PERMUTATIONS))
        beaten = sum(_best_split(gaps[np.ix_(order, order)])[1] >= energy for order in orders)
        if 1 + beaten <= LEVEL * (1 + PERMUTATIONS):
            found.append(start + at)
            parts += [(start, start + at), (start + at, end)]
    return sorted(found)


def _best_split(gaps: np.ndarray) -> tuple[int, float]:
    """The split of largest energy distance between its sides, and that distance, by all gaps between two points."""
    count, total = len(gaps), gaps.cumsum(0).cumsum(1)
    left = np.arange(LEAST, count - LEAST + 1)
    right, within = count - left, total[left - 1, left - 1]
    across = total[left - 1, -1] - within
    beyond = total[-1, -1] - within - 2 * across
    energy = (2 * across - within * right / left - beyond * left / right) / count
    best = int(energy.argmax())
    return int(left[best]), float(energy[best])


def print_history(file: Path, page: Path, as_json: bool) -> None:
    """Print a line a series, or all as JSON, and write the page. Raises as `read` does; RuntimeError without rows."""
    if file.resolve() == page.resolve():
        raise ValueError(f"{file} is both the history and its page: name another --output")
    found = series(read(file))
    if as_json:
        parts = [{"rows": one.rows, "changes": [asdict(change) for change in one.changes]} for one in found]
        print(json.dumps(parts, indent=1))
        return
    if not found:
        raise RuntimeError(f"nothing to show: {file} has no rows: `run --history {file}` adds them")
    write(page, history_page(file.name, found))
    lines = []
    for one in found:
        noise = 100 * (max(one.levels[-1]) / min(one.levels[-1]) - 1)
        told = str(one.changes[-1]) if one.changes else "no change found"
        lines.append((one.name, str(len(one.rows)), time_text(one.rows[-1]["us"]), f"{noise:.1f}%", told))
    wide_console().print(text_table(("series", "runs", "last", "spread", "last change"), lines))
    print(f"page: {page}")
