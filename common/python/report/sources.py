"""The sources of a pair as a report shows them: the baseline beside the headline, then each other variant.

What says nothing about the solution (docstring, imports, workload, needs) is folded.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from hashlib import sha256
from itertools import groupby
from pathlib import Path

from common.python.base.results import PairResult, VariantResult
from common.python.base.text import clean
from common.python.corpus.targets import VARIANT

CHANGED = "this file has changed since the run, so its text is not shown"
Lines = Sequence[tuple[str, bool]]  # each with whether the file beside it lacks it


@dataclass(frozen=True)
class Panel:
    """A source file, or why its lines are not shown."""

    file: str
    lines: Lines = ()
    withheld: str = ""

    cut: bool = False  # without what is folded

    def parts(self) -> Iterator[tuple[bool, int, list[tuple[bool, str]]]]:
        """Lines that are folded or shown together: whether folded, how many, and their text in runs, marked or not."""
        hidden = _folded("\n".join(line for line, _ in self.lines)) if self.file.endswith(".py") else set()
        for fold, numbers in groupby(range(len(self.lines)), key=hidden.__contains__):
            own = [self.lines[at] for at in numbers]
            runs = groupby(own, key=lambda line: line[1])
            if not (fold and self.cut):
                yield fold, len(own), [(marked, "\n".join(text for text, _ in run)) for marked, run in runs]


def solution(source: str) -> str:
    """A Python file without what is folded."""
    hidden = _folded(source)
    return "\n".join(line for at, line in enumerate(source.split("\n")) if at not in hidden)


def _folded(source: str) -> set[int]:
    """The numbers, from 0, of the lines that say nothing about the solution; none where it is no Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return set()
    lines, hidden = source.split("\n"), set[int]()
    for at, statement in enumerate(tree.body):
        match statement:
            case ast.Import() | ast.ImportFrom() | ast.Assign(targets=[ast.Name("workload" | "requires")]):
                pass
            case ast.Expr(value=ast.Constant()) if at == 0:
                pass
            case _:
                continue
        end = statement.end_lineno or statement.lineno
        while end < len(lines) and not lines[end].strip():
            end += 1
        hidden.update(range(statement.lineno - 1, end))
    return hidden


def sources(
    result: PairResult, digests: Mapping[str, str], places: Mapping[str, Path]
) -> list[tuple[str, list[list[Panel]]]]:
    """The baseline beside the headline, then each other variant by itself, with what the baseline lacks marked.

    A title, and the panels by kind of file. `digests` are the manifest's, and `places` the folders of pairs by name.
    """
    baseline, own = result.baseline, result.headline
    others = sorted((row for row in result.variants if row is not baseline), key=lambda row: row is not own)
    sides = [[baseline, other] for other in others] if baseline else [[other] for other in others]
    if baseline and not others:
        sides = [[baseline]]
    found, folder = [], places.get(result.chapter)
    for number, side in enumerate(sides):
        kinds, labels = _panels(side, digests, folder), [clean(row.label) for row in side]
        if number:  # the baseline stands in the first already
            kinds, labels = [[replace(panels[-1], cut=True)] for panels in kinds], labels[-1:]
        found.append((" | ".join(labels), kinds))
    return found


def _panels(side: Sequence[VariantResult], digests: Mapping[str, str], folder: Path | None) -> list[list[Panel]]:
    """The Python files of variants beside each other, then the .cu files that the run had."""
    python = [_panel(row.file, digests, folder) for row in side]
    names = [row.file.removesuffix(".py") + ".cu" for row in side]
    cuda = [_panel(name, digests, folder) for name in names if _recorded(name, digests, folder)]
    return [_marked(panels) for panels in (python, cuda) if panels]


def _recorded(name: str, digests: Mapping[str, str], folder: Path | None) -> str | None:
    """The manifest's digest of a file, which it names from the root of the project or, elsewhere, in full."""
    return digests.get(name) or digests.get(str((folder / Path(name).name).resolve())) if folder else None


def _panel(name: str, digests: Mapping[str, str], folder: Path | None) -> Panel:
    path, recorded = (folder or Path()).resolve() / Path(name).name, _recorded(name, digests, folder)
    if recorded is None or path.is_symlink() or not VARIANT.fullmatch(path.stem):
        return Panel(name, withheld="the run does not say what was in this file")
    if not path.is_file():
        return Panel(name, withheld="this file is no longer here")
    content = path.read_bytes()
    if sha256(content).hexdigest() != recorded:
        return Panel(name, withheld=CHANGED)
    return Panel(name, [(line, False) for line in content.decode(errors="replace").splitlines()])


def _marked(panels: list[Panel]) -> list[Panel]:
    """Of two files beside each other, the lines that only one of them has."""
    if len(panels) != 2 or not all(panel.lines for panel in panels):
        return panels
    left, right = ([line for line, _ in panel.lines] for panel in panels)
    blocks = SequenceMatcher(None, left, right, autojunk=False).get_matching_blocks()
    shared = [{block[side] + offset for block in blocks for offset in range(block.size)} for side in (0, 1)]
    return [
        Panel(panel.file, [(line, bool(line.strip()) and at not in common) for at, (line, _) in enumerate(panel.lines)])
        for panel, common in zip(panels, shared)
    ]
