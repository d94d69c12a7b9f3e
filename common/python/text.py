"""Text from pairs, compilers and exceptions, made safe to show, and the console it is shown on."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # rich is slow to load, and `list` needs none of it in a pipe
    from rich.console import Console


def wide_console() -> "Console":
    """The terminal; for a pipe, which has no width, one in which tables keep their words whole."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 200)


def clean(text: str) -> str:
    """Foreign text on one line, without what would move a cursor or colour a terminal."""
    return " ".join(printable(text).split())


def printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in text)
