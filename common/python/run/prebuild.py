"""Which variants are compiled when they are prepared, and what is known to be in the compilers' caches on disk.

torch.compile and Triton compile a variant when it is first called. The first phase of a run does that for all pairs at
once and notes what it compiled, so that a later run does not prepare it only to find it in the caches.
"""

import contextlib
import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

from common.python.base.manifest import versions
from common.python.base.paths import build_folder
from common.python.base.toolkit import ROOT
from common.python.corpus.discovery import Pair, Variant

COMPILES, AUTOTUNES = b"torch.compile", re.compile(rb"autotune(?!_pointwise)")
COMPILING = re.compile(r"\b(torch\.compile|[Cc]ompile[sd]?|Inductor|Dynamo)\b")


def compiles(variant: Variant) -> bool:
    """Whether a file is compiled when it is prepared: by torch.compile, or a kernel by Triton."""
    return "Triton" in variant.kinds or COMPILES in variant.path.read_bytes()


def autotunes(variant: Variant) -> bool:
    """Whether compiling it times kernels against each other, for which nothing else may be at work."""
    return bool(AUTOTUNES.search(variant.path.read_bytes()))


def teaches_compiling(pair: Pair) -> bool:
    """Whether the first sentence of its baseline or headline is about a compiler.

    Then the time of a first compilation is part of the lesson, so nothing is compiled before the pair is measured.
    """
    speak = (f"baseline_{pair.name}", f"optimized_{pair.name}")
    return any(COMPILING.search(variant.sentence) for variant in pair.variants if variant.name in speak)


def to_build(pair: Pair, timed: Iterable[Variant], device: str, size: str) -> list[Variant]:
    """The variants that compile and are not known to be in the caches."""
    if teaches_compiling(pair):
        return []
    return [v for v in timed if compiles(v) and not _note(pair, v, device, size).exists()]


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
