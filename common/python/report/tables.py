"""The console that commands print on, and the tables that they draw there."""

import sys
from collections.abc import Container, Iterable, Sequence
from itertools import zip_longest
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from common.python.base.text import clean


def wide_console() -> Console:
    """The terminal; for a pipe, which has no width, one in which tables keep their words whole."""
    return Console(width=None if sys.stdout.isatty() else 200)


def text_table(
    columns: Iterable[str],
    lines: Iterable[Sequence[str | Text]],
    title: str = "",
    caption: str = "",
    right: Container[str] = (),
    whole: Container[str] = (),
    style: str = "bold",
) -> Table:
    """A table whose text reaches no markup parser; `right` columns are aligned there, `whole` ones are never folded."""
    table = Table(title=Text(clean(title), style) if title else None, caption_justify="left")
    table.caption = Text(caption, "dim") if caption else None
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in whole)
        table.columns[-1].justify = "right" if column in right else "left"
    for line in lines:
        table.add_row(*(Text(clean(cell)) if isinstance(cell, str) else cell for cell in line))
    return table


def filled(columns: Sequence[Any], lines: Sequence[Sequence[Any]]) -> tuple[list[Any], list[tuple[Any, ...]]]:
    """A table without the columns that no line fills."""
    known = zip(columns, zip_longest(*lines, fillvalue=""))
    kept = [(column, cells) for column, cells in known if any(cell != "" for cell in cells)]
    return [column for column, _ in kept], list(zip(*(cells for _, cells in kept)))
