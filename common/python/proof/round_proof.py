"""Proof of every sample of a round, where steps are so long that calling them once more for a proof costs too much.

New inputs and the right answer to them are made before the round is timed, and put in place just before its first
sample. Behind each sample's clock its output is compared, and poisoned before the next.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from common.python.base.results import WHILE, Proof
from common.python.proof.comparison import Rejected, compare, leaves, poison
from common.python.proof.preparation import Preparation, overwrite, settle
from common.python.proof.trials import aliased, blame, changed, spoilt
from common.python.workload import Inputs, Output, Step

LONG_S = 0.01  # of the longest step, at least
LITTLE = 1 << 20  # bytes of a host that are given back in no time: 256 pages


@dataclass
class RoundProof:
    """What all variants of a preparation are asked in its round, and how they did. Build with `pose`."""

    prep: Preparation
    drawn: Inputs  # where no step can reach them
    expected: list[Tensor]
    took_s: float  # to ask
    given: bool = False  # whether the inputs hold what was drawn
    held: dict[str, list[Output]] = field(default_factory=dict)  # each variant's last output, until its next step
    errors: dict[str, float] = field(default_factory=dict)  # the largest of each that was sampled
    reasons: dict[str, str] = field(default_factory=dict)  # the first of each that failed

    def give(self) -> None:
        """Poison what the variants left and put the new inputs in place; no step is called between this and samples."""
        if self.given:
            return
        self.given = True
        for variant in self.prep.variants.values():
            poison(variant.output)
            variant.output = []  # steps give back what they return, as where nobody looks at it
        for key, value in self._written().items():
            overwrite(self.prep.inputs[key], value, key)

    def _written(self) -> Inputs:
        return {key: value for key, value in self.drawn.items() if key not in self.prep.workload.frozen}

    def ready(self, name: str) -> None:
        """As before every sample of it: poison what it gave last, then restore what it may write, perhaps the same."""
        if name not in self.reasons:  # else it may not even be made of tensors
            for output in self.held.get(name, []):
                poison(leaves(output))
        for key in self.prep.workload.mutates:
            overwrite(self.prep.variants[name].inputs[key], self.drawn[key], key)

    def seen(self, name: str) -> Step:
        """The variant's step, whose output can be looked at; it gives back the last one before it begins."""
        step, held = self.prep.variants[name].step, self.held.setdefault(name, [])

        def step_that_is_seen() -> Output:
            held.clear()
            held.append(step())
            return held[0]

        return step_that_is_seen

    def look(self, name: str) -> bool:
        """Compare what the variant gave last, with the device idle; whether that was its first call on the inputs."""
        first = name not in self.errors
        error, reason = self._compare(self.held[name][0])
        if reason and not first:
            reason = f"a second call on the same inputs did not do the work again: {reason}"
        if reason := reason or self.prep.left_changed("the step"):
            self.reasons.setdefault(name, reason)
        self.errors[name] = max(error, self.errors.get(name, 0.0))
        return first

    def _compare(self, output: Output) -> tuple[float, str | None]:
        try:
            parts = leaves(output)
            if reason := aliased(self.prep, parts):
                return math.inf, reason
            dtypes = self.prep.dtypes or [leaf.dtype for leaf in parts]
            comparison = compare(parts, self.expected, dtypes, self.prep.workload.tolerance)
            self.prep.dtypes = self.prep.dtypes or dtypes
        except Rejected as rejected:
            return math.inf, str(rejected)
        return comparison.error, comparison.reason

    def finish(self, names: Sequence[str]) -> dict[str, list[Proof]]:
        """The proofs of these variants, which all have been sampled, when the round has been timed.

        Raises VariantError where inputs or settings have been changed and no proof tells by whom.
        """
        meanwhile = spoilt(self.prep) or changed(self.prep, self._written())
        proofs = {name: [self._proof(name)] for name in names}
        blame(meanwhile, proofs)
        return proofs

    def _proof(self, name: str) -> Proof:
        error = self.errors[name] if math.isfinite(self.errors[name]) else None
        proof = {"size": self.prep.size_name, "when": WHILE, "error": error, "reason": self.reasons.get(name)}
        return Proof.model_validate(proof)


def worth_it(prep: Preparation, names: Sequence[str]) -> bool:
    """Whether one of these is long, by its proofs, and all return what is on a GPU, or little.

    Looking at an output keeps it until the variant's next step begins. A GPU's memory is given back in no time, pages
    of a host are not: there the time to give back an output belongs to the step that made it. Nor may files be drawn
    anew that a step may read before it is asked.
    """
    variants = [prep.variants[name] for name in names]
    on_host = sum(leaf.nbytes for variant in variants for leaf in variant.output if not leaf.is_cuda)
    long = any(LONG_S <= variant.called_s < math.inf for variant in variants)
    return long and on_host <= LITTLE and not prep.files and prep.ranks.size == 1


def pose(prep: Preparation) -> RoundProof:
    """Draw new inputs, leaving those in place as they are, and compute the reference to the new ones.

    Raises VariantError when the workload's own inputs or reference raise.
    """
    started = prep.now_s()
    [drawn] = prep.draw()
    drawn |= prep.frozen
    expected = [leaf.to(prep.device) for leaf in prep.reference(drawn)]
    settle(prep.device)
    return RoundProof(prep, drawn, expected, prep.now_s() - started)
