"""What a folder's pairs gave on a named GPU: kept beside them, `ch07/expectations_<gpu>.json`, shown in its README."""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Literal

from pydantic import Field

from common.python.base.hardware import file_name
from common.python.base.journal import write
from common.python.base.manifest import digest, git_state
from common.python.base.results import Interval, Manifest, Model, PairResult, optional
from common.python.base.safe_read import read_model
from common.python.corpus.discovery import pairs_in
from common.python.corpus.targets import CHAPTERS, Folder, homes
from common.python.regress.environment import facts
from common.python.report.markdown import BEGIN, chapter_table, escaped, replace_between_markers
from common.python.report.rows import interval_text
from common.python.stats.intervals import of_logs

FEWEST_RUNS = 3  # an expectation of fewer is provisional
STEPS = "Gain of each rung over the one before it in the order to learn them, in one run; not all build on that one:"


class Time(Model):
    """A time with its 95% interval, in microseconds."""

    us: float = Field(gt=0)
    low: float = Field(gt=0)
    high: float = Field(gt=0)


class Expectation(Model):
    """What one pair gave, with what it depended on: of several runs, the one whose gain is their median."""

    measured: str = Field(description="UTC time of that run")
    commit: str | None
    dirty: bool | None = Field(description="whether the tree differed from that commit")
    versions: dict[str, str | None]
    driver: str | None
    cuda: str | None = optional("the newest that the driver supports")
    power_limit_w: float | None = None
    sm_mhz: float | None = optional("SM clock while it was timed, median over the blocks")
    pace_us: float | None = optional("the host's fixed loop meanwhile, median over the blocks")
    cpu: str | None = None
    runs: int = Field(default=1, ge=1, description="that this is the median of; fewer than three are provisional")
    speedup: Interval | None = optional(
        "median of three runs or more, with the t interval over runs, which `rounds` counts"
    )
    time: Time | None = optional(
        "of the headline variant, on the headline clock; over three runs or more, the interval is where "
        "a further run's lies"
    )
    memory_ratio: Interval | None = optional(
        "where memory is the goal: median of three runs or more, with where a further run's lies; null in "
        "older files, whose ratio is held as if it repeated exactly"
    )
    result: PairResult = Field(description="of that run, less its samples and proofs")

    @property
    def gain(self) -> Interval | None:
        """What to expect: over the runs, or of fewer than three that of the one run that is kept."""
        row = self.result.headline
        over = self.memory_ratio if self.result.goal == "memory" else self.speedup
        return over or (self.result.gain(row) if row else None)

    def facts(self) -> dict[str, str | None]:
        """What it depended on; None is what files of the first schema do not hold."""
        return facts(self.result.device, self.driver, self.cuda, self.power_limit_w, self.cpu, self.versions)


class Expectations(Model):
    """A chapter on one GPU, by pair name. Schema 1, which had no fields about several runs, is read as it stands."""

    schema_version: Literal[1, 2] = 1
    gpu: str
    pairs: dict[str, Expectation] = Field(default={})


def shows(name: str, folder: Path) -> bool:
    """Whether a README is to have the table: always a chapter's, another folder's only where it has the markers."""
    readme = folder / "README.md"
    return name in CHAPTERS or (readme.is_file() and BEGIN in readme.read_text(errors="replace"))


def read(path: Path) -> Expectations:
    """Raises ValueError naming the file when it is not an expectations file of a known version."""
    return read_model(path, Expectations)


def expected(root: Path, gpu: str, words: Iterable[str] = ()) -> dict[str, Expectation]:
    """What is expected on this GPU, in all chapters and in the folders that words name, by the pair's key.

    Raises ValueError naming an unreadable file.
    """
    files = {name: folder / f"expectations_{file_name(gpu)}.json" for name, folder in homes(root, words).items()}
    kept = {name: read(path).pairs for name, path in files.items() if path.exists()}
    return {f"{name}:{pair}": one for name, pairs in kept.items() for pair, one in pairs.items()}


