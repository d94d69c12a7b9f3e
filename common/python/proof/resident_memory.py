"""What variants hold between steps, as the median of their rounds: one round may tell it wrong.

A thread of autograd's may let go of a step's gradients a moment after the step has returned. Then they count for the
variant that was prepared, and are missing from what the next one holds: in one of three runs on an H200 (81b4ce6) the
peaks of two variants of `ch09:linear_cross_entropy` were off by 329,252,864 bytes, as much as its two gradients have.
"""

from collections import defaultdict
from statistics import median

from common.python.proof.preparation import Preparation


class HeldMemory:
    """Of each variant at each size."""

    def __init__(self) -> None:
        self._bytes: dict[tuple[str, str], list[float]] = defaultdict(list)

    def over_rounds(self, prep: Preparation) -> Preparation:
        """The same, with what each variant held in the median of the rounds so far; None stays None, as on a CPU."""
        for name, variant in prep.variants.items():
            if variant.held_bytes is not None:
                self._bytes[name, prep.size_name].append(variant.held_bytes)
                variant.held_bytes = median(self._bytes[name, prep.size_name])
        return prep
