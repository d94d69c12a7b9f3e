"""What `doctor` says of one thing about this machine, and how checks that may be refused become such findings."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from pynvml import NVMLError

State = Literal["good", "note", "poor", "unknown"]


# What was found, and the command that would change it. good: nothing to do; note: know it when you read numbers;
# poor: it spoils or prevents them.
Answer = tuple[State, str, str | None]


@dataclass(frozen=True)
class Finding:
    """An answer with its place in the report, and why a measurement cares."""

    area: str
    name: str
    state: State
    found: str
    matters: str
    change: str | None = None


class Check(NamedTuple):
    """A question put to the machine; `ask` may raise OSError, ValueError or NVMLError, saying why it cannot know."""

    name: str
    matters: str
    ask: Callable[..., Answer]


def wanted(right: bool, found: str, change: str | None, otherwise: State = "note") -> Answer:
    """Good where it is right, else the other state, with what would change it."""
    return ("good", found, None) if right else (otherwise, found, change)


def examine(area: str, checks: Iterable[Check], *subject: object) -> list[Finding]:
    """Each check put to the subject; what cannot be known is unknown, with the reason."""
    found = []
    for name, matters, ask in checks:
        try:
            state, told, change = ask(*subject)
        except (OSError, ValueError, NVMLError) as error:
            why = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
            state, told, change = "unknown", why, None
        found.append(Finding(area, name, state, told, matters, change))
    return found


def text(path: Path) -> str:
    """A small file's text, stripped. Raises OSError, which `examine` makes a reason."""
    return path.read_text(errors="replace").strip()
