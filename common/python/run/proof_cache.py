"""What was proven or compiled of a pair is noted, by a digest of its files, the library, versions and what else counts.

`verify` takes a note for what it proved on a CPU: with one seed, code does the same again. On a GPU, where a race may
show in one run of many, it takes none. A run notes that a pair is proven at `test` size and its variants are in the
compilers' caches on disk: the next one need not compile them ahead, and a quick one need not prove them there again.
"""

import contextlib
import functools
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from common.python.base.journal import write
from common.python.base.manifest import digest, versions
from common.python.base.toolkit import ROOT
from common.python.build.compilation import files_of
from common.python.corpus.discovery import Pair


def note_of(folder: Path, pair: Pair, here: Iterable[str]) -> Path | None:
    """The note in this folder on a pair; `here` is what else its proof depends on, such as why a variant cannot run.

    None where one of its files cannot be read, which its session reports.
    """
    names = [pair.notes, *((variant.name, variant.python) for variant in pair.variants)]
    try:
        files = sorted(files_of(pair, library=False))
        told = json.dumps([_library(), str(pair.folder.root.resolve()), names, *here, *map(digest, files)])
    except OSError:
        return None
    found = hashlib.sha256(told.encode()).hexdigest()[:16]
    return folder / f"{pair.chapter}_{pair.name}-{found}.note"


@functools.cache
def _library() -> list[object]:
    """What any proof depends on beside the pair's own files: the versions, and the library as this process found it."""
    files = [file for file in (ROOT / "common").rglob("*") if file.is_file() and file.suffix != ".pyc"]
    return [versions(), *map(digest, sorted(files))]


def take_note(note: Path | None, text: str | None) -> None:
    """Keep a note, or remove it, for None. Where nothing can be written, each run proves and compiles."""
    with contextlib.suppress(OSError):
        if note and text is None:
            note.unlink(missing_ok=True)
        elif note and text:
            write(note, text)
