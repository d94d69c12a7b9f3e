"""What a sweep found of a pair is kept, so that the next sweep proves again only the pairs that have changed."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ValidationError

from common.python.base.journal import write
from common.python.run.proof_cache import Notes
from common.python.verify.static_checks import Check


class Note(BaseModel):
    """A pair without a problem: how often each check passed, and what could not be done, by the reason."""

    passed: dict[str, int]
    not_done: dict[str, dict[str, int]]


class KeptChecks(Notes):
    """The notes of earlier sweeps."""

    def __init__(self, root: Path, again: bool = False) -> None:
        """`again`: no note is read, but each is written, or taken away, as the proof turns out."""
        super().__init__(root)
        self.again = again
        self.taken: list[Path] = []

    def read(self, place: Path) -> tuple[Check, ...] | None:
        """The checks that were noted there; None if there are none, or not whole ones."""
        if self.again:
            return None
        try:
            note = Note.model_validate_json(place.read_bytes())
        except (OSError, ValidationError):
            return None
        self.taken.append(place)
        return tuple(
            Check(name, passed=count, not_done=Counter(note.not_done.get(name, {})))
            for name, count in note.passed.items()
        )


def keep(place: Path, checks: Iterable[Check]) -> None:
    """Note them; where one has a problem or a warning, an earlier note is no longer true. Raises OSError."""
    checks = list(checks)
    if any(check.problems or check.warnings for check in checks):
        place.unlink(missing_ok=True)
        return
    note = Note(
        passed={check.name: check.passed for check in checks},
        not_done={check.name: dict(check.not_done) for check in checks},
    )
    write(place, note.model_dump_json())
