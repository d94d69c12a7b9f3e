"""What a sweep proved on a CPU is not proven again until a file of it changes: with one seed, code does the same again.

On a GPU nothing is taken from notes: there a race may show in one run of many.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ValidationError

from common.python.checks import Check
from common.python.compilation import CHAPTER, imports_of
from common.python.cuda import ROOT
from common.python.discovery import Pair
from common.python.installation import build_folder
from common.python.journal import write
from common.python.manifest import versions


class Note(BaseModel):
    """A pair without a problem: how often each check passed, and what could not be done, by the reason."""

    passed: dict[str, int]
    not_done: dict[str, dict[str, int]]


class Notes:
    """The notes on a tree's pairs, under the project's build folder."""

    def __init__(self, root: Path, again: bool = False) -> None:
        """Read all that a proof may depend on beside the pair's own files: the library and its versions.

        `again`: no note is taken, but each is written, or taken away, as the proof turns out.
        """
        self.root, self.again = root.resolve(), again
        self.taken: list[Path] = []
        library = [file for file in (ROOT / "common").rglob("*") if file.is_file() and file.suffix != ".pyc"]
        self._beside = _digest([repr((str(self.root), versions())).encode(), *map(Path.read_bytes, sorted(library))])

    def of(self, pair: Pair, here: Iterable[str]) -> Path:
        """Where a note on it is; `here` is what else its proof depends on, such as why a variant cannot run."""
        sources = {file for variant in pair.variants for file in imports_of(variant.path, self.root, CHAPTER)}
        sources |= {cu for variant in pair.variants if (cu := variant.path.with_suffix(".cu")).exists()}
        names = json.dumps([self._beside, [variant.name for variant in pair.variants], *here]).encode()
        digest = _digest([names, *(file.read_bytes() for file in sorted(sources))])
        return build_folder(ROOT) / "verified" / f"{pair.chapter}_{pair.name}-{digest[:16]}.json"

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


def _digest(parts: Iterable[bytes]) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(hashlib.sha256(part).digest())
    return found.hexdigest()
