"""What a chapter's pairs gave on a named GPU: kept in `chNN/expectations_<gpu>.json`, shown in the chapter's README."""

from pathlib import Path

from pydantic import Field

from common.python.hardware import datasheet
from common.python.manifest import digest, git_state
from common.python.markdown import chapter_table, replace_between_markers
from common.python.results import SCHEMA_VERSION, Manifest, Model, PairResult


class Expectation(Model):
    """One pair's result, less its samples, with what it depended on."""

    measured: str = Field(description="UTC time of the run")
    commit: str | None
    dirty: bool | None = Field(description="whether the tree differed from that commit")
    versions: dict[str, str | None]
    driver: str | None
    result: PairResult


class Expectations(Model):
    """A chapter on one GPU, by pair name."""

    schema_version: int = SCHEMA_VERSION
    gpu: str
    pairs: dict[str, Expectation] = Field(default={})


def place(root: Path, chapter: str, gpu: str) -> Path:
    """`ch07/expectations_h200.json` for "NVIDIA H200"."""
    sheet = datasheet(gpu)
    name = (sheet.name if sheet else gpu).lower()
    return root / chapter / f"expectations_{''.join(c if c.isalnum() else '_' for c in name)}.json"


def read(path: Path) -> Expectations:
    """Raises ValueError naming the file when it is not an expectations file of this version."""
    try:
        return Expectations.model_validate_json(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is not a readable expectations file: {str(error).splitlines()[0]}") from error


def record(root: Path, results: list[PairResult], manifest: Manifest) -> list[Path]:
    """Write measured results into their chapters' files and READMEs; other pairs of those chapters stay as they are.

    Gives the files written. Raises ValueError for a result that is not measured or invalid: it is no expectation.
    """
    written = []
    for chapter in sorted({result.chapter for result in results}):
        here = [result for result in results if result.chapter == chapter]
        gpu = here[0].device or ""
        path = place(root, chapter, gpu)
        kept = read(path) if path.exists() else Expectations(gpu=gpu)
        for result in here:
            if result.status != "measured" or result.verdict == "invalid":
                raise ValueError(f"{result.key} is {result.verdict or result.status}: only proven results are expected")
            kept.pairs[result.name] = _expectation(result, manifest, origin(manifest, root))
        kept.pairs = dict(sorted(kept.pairs.items()))
        path.write_text(kept.model_dump_json(indent=1, exclude_defaults=True) + "\n")
        readme = root / chapter / "README.md"
        readme.write_text(replace_between_markers(readme.read_text(), table(kept)))
        written += [path, readme]
    return written


def origin(manifest: Manifest, root: Path) -> tuple[str | None, bool | None]:
    """The commit that was measured and whether its tree differed; (None, None) if that cannot be told.

    A run on a machine without the repository knows no commit: it is this one, if every file that it ran is the same.
    """
    if manifest.git_commit is not None:
        return manifest.git_commit, manifest.git_dirty
    digests = {name: digest(root / name) for name in manifest.sources}
    return git_state(root) if digests == manifest.sources else (None, None)


def table(expectations: Expectations) -> str:
    """The chapter's table, as it stands between the README's markers."""
    commits = {pair.commit[:8] for pair in expectations.pairs.values() if pair.commit}
    results = [pair.result for pair in expectations.pairs.values()]
    return chapter_table(results, ", ".join(sorted(commits)) or None)


def _expectation(result: PairResult, manifest: Manifest, commit: tuple[str | None, bool | None]) -> Expectation:
    rows = [row.model_copy(update={"proofs": []}) for row in result.variants]
    slim = result.model_copy(update={"blocks": [], "log": "", "seconds": {}, "seed": None, "variants": rows})
    return Expectation(
        measured=manifest.started,
        commit=commit[0],
        dirty=commit[1],
        versions=manifest.versions,
        driver=manifest.machine.driver,
        result=slim,
    )