def record(root: Path, fresh: Iterable[Expectation], words: Iterable[str] = ()) -> list[Path]:
    """Write expectations into the files and READMEs of their chapters, or of the folders that words name.

    Other pairs there stay as they are. Gives the files written. Raises ValueError, before it writes any of a chapter,
    where its README has no place for a table or its file cannot be read, and OSError where there is no README.
    """
    folders, by_place = homes(root, words), dict[tuple[str, str], list[Expectation]]()
    for one in fresh:
        folder, baseline = folders.get(one.result.chapter), f"baseline_{one.result.name}.py"
        if folder is None or not (one.result.chapter in CHAPTERS or (folder / baseline).is_file()):
            raise ValueError(f"{one.result.chapter!r} is no chapter (ch01 to ch20), nor a folder here with {baseline}")
        by_place.setdefault((one.result.chapter, one.result.device or ""), []).append(one)
    written = list[Path]()
    for (chapter, gpu), here in sorted(by_place.items()):
        path = folders[chapter] / f"expectations_{file_name(gpu)}.json"
        kept = read(path) if path.exists() else Expectations(gpu=here[0].result.device or "")
        pairs = kept.pairs | {one.result.name: one for one in here}
        kept = Expectations(schema_version=2, gpu=kept.gpu, pairs=dict(sorted(pairs.items())))
        others = [read(file) for file in path.parent.glob("expectations_*.json") if file != path]
        most = max([kept, *others], key=lambda each: len(each.pairs))  # the README shows this GPU's table
        files = {path: kept.model_dump_json(indent=1, exclude_defaults=True) + "\n"}
        if shows(chapter, path.parent):
            readme = path.parent / "README.md"
            files[readme] = replace_between_markers(readme.read_text(), table(most, path.parent))
        for file, text in files.items():
            write(file, text)
        written += files
    return written


def origin(manifest: Manifest, root: Path) -> tuple[str | None, bool | None]:
    """The commit that was measured and whether its tree differed; (None, None) if that cannot be told.

    A run whose own tree had no commit, or differed from it, is of this commit if every file that it ran is the same.
    """
    if manifest.git_commit is not None and not manifest.git_dirty:
        return manifest.git_commit, False
    digests = {name: digest(root / name) for name in manifest.sources}
    if manifest.sources and digests == manifest.sources:
        return git_state(root)
    return manifest.git_commit, manifest.git_dirty if manifest.git_commit is not None else None


def table(expectations: Expectations, folder: Path | None = None) -> str:
    """The table as it stands between a README's markers.

    With a folder it also says each variant's mechanism, and what each rung gains over the one before it.
    """
    results = [over_runs(pair) for pair in expectations.pairs.values()]
    shown = chapter_table(results, folder is not None)
    ladders = steps(folder, [pair.result for pair in expectations.pairs.values()]) if folder else []
    below = "\n- ".join((f"\n\n{STEPS}\n", *ladders)) if ladders else ""
    few = [escaped(name) for name, pair in expectations.pairs.items() if pair.runs < FEWEST_RUNS]
    if len(few) == len(results):
        return f"{shown} Provisional: each is of fewer than {FEWEST_RUNS} runs.{below}"
    said = f" Provisional, from fewer runs: {', '.join(few)}." if few else ""
    over = (
        "its first line's speedup that of all of them, with the interval over runs; "
        "the commit is in the chapter's expectations file"
    )
    return f"{shown} Each pair's is the run with the median gain of at least {FEWEST_RUNS}, {over}.{said}{below}"


def steps(folder: Path, results: Sequence[PairResult]) -> list[str]:
    """A line for each pair that states the order of its rungs and has two or more of them with a speedup."""
    orders = {pair.name: str(pair.literals.get("rungs", "")).split() for pair in pairs_in(Folder(folder))}
    lines = list[str]()
    for result in results:
        rows = [row for row in result.variants if row.role == "optimized" and result.trusted(row)]
        known = {row.label: row.speedup for row in rows if row.speedup} | {"baseline": Interval.point(1.0)}
        order = pairwise(["baseline", *orders.get(result.name, ()), "optimized"])
        both = [(own, known[own], known[last]) for last, own in order if own in known and last in known]
        if len(both) > 1 and result.goal != "memory":
            found = (f"{label} {interval_text(_over(own, last))}" for label, own, last in both)
            lines.append(escaped(f"{result.key}: {', '.join(found)}"))
    return lines


def _over(own: Interval, last: Interval) -> Interval:
    """One speedup over another. What rounds have in common is not taken out, so the interval is rather too wide."""
    half = math.hypot(*(math.log(one.high / one.low) / 2 for one in (own, last)))
    return of_logs(math.log(own.ratio / last.ratio), half, own.rounds)


def over_runs(pair: Expectation) -> PairResult:
    """The run that is kept, with the speedup over all runs in the pair's own line."""
    lead = pair.result.headline
    rows = [
        row.model_copy(update={"speedup": pair.speedup or row.speedup}) if lead and row.name == lead.name else row
        for row in pair.result.variants
    ]
    return pair.result.model_copy(update={"variants": rows})
