"""The sources of a pair as a report shows them: the baseline beside the headline, then each other variant.

What says nothing about the solution (docstring, imports, workload, needs) is folded.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from hashlib import sha256
from itertools import groupby
from pathlib import Path

from common.python.base.results import PairResult
from common.python.base.text import clean
from common.python.corpus.targets import VARIANT

UNKNOWN = "the run does not say what was in this file"
AROUND = 3  # lines of a further variant that are shown beside what the baseline lacks, as in a diff


@dataclass(frozen=True)
class Panel:
    """A source file, or why its lines are not shown."""

    file: str
    lines: Sequence[str] = ()
    marked: Set[int] = frozenset()  # the numbers, from 0, of lines that the file beside it lacks
    withheld: str = ""
    cut: bool = False  # without what is folded or far from any marked line

    def parts(self) -> Iterator[tuple[bool, int, list[tuple[bool, str]]]]:
        """Lines that are folded or shown together: whether folded, how many, and their text in runs, marked or not."""
        hidden = _folded(self.lines) if self.file.endswith(".py") else set()
        if self.cut and self.marked:
            near = {at + by for at in self.marked for by in range(-AROUND, AROUND + 1)}
            hidden |= set(range(len(self.lines))) - near
        for fold, numbers in groupby(range(len(self.lines)), key=hidden.__contains__):
            own = [*numbers]
            runs = groupby(own, key=self.marked.__contains__)
            if not (fold and self.cut):
                yield fold, len(own), [(marked, "\n".join(self.lines[at] for at in run)) for marked, run in runs]


def _folded(lines: Sequence[str]) -> set[int]:
    """The numbers, from 0, of the lines that say nothing about the solution; none where it is no Python."""
    try:
        tree = ast.parse("\n".join(lines))
    except (SyntaxError, ValueError, RecursionError):
        return set()
    hidden = set[int]()
    for at, statement in enumerate(tree.body):
        assigned = ast.unparse(statement.targets[0]) if isinstance(statement, ast.Assign) else ""
        docstring = at == 0 and isinstance(statement, ast.Expr)
        if docstring or assigned in ("workload", "requires") or isinstance(statement, ast.Import | ast.ImportFrom):
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
    base = [row for row in result.variants if row.role == "baseline"]
    others = [row for row in result.variants if row.role != "baseline"]
    others.sort(key=lambda row: row is not result.headline)
    folder, found = places.get(result.chapter, Path()).resolve(), []
    for number, side in enumerate([[*base, other] for other in others] or [base] * len(base)):
        python = [_panel(row.file, digests, folder) or Panel(row.file, withheld=UNKNOWN) for row in side]
        cuda = [_panel(row.file.removesuffix(".py") + ".cu", digests, folder) for row in side]
        if number and cuda[-1] is None:  # then the baseline's would stand under this variant's title
            cuda = []
        kinds = [marked(panels) for panels in (python, [*filter(None, cuda)]) if panels]
        if number:  # the baseline stands in the first already
            side, kinds = side[-1:], [[replace(panels[-1], cut=True)] for panels in kinds]
        found.append((" | ".join(clean(row.label) for row in side), kinds))
    return found


def _panel(name: str, digests: Mapping[str, str], folder: Path) -> Panel | None:
    """A variant's file; None where the run does not say what was in it: by its place in the project or in full."""
    path = folder / Path(name).name
    recorded = digests.get(name) or digests.get(str(path))
    if recorded is None or path.is_symlink() or not VARIANT.fullmatch(path.stem):
        return None
    if not path.is_file():
        return Panel(name, withheld="this file is no longer here")
    content = path.read_bytes()
    if sha256(content).hexdigest() != recorded:
        return Panel(name, withheld="this file has changed since the run, so its text is not shown")
    return Panel(name, content.decode(errors="replace").splitlines())


def marked(panels: list[Panel]) -> list[Panel]:
    """Of two files beside each other, the lines that only one of them has."""
    if len(panels) != 2 or not all(panel.lines for panel in panels):
        return panels
    blocks = SequenceMatcher(None, panels[0].lines, panels[1].lines, autojunk=False).get_matching_blocks()
    shared = [{at for block in blocks for at in range(block[side], block[side] + block.size)} for side in (0, 1)]
    own = [{at for at, line in enumerate(panel.lines) if line.strip()} for panel in panels]
    return [replace(panel, marked=own[side] - shared[side]) for side, panel in enumerate(panels)]
