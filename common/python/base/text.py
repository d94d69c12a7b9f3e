"""Text from pairs, compilers and exceptions, made safe to show, and the console it is shown on."""

import shutil
import sys
import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # rich is slow to load, and `list` needs none of it
    from rich.console import Console

PIPE_COLUMNS = 120  # of running text where nothing says how wide it may be


def wide_console() -> "Console":
    """The terminal; for a pipe, which has no width, one in which tables keep their words whole."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 200)


def hanging(head: str, body: str) -> str:
    """`head`, then `body` within the terminal's width, its further lines under its first."""
    width = shutil.get_terminal_size((PIPE_COLUMNS, 0)).columns
    return textwrap.fill(
        body,
        max(width, len(head) + 30),
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_on_hyphens=False,
    )


def clean(text: str) -> str:
    """Foreign text on one line, without what would move a cursor or colour a terminal."""
    return " ".join(printable(text).split())


def printable(text: str) -> str:
    return text if text.isprintable() else "".join(letter if letter.isprintable() else " " for letter in text)


def counted(n: int, noun: str) -> str:
    return f"{n} {noun}{'s' * (n != 1)}"
