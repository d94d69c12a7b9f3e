"""What the pair files said when they were last read, so that `list` parses only those that changed since."""

import json
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from common.python import requirements
from common.python.base.paths import build_folder
from common.python.corpus import discovery
from common.python.corpus.discovery import Pair, Variant, read_file
from common.python.requirements import Requirements

KEEPS = (bool, int, float, str, type(None))  # what JSON gives back as it was
NAME = "readings.json"
FRESH_NS = 2e9  # a file's time may be as coarse as this


def choose(root: Path, words: Iterable[str]) -> list[Pair]:
    """The pairs that words name, as discovery's `choose` gives them and as it raises."""
    readings = Readings(build_folder(root), time.time_ns())
    try:
        return discovery.choose(root, words, readings.read)
    finally:
        readings.keep()


class Readings:
    """Reads a pair file as discovery does, or gives what it read where time and size of the file are the same.

    Not kept are a file that changed within the last two seconds, since a file's time may not show the next change, and
    one with something wrong. All are read anew once the code that reads them has changed.
    """

    def __init__(self, folder: Path, now_ns: int) -> None:
        self._place, self._now_ns = folder / NAME, now_ns
        self._by = [os.stat(file).st_mtime_ns for file in (__file__, discovery.__file__, requirements.__file__)]
        try:
            kept = json.loads(self._place.read_bytes())
            self._kept: dict[str, Any] = dict(kept["files"]) if kept["by"] == self._by else {}
        except (OSError, ValueError, TypeError, KeyError):
            self._kept = {}
        self._new = False

    def read(self, path: Path) -> tuple[Variant, dict[str, Any]]:
        """The variant, and the literal arguments of its workload."""
        try:
            status = path.stat()
        except OSError:
            return read_file(path)
        stamp, key = [status.st_mtime_ns, status.st_size], os.path.abspath(path)
        if (known := self._kept.get(key)) and known[0] == stamp:
            return _variant(path, *known[1]), known[2]
        variant, literals = read_file(path)
        told = [variant.role, variant.label, variant.sentence, variant.kinds, json.dumps(vars(variant.required))]
        sound = variant.problem is None and all(type(value) in KEEPS for value in literals.values())
        if sound and stamp[0] < self._now_ns - FRESH_NS:
            self._kept[key], self._new = [stamp, told, literals], True
        return variant, literals

    def keep(self) -> None:
        """Write what was read anew; where nothing can be written, the next one reads it again."""
        if not self._new:
            return
        from common.python.base.journal import (
            write,  # loads pydantic, for which `list` has time only where files changed
        )

        with suppress(OSError):
            write(self._place, json.dumps({"by": self._by, "files": self._kept}))


def _variant(path: Path, role: Any, label: str, sentence: str, kinds: list[Any], needed: str) -> Variant:
    return Variant(path.stem, role, label, path, sentence, tuple(kinds), _required(needed))


@cache
def _required(needed: str) -> Requirements:
    """Of the text that many files share."""
    fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in json.loads(needed).items()}
    return Requirements(**fields)
