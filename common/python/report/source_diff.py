"""The sources that a run was of, side by side for its report, as long as they are still the files that were run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from hashlib import sha256
from pathlib import Path

from common.python.base.results import PairResult, VariantResult
from common.python.report.markup import Inside, Markup, folded, tag, together
from common.python.stats.verdict import headline_row


@dataclass(frozen=True)
class Source:
    """A file of a variant: its text, or why it is not shown."""

    file: str
    text: str = ""
    withheld: str | None = None


def sources_section(result: PairResult, digests: Mapping[str, str], root: Path) -> Markup:
    """The baseline beside the variant that speaks for the pair, then each other variant beside the baseline, folded."""
    baseline = next((variant for variant in result.variants if variant.role == "baseline"), None)
    own = headline_row(result)
    others = sorted((v for v in result.variants if v is not baseline), key=lambda variant: variant is not own)
    files = {variant.name: variant_sources(variant, digests, root) for variant in result.variants}
    if baseline is None or not others:
        return together(_sides("Source", [files[variant.name]]) for variant in result.variants)
    titles = {variant.name: f"Sources: {baseline.label} | {variant.label}" for variant in others}
    return together(_sides(title, [files[baseline.name], files[name]]) for name, title in titles.items())


def variant_sources(variant: VariantResult, digests: Mapping[str, str], root: Path) -> list[Source]:
    """The variant's Python file and, where the run had one, its .cu file."""
    names = [variant.file, variant.file.removesuffix(".py") + ".cu"]
    return [_read(name, digests, root) for name in names if name == variant.file or _recorded(name, digests, root)]


def _recorded(name: str, digests: Mapping[str, str], root: Path) -> str | None:
    """The manifest's digest of a file, which it names from the root of the project or, elsewhere, in full."""
    return digests.get(name) or digests.get(str((root / name).resolve()))


def _read(name: str, digests: Mapping[str, str], root: Path) -> Source:
    path, recorded = (root / name).resolve(), _recorded(name, digests, root)
    if recorded is None or not path.is_relative_to(root.resolve()):
        return Source(name, withheld="the run does not say what was in this file")
    if not path.is_file():
        return Source(name, withheld="this file is no longer here")
    content = path.read_bytes()
    if sha256(content).hexdigest() != recorded:
        return Source(name, withheld="this file has changed since the run, so its text is not shown")
    return Source(name, content.decode(errors="replace"))


def _sides(title: str, sides: Sequence[Sequence[Source]]) -> Markup:
    """Files in columns, row by row; where there are two, the lines that only one of them has are marked."""
    rows: list[Markup] = []
    for row in range(max(map(len, sides))):
        column = [side[row] for side in sides if row < len(side)]
        lines = [source.text.splitlines() for source in column]
        marked = _unmatched(*lines) if len(column) == 2 and all(lines) else [set() for _ in column]
        panels = [_panel(source, text, own) for source, text, own in zip(column, lines, marked)]
        rows.append(tag("div", *panels, class_="sides"))
    return folded(title, *rows)


def _unmatched(left: Sequence[str], right: Sequence[str]) -> list[set[int]]:
    """Indices of the lines on either side that have no counterpart on the other."""
    own = [set(range(len(left))), set(range(len(right)))]
    for block in SequenceMatcher(None, left, right, autojunk=False).get_matching_blocks():
        own[0].difference_update(range(block.a, block.a + block.size))
        own[1].difference_update(range(block.b, block.b + block.size))
    return own


def _panel(source: Source, lines: Sequence[str], own: set[int]) -> Markup:
    head = tag("h4", source.file)
    if source.withheld:
        return tag("div", head, tag("p", source.withheld, class_="note"))
    marked: list[Inside] = []
    for index, line in enumerate(lines):
        marked += [tag("mark", line) if index in own and line.strip() else line, "\n"]
    return tag("div", head, tag("pre", tag("code", *marked), tabindex="0"))
