"""What a user may name: `ch7`, `ch07`, `ch07:transpose`, `ch07/optimized_transpose.py`, `all`."""

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

CHAPTERS = tuple(f"ch{number:02}" for number in range(1, 21))
FILE = re.compile(r"(?:.*/)?(ch[0-9]{1,4})/((?:baseline|optimized|peer)_\w{1,255})\.py")
PAIR = re.compile(r"(ch[0-9]{1,4})(?::(\w{1,255}))?")
MOST_TOLD = 100  # characters of a word that is no target


class TargetError(ValueError):
    """A target that names nothing; the message says what would be right."""


@dataclass(frozen=True)
class Target:
    """A chapter, a pair of it, or one file of that pair."""

    chapter: str
    pair: str | None = None
    variant: str | None = None  # file stem


def parse(text: str) -> list[Target]:
    """The targets that one word names. Raises TargetError for a word of no known form or a chapter out of range."""
    text = text.strip()
    if text == "all":
        return [Target(chapter) for chapter in CHAPTERS]
    if file := FILE.fullmatch(text):
        stem = file[2]
        return [Target(_chapter(file[1], text), pair_name(stem), stem)]
    if pair := PAIR.fullmatch(text):
        return [Target(_chapter(pair[1], text), pair[2])]
    raise TargetError(f"{quoted(text)} is not a target: write ch07, ch07:transpose, ch07/optimized_transpose.py or all")


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
