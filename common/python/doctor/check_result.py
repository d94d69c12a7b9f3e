"""What `doctor` says of one thing about this machine, and how checks that may be refused become such findings."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

State = Literal["good", "note", "poor", "unknown"]


@dataclass(frozen=True)
class Answer:
    """A check's answer. good: nothing to do; note: know it when you read numbers; poor: it spoils or prevents them."""

    state: State
    found: str
    change: str | None = None  # the command that would change it


@dataclass(frozen=True)
class Finding:
    """An answer with its place in the report, and why a measurement cares."""

    area: str
    name: str
    state: State
    found: str
    matters: str
    change: str | None = None


@dataclass(frozen=True)
class Check:
    """A question put to the machine; `ask` may raise OSError or ValueError, saying why it cannot know."""

    name: str
    matters: str
    ask: Callable[..., Answer]


def examine(
    area: str, checks: Sequence[Check], *subject: object, refusals: tuple[type[Exception], ...] = ()
) -> list[Finding]:
    """Each check put to the subject; what cannot be read, or raises one of `refusals`, is unknown, with the reason."""
    unreadable: tuple[type[Exception], ...] = (OSError, ValueError, *refusals)
    found = []
    for check in checks:
        try:
            answer = check.ask(*subject)
        except unreadable as error:
            answer = Answer("unknown", _why(error))
        found.append(Finding(area, check.name, answer.state, answer.found, check.matters, answer.change))
    return found


def _why(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error) or type(error).__name__


def text(path: Path) -> str:
    """A small file's text, stripped. Raises OSError, which `examine` makes a reason."""
    return path.read_text(errors="replace").strip()
