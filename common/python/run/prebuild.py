"""Which variants torch.compile or Triton must still compile, and which are in their caches on disk.

The first phase of a run compiles them for all pairs at once and notes it, so that a later run need not look.
"""

import contextlib
import hashlib
from collections.abc import Iterable
from pathlib import Path

from common.python.base.manifest import versions
from common.python.base.paths import build_folder
from common.python.base.toolkit import ROOT
from common.python.corpus.discovery import Pair, Variant


def to_build(pair: Pair, timed: Iterable[Variant], device: str, size: str) -> list[Variant]:
    """The variants that compile and are not known to be in the caches."""
    return [v for v in timed if v.compiles and not _note(pair, v, device, size).exists()]


def note_built(pair: Pair, variants: Iterable[Variant], device: str, size: str) -> None:
    """Note that these variants are in the caches. Where nothing can be written, a later run compiles them again."""
    for variant in variants:
        note = _note(pair, variant, device, size)
        with contextlib.suppress(OSError):
            note.parent.mkdir(parents=True, exist_ok=True)
            note.touch()


def _note(pair: Pair, variant: Variant, device: str, size: str) -> Path:
    """The file that says that this variant, with these libraries, has been compiled for this device at this size."""
    files = [one.path.read_bytes() for one in (pair.baseline, variant) if one is not None]
    about = (str(variant.path), files, versions(), device, size)
    return build_folder(ROOT) / "prebuilt" / hashlib.sha256(repr(about).encode()).hexdigest()
