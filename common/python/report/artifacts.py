"""A run's folder read back: what reports and comparisons are made of, on whatever machine."""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from common.python.base import safe_read
from common.python.base.journal import JOURNAL, Line
from common.python.base.results import SCHEMA_VERSION, Manifest, PairResult, Summary
from common.python.base.safe_read import read_model
from common.python.corpus.targets import VARIANT, Folder
from common.python.peaks import store
from common.python.performance_targets import Peaks, datasheet_peaks

RESULTS = Path("results") / "benchmark_test_results.json"  # in a pair's folder
LATEST = "latest"  # beside the folders of runs


@dataclass(frozen=True)
class Run:
    """One run: its summary, whose pairs have their samples again, and the peaks that its limits come from."""

    folder: Path
    summary: Summary
    peaks: Peaks | None
    parts: Mapping[str, Manifest] = field(default_factory=dict)  # of a merged run, by the folder of each run in it

    def about(self, pair: PairResult) -> Manifest:
        """The manifest of the run that measured this pair."""
        return self.parts.get(self.summary.origins.get(pair.key, ""), self.summary.manifest)

    def origin(self, pair: PairResult) -> Path:
        """The folder that holds the peaks which this pair's limit comes from."""
        return _within(self.folder, origin) if (origin := self.summary.origins.get(pair.key)) else self.folder


def mark_latest(folder: Path) -> None:
    """Make `latest`, beside a run's folder, a link to that folder, where the file system has links."""
    link = folder.with_name(f"{LATEST}-{folder.name}")
    with suppress(OSError):
        link.symlink_to(folder.name)
        link.replace(folder.with_name(LATEST))


def followed(place: Path) -> Path:
    """A run's folder; for `latest`, the folder beside it that it names."""
    linked = place.name == LATEST and place.is_symlink()
    return place.with_name(Path(os.readlink(place)).name) if linked else place


def read_run(folder: Path) -> Run:
    """Read the folder that `run` left. Raises ValueError, in one line, where it is no run's or is damaged."""
    if not os.path.isfile(folder / "summary.json"):  # which takes a name that is too long for an answer
        right = "name the folder of a finished run, such as artifacts/20260101T000000.000000Z"
        raise ValueError(f"{safe_read.shown(str(folder))} has no summary.json: {right}")
    _refuse_links(folder)
    summary = read_model(folder / "summary.json", Summary)
    if summary.schema_version != SCHEMA_VERSION:
        raise ValueError(f"{folder} has schema version {summary.schema_version}: this harness reads {SCHEMA_VERSION}")
    pairs = [_with_samples(folder, pair) for pair in summary.pairs]
    summary = summary.model_copy(update={"pairs": pairs})
    names, same = set(summary.origins.values()), {"sources": summary.manifest.sources}  # which each run in it has
    parts = {name: read_model(_within(folder, name) / "manifest.json", Manifest) for name in names}
    parts = {name: part.model_copy(update=same) for name, part in parts.items()}
    return Run(folder, summary, _peaks(folder, summary), parts)


def read_journal(folder: Path) -> list[PairResult]:
    """The results that a run's journal names, for a run that goes on. Raises ValueError, in one line, as read_run."""
    _refuse_links(folder)
    path = folder / JOURNAL
    with safe_read.named(path):
        lines = [safe_read.parse(line, Line) for line in safe_read.read_bytes(path).splitlines()]
    return [_journaled(folder, line) for line in lines]


def _journaled(folder: Path, line: Line) -> PairResult:
    place = _within(folder, line.folder)
    found = read_model(place / RESULTS, PairResult)
    if (found.key, place.name) != (line.pair, f"{found.chapter}_{found.name}"):
        file, pair = safe_read.shown(str(place / RESULTS)), safe_read.shown(line.pair)
        raise ValueError(f"{file} is not of {pair}, as the journal says")
    return found


def _with_samples(folder: Path, pair: PairResult) -> PairResult:
    """The pair as its own file has it. The summary leaves out the samples and nothing else."""
    path = _within(folder, f"{pair.chapter}_{pair.name}") / RESULTS
    found = read_model(path, PairResult)
    if found.model_copy(update={"blocks": []}) != pair:
        raise ValueError(f"{safe_read.shown(str(path))} is not of the run that {folder / 'summary.json'} sums up")
    return found


def _peaks(folder: Path, summary: Summary) -> Peaks | None:
    """The peaks that were kept with the run, as old as they were then; for a run without, those of the datasheet."""
    if survey := store.load(folder / "peaks.json"):
        return store.peaks_of(survey)
    devices = {pair.device for pair in summary.pairs if pair.device}
    return datasheet_peaks(devices.pop()) if len(devices) == 1 else None


def changed(result: PairResult, before: Manifest, now: Manifest) -> list[str]:
    """The files of a pair, and those of its folder that any pair may import, which are not what they were.

    What is not among the sources now was not asked for now.
    """
    stems = {Path(row.file).stem for row in result.variants}
    here = [path for path in map(Path, now.sources) if result.chapter in (path.parent.name, Folder(path.parent).name)]
    mine = [path for path in here if path.stem in stems or not VARIANT.fullmatch(path.stem)]
    return sorted(path.name for path in mine if before.sources.get(str(path)) != now.sources[str(path)])


def _within(folder: Path, name: str) -> Path:
    """What a file calls a folder of its run. Raises ValueError for a name that leads out of the run."""
    if Path(name).is_absolute() or ".." in Path(name).parts or "\0" in name or not name.strip("./"):
        raise ValueError(f"{folder} names a folder outside it: {safe_read.shown(name)!r}")
    return folder / name


def _refuse_links(folder: Path) -> None:
    """Raises ValueError where a run's folder holds a symbolic link: what is read or written there may be elsewhere."""
    for path in folder.rglob("*"):
        if path.is_symlink():
            raise ValueError(f"{safe_read.shown(str(path))} is a symbolic link: a run's folder has none")
