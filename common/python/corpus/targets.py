"""What a user may name: `ch7`, `ch07:transpose`, `ch07/optimized_transpose.py`, `all`, or a folder of one's own.

A word of no other form is a path if it has a slash or a dot or is a folder here: `./kernels`, `./kernels:softmax`.
"""

import difflib
import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

CHAPTERS = tuple(f"ch{number:02}" for number in range(1, 21))
VARIANT = re.compile(r"(?:baseline|optimized|peer)_\w{1,255}")
FILE = re.compile(rf"(ch[0-9]{{1,4}})/({VARIANT.pattern})\.py")
PAIR = re.compile(r"(ch[0-9]{1,4})(?::(\w{1,255}))?")
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
        return self.package or ("folder_" * (PAIR.fullmatch(plain) is not None or not plain) + plain)

    @property
    def root(self) -> Path:
        """Where Python finds its modules."""
        return self.path.parent if self.package else self.path

    def module(self, stem: str) -> str:
        """What a file of it is imported as."""
        return f"{self.package}.{stem}" if self.package else stem


@dataclass(frozen=True)
class Target:
    """A chapter or another folder, a pair of it, or one file of that pair."""

    chapter: str  # or the folder's name
    pair: str | None = None
    variant: str | None = None  # file stem
    folder: Folder | None = None  # that is no chapter

    def __str__(self) -> str:
        """The word for it, wherever it is read."""
        place = str(self.folder.path) if self.folder else self.chapter
        return f"{place}/{self.variant}.py" if self.variant else f"{place}:{self.pair}" if self.pair else place


def parse(text: str) -> list[Target]:
    """The targets that one word names, which need not exist.

    Raises TargetError for a word of no known form or a chapter out of range.
    """
    text = text.strip()
    if text == "all":
        return [Target(chapter) for chapter in CHAPTERS]
    if file := FILE.fullmatch(text):
        stem = file[2]
        return [Target(_chapter(file[1], text), pair_name(stem), stem)]
    if pair := PAIR.fullmatch(text):
        return [Target(_chapter(pair[1], text), pair[2])]
    if (path := PATH.fullmatch(text)) and ("/" in path[1] or "." in path[1] or os.path.isdir(path[1])):
        return [_in_folder(Path(os.path.realpath(path[1])), path[2], text)]
    raise TargetError(f"{quoted(text)} is not a target: {FORMS}")


def _in_folder(path: Path, pair: str | None, text: str) -> Target:
    if path.suffix != ".py":
        folder = Folder(path)
        return Target(folder.name, pair, folder=folder)
    if pair or not VARIANT.fullmatch(path.stem):
        raise TargetError(f"{quoted(text)} is no file of a pair: name baseline_x.py, optimized_x.py or peer_x__lib.py")
    folder = Folder(path.parent)
    return Target(folder.name, pair_name(path.stem), path.stem, folder)


def spelled(targets: Iterable[Target]) -> list[str]:
    """Words for these targets, wherever they are read."""
    words = [str(target) for target in targets]
    return ["all", *(word for word in words if word not in CHAPTERS)] if {*CHAPTERS} <= {*words} else words


def homes(root: Path, words: Iterable[str]) -> dict[str, Path]:
    """The chapters under `root`, and the other folders that words name, by the name that results know them by."""
    found = {chapter: root / chapter for chapter in CHAPTERS}
    for word in words:
        with suppress(TargetError):  # of a run that another version wrote
            found |= {target.chapter: target.folder.path for target in parse(word) if target.folder}
    return found


def pair_name(stem: str) -> str:
    """`optimized_transpose__padded` belongs to the pair `transpose`."""
    return stem.split("_", 1)[1].split("__", 1)[0]


def nearest(word: str, known: Sequence[str]) -> str:
    """`; did you mean ...?` where something similar exists, else what there is."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else f"; there are {', '.join(known)}" if known else ""


def quoted(word: str) -> str:
    """A word as it may be shown: on one line, without what moves a cursor, and not all of it where it is long."""
    return repr(word if len(word) <= MOST_TOLD else f"{word[:MOST_TOLD]}...")


def _chapter(text: str, word: str) -> str:
    chapter = f"ch{int(text[2:]):02}"
    if chapter not in CHAPTERS:
        raise TargetError(f"{quoted(word)} is not a target: chapters are ch01 to ch20")
    return chapter
