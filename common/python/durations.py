"""How long each pair was at work when it was last run, so that the next suite begins with the longest.

At the end of a suite a long pair would have nobody beside it (longest processing time first: Graham, SIAM Journal on
Applied Mathematics 17(2), 1969). Times in seconds, less those in which others had the machine to themselves: what is
left does not depend on the order.
"""

import contextlib
import json
import math
from collections.abc import Mapping
from pathlib import Path

from common.python.journal import write

NAME = "durations.json"  # in the artifacts folder


class Durations:
    """Those that are noted in a folder, by the pair's key, and those of the suite that is at work."""

    def __init__(self, folder: Path) -> None:
        """A file that is missing, or not whole, says nothing."""
        self._place = folder / NAME
        self._new: dict[str, float] = {}

    def known(self) -> Mapping[str, float]:
        """What is noted."""
        try:
            found = json.loads(self._place.read_bytes())
            return {str(key): float(seconds) for key, seconds in found.items() if math.isfinite(seconds)}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def note(self, key: str, seconds: float) -> None:
        self._new[key] = seconds

    def keep(self) -> None:
        """Write them beside what others have noted; where nothing can be written, the next suite knows less."""
        if self._new:
            with contextlib.suppress(OSError):
                write(self._place, json.dumps({**self.known(), **self._new}, indent=1))
