"""How long each pair was at work when it was last run, and how much of a GPU's memory it held, for the next suite.

That begins with the longest: at the end of a suite a long pair would have nobody beside it (longest processing time
first: Graham, SIAM Journal on Applied Mathematics 17(2), 1969). Times in seconds, less those in which others had the
machine to themselves: what is left does not depend on the order.
"""

import contextlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from common.python.base.journal import write

NAME = "last_run.json"  # in the artifacts folder


@dataclass(frozen=True)
class LastRun:
    """Of one pair at one size; `gib` is None where nobody can tell. Raises ValueError for what is not finite."""

    seconds: float
    gib: float | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.seconds) and math.isfinite(self.gib or 0.0)):
            raise ValueError


class LastRuns:
    """Those that are noted in a folder, by pair and size, and those of the suite that is at work."""

    def __init__(self, folder: Path) -> None:
        """A file that is missing, or not whole, says nothing."""
        self._place = folder / NAME
        self._new: dict[str, LastRun] = {}

    def known(self) -> Mapping[str, LastRun]:
        """What is noted."""
        try:
            found = json.loads(self._place.read_bytes())
            return {str(key): LastRun(**one) for key, one in found.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def note(self, key: str, run: LastRun) -> None:
        self._new[key] = run

    def keep(self) -> None:
        """Write them beside what others have noted; where nothing can be written, the next suite knows less."""
        if self._new:
            with contextlib.suppress(OSError):
                found = {key: asdict(run) for key, run in {**self.known(), **self._new}.items()}
                write(self._place, json.dumps(found, indent=1))
