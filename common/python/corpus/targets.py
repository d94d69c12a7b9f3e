"""What a user may name: `ch7`, `ch07:transpose`, `ch07/optimized_transpose.py`, `all`, or a folder of one's own.

A word of no other form is a path if it has a slash or a dot or is a folder here: `./kernels`, `./kernels:softmax`.
"""

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

CHAPTERS = tuple(f"ch{number:02}" for number in range(1, 21))
CHAPTER = re.compile(r"ch([0-9]{1,4})")
VARIANT = re.compile(r"(?:baseline|optimized|peer)_\w{1,255}")
IN_CHAPTER = re.compile(rf"(?:ch|(?=[0-9]+$))([0-9]{{1,4}})(?::(\w{{1,255}})|/({VARIANT.pattern})\.py)?")  # or 7 alone
PATH = re.compile(r"(?!ch[0-9]{1,4}/)([^\0]+?)(?::(\w{1,255}))?")
FORMS = "write ch07, ch07:transpose, ch07/optimized_transpose.py, all, or a folder of your own such as ./kernels"
MOST_TOLD = 100  # characters of a word that is no target


class TargetError(ValueError):
    """A target that names nothing; the message says what would be right."""


@dataclass(frozen=True)
class Folder:
    """Where pairs stand: a chapter, which is a package, or any other folder, whose files are modules by themselves."""

    path: Path
    package: str = ""

    @property
    def name(self) -> str:
        """What its pairs are listed under. That of no other folder is a chapter's."""
        plain = re.sub(r"[^\w.-]", "_", self.path.name)
        return self.package or ("folder_" * (CHAPTER.fullmatch(plain) is not None or not plain) + plain)

    @property
    def root(self) -> Path:
        """Where Python finds its modules."""
        return self.path.parent if self.package else self.path

    def __str__(self) -> str:
        """The word for it, wherever it is read."""
        return self.package or str(self.path)

    def module(self, stem: str) -> str:
        """The dotted name under which a file of the folder is imported."""
        return f"{self.package}.{stem}" if self.package else stem


@dataclass(frozen=True)
class Target:
    """A folder, a pair of it, or one file of that pair; without a folder, all chapters."""

    folder: Folder | None = None
    pair: str | None = None
    variant: str | None = None  # file stem

    def __str__(self) -> str:
        place = str(self.folder or "all")
        return f"{place}/{self.variant}.py" if self.variant else f"{place}:{self.pair}" if self.pair else place

    def is_in(self, chapter: str) -> bool:
        """Whether the target is in the folder of this name, as results write it."""
        return chapter == self.folder.name if self.folder else chapter in CHAPTERS


def parse(text: str, root: Path) -> Target:
    """What a word names, which need not exist; `root` is where chapters are.

    Raises TargetError for a word of no known form or a chapter out of range.
    """
    text = text.strip()
    if text == "all":
        return Target()
    if named := IN_CHAPTER.fullmatch(text):
        chapter = f"ch{int(named[1]):02}"
        if chapter not in CHAPTERS:
            raise TargetError(f"{quoted(text)} is not a target: chapters are ch01 to ch20")
        pair = pair_name(named[3]) if named[3] else named[2]
        return Target(Folder(root / chapter, chapter), pair, named[3])
    named = PATH.fullmatch(text)
    if named is None or not ("/" in named[1] or "." in named[1] or os.path.isdir(named[1])):
        raise TargetError(f"{quoted(text)} is not a target: {FORMS}")
    path, pair, variant = Path(os.path.realpath(named[1])), named[2], None
    if path.suffix == ".py":
        if pair or not VARIANT.fullmatch(path.stem):
            files = "baseline_x.py, optimized_x.py or peer_x__lib.py"
            raise TargetError(f"{quoted(text)} is no file of a pair: name {files}")
        path, pair, variant = path.parent, pair_name(path.stem), path.stem
    is_chapter = path.name in CHAPTERS and path.parent == root.resolve()
    return Target(Folder(root / path.name, path.name) if is_chapter else Folder(path), pair, variant)


def homes(root: Path, words: Iterable[str]) -> dict[str, Path]:
    """The chapters under `root`, and the other folders that words name, by the name that results know them by."""
    found = {chapter: root / chapter for chapter in CHAPTERS}
    for word in words:
        with suppress(TargetError):  # of a run that another version wrote
            if folder := parse(word, root).folder:
                found[folder.name] = folder.path
    return found


def pair_name(stem: str) -> str:
    """`optimized_transpose__padded` belongs to the pair `transpose`."""
    return stem.split("_", 1)[1].split("__", 1)[0]


def nearest(word: str, known: Sequence[str]) -> str:
    """`; did you mean ...?` where something similar exists, else what there is."""
    close = [name for name in known if word and name.startswith(word)] or get_close_matches(word, known, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else f"; there are {', '.join(known)}" if known else ""


def quoted(word: str) -> str:
    """A word as it may be shown: on one line, without what moves a cursor, and not all of it where it is long."""
    return repr(word if len(word) <= MOST_TOLD else f"{word[:MOST_TOLD]}...")
