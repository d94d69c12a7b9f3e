"""HTML that nothing put into it can break: a string is text and is escaped, only `Markup` is taken as it is."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from common.python.base.text import printable

# Colours, light and dark, as CSS variables: a page's, or those of a picture that stands alone.
PALETTE = """
:root { color-scheme: light dark; --ink: #1f2328; --paper: #fff; --raised: #f3f5f7; --faint: #c9d1d9;
  --good: #1a7f37; --fair: #9a6700; --bad: #cf222e; --peer: #0969da; --mark: #fff3bf; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --paper: #0d1117; --raised: #171d25; --faint: #444c56;
  --good: #3fb950; --fair: #d29922; --bad: #f85149; --peer: #58a6ff; --mark: #3b3212; } }
"""
LONGEST_WHOLE = 36  # letters of a cell that is never broken into lines


@dataclass(frozen=True)
class Markup:
    """A piece of a page, well-formed and escaped. Whoever makes one other than by `tag` vouches for it."""

    text: str


Inside = Markup | str


def tag(element: str, *inside: Inside, **attributes: str) -> Markup:
    """An element: `tag("p", "a < b", class_="note")` is `<p class="note">a &lt; b</p>`."""
    named = "".join(f' {name.rstrip("_")}="{escaped(value)}"' for name, value in attributes.items())
    return Markup(f"<{element}{named}>{together(inside).text}</{element}>")


def together(parts: Iterable[Inside]) -> Markup:
    return Markup("".join(part.text if isinstance(part, Markup) else escaped(part) for part in parts))


def escaped(text: str) -> str:
    """Text as a page shows it: line by line, without the letters that turn its direction or move a cursor."""
    return escape("\n".join(printable(line.expandtabs(4)) for line in text.split("\n")))


def table(columns: Sequence[str], lines: Iterable[Sequence[Inside]]) -> Markup:
    """A table that scrolls by itself where the screen is narrower; lines shorter than the head are filled up."""
    head = tag("tr", *(tag("th", column, scope="col") for column in columns))
    padded = [[*line, *[""] * (len(columns) - len(line))] for line in lines]
    body = [tag("tr", *map(_cell, line)) for line in padded]
    return tag("div", tag("table", tag("thead", head), tag("tbody", *body)), class_="scroll", tabindex="0")


def _cell(inside: Inside) -> Markup:
    """Sentences break into lines; figures and names stay whole."""
    words = isinstance(inside, str) and len(inside) > LONGEST_WHOLE
    return tag("td", inside, class_="words") if words else tag("td", inside)


def bullets(items: Iterable[Inside]) -> Markup:
    return tag("ul", *(tag("li", item) for item in items))


def folded(title: Inside, *inside: Inside) -> Markup:
    """What is shown only when its title is clicked."""
    return tag("details", tag("summary", title), *inside)
