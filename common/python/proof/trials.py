"""Proof of the very closures that are timed: what is early, cached, left over, skipped or half-written is wrong here.

Each trial poisons the last output, overwrites the inputs in place, calls the step once and compares with the float64
reference. Then it spoils one element of the output and calls once more, since a step may not skip work that it did
before; a step that is timed meanwhile is called just once.
"""

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from common.python.base.results import BEFORE, WHILE, Proof
from common.python.proof.comparison import (
    Rejected,
    compare,
    files_in,
    in_order,
    leaves,
    poison,
    poison_files,
    read_files,
    same,
    teeth,
)
from common.python.proof.originals import now_s
from common.python.proof.preparation import Preparation, Prepared, VariantError, clone, overwrite, settle, tensors
from common.python.stats.sampling_plan import TRIALS
from common.python.workload import Inputs, Output, Step

STALE_WRITE_S = 0.01  # a thread that outlives its step has this long to be seen writing
TIMED = "a step, while timed,"
Call = Callable[[Step], Output]


@dataclass
class Trial:
    """Fresh inputs that several variants are tried on in turn, and the right answer to them. Build with `begin`."""

    prep: Preparation
    when: str
    pristine: Inputs  # copies, out of reach of any step
    expected: list[Tensor]
    spoilt: str | None  # what steps that were timed before did to what all share
    proofs: list[Proof] = field(default_factory=list)

    def of(self, name: str, call: Call = lambda step: step(), linger: bool = False) -> Proof:
        """Try one variant; `call` makes its first call, `linger` waits for a late write."""
        prep = self.prep
        poison_files(prep.variants[name].files)  # here, since another variant may write the same file
        try:
            error, reason = self._try(prep.variants[name], call, linger)
        except Rejected as rejected:
            error, reason = None, str(rejected)
        except Exception as raised:
            failed = raised if isinstance(raised, VariantError) else VariantError(name, raised)
            if prep.ranks.size > 1:
                raise failed from raised  # the other ranks may be waiting for this one in a collective
            error, reason = None, str(failed)
        left, names = prep.left_changed("the step"), prep.restore_inputs(self.pristine)  # for the other variants
        overwrote = f"the step overwrote the input {names}, which is not in mutates" if names else None
        reason = prep.ranks.agree(overwrote or reason or left)
        error = error if error is not None and math.isfinite(error) else None
        told = {"size": prep.size_name, "when": self.when, "error": error, "reason": reason}
        self.proofs.append(Proof.model_validate(told))
        return self.proofs[-1]

    def _try(self, variant: Prepared, call: Call, linger: bool) -> tuple[float | None, str | None]:
        """The error of one trial and, if it failed, the reason."""
        prep = self.prep
        try:
            first, reason = _copy_output(prep, variant, call(variant.step)), aliased(prep, variant.output)
        except Rejected as rejected:
            first, reason = [], str(rejected)
        if reason := prep.ranks.agree(reason):
            return None, reason
        second = _call_again(prep, variant) if self.when != WHILE else []
        settle(prep.device)
        returned = now_s()
        dtypes = prep.dtypes or [leaf.dtype for leaf in first]
        comparison = compare(first, self.expected, dtypes, prep.workload.tolerance)
        if comparison.reason:
            return comparison.error, comparison.reason
        prep.dtypes[:] = dtypes
        differs = bool(second) and not _equal(second, first)  # by rounding alone, perhaps
        if differs and (reason := compare(second, self.expected, dtypes, prep.workload.tolerance).reason):
            return comparison.error, f"a second call on the same inputs did not do the work again: {reason}"
        if linger and _still_written(prep, variant, second, returned):
            return comparison.error, "the output was still being written after the step had returned"
        poison([*first, *second])  # else a variant that writes nothing could find right answers in freed memory
        return comparison.error, None

    def close(self) -> None:
        """Raise VariantError for the workload if something was spoilt and no proof names the variant that did it."""
        if self.spoilt and not any(proof.reason for proof in self.proofs):
            raise VariantError("workload", Rejected(self.spoilt))


def begin(prep: Preparation, names: list[str], when: str) -> Trial:
    """Poison the last outputs of these variants, overwrite the inputs, and compute the reference once for all."""
    overwrote, left = prep.overwrote(TIMED), prep.left_changed(TIMED)
    spoilt = prep.ranks.agree(overwrote or left)
    for name in names:
        poison(prep.variants[name].output)
    prep.refill()
    apart = {*prep.workload.frozen, *prep.workload.mutates}  # these have fingerprints, or steps have copies
    pristine = {key: clone(value) for key, value in prep.inputs.items() if key not in apart}
    expected = [leaf.to(prep.device) for leaf in prep.reference(prep.inputs | pristine)]  # a GPU compares faster
    if changed := prep.ranks.agree(prep.overwrote("the reference, or a thread beside it,")):
        raise VariantError("workload", Rejected(changed))
    return Trial(prep, when, pristine, expected, spoilt)


def prove(
    prep: Preparation, names: list[str], when: str, trials: int = 1, enough_s: float | None = None
) -> dict[str, list[Proof]]:
    """Prove the named variants on shared fresh inputs, each `trials` times or until it fails.

    After `enough_s` seconds no further trial is begun. Raises VariantError when the workload's own inputs or reference
    raise.
    """
    proofs: dict[str, list[Proof]] = {name: [] for name in names}
    started = now_s()
    for number in range(trials):
        linger = when == BEFORE and number == 0  # once for each preparation
        living = [name for name in names if not proofs[name] or proofs[name][-1].reason is None]
        long = number and enough_s is not None and prep.ranks.either(now_s() - started > enough_s)
        if not living or long:
            break
        prep.at("workload", "reference")
        trial = begin(prep, living, when)
        for name in living:
            prep.at(name, f"proof {when}")
            proofs[name].append(trial.of(name, linger=linger))
        trial.close()
        del trial  # and its answer, before the next is computed: that of ch20:train_step_8b has 11 GiB
    return proofs


def toothless(prep: Preparation) -> list[str]:
    """Corruptions of a right answer that the workload's tolerance accepts in each of TRIALS draws, as a proof would.

    One draw accuses no tolerance: two draws of one random number may lie near each other.
    """
    accepted = list[str]()
    for trial in range(TRIALS):
        stale = prep.reference(prep.inputs)
        prep.refill()
        found = teeth(prep.reference(prep.inputs), stale, prep.dtypes, prep.workload.tolerance)
        accepted = [name for name in found if not trial or name in accepted]
        if not accepted:
            return []
        prep.refill()
    return accepted


def aliased(prep: Preparation, output: list[Tensor]) -> str | None:
    """Why this output is refused, if it shares memory with an input."""
    for key, value in prep.inputs.items():
        storages = {leaf.untyped_storage().data_ptr() for leaf in tensors(value) if leaf.numel()}
        if any(leaf.untyped_storage().data_ptr() in storages for leaf in output):
            return f"the output shares memory with the input {key!r}"
    return None


def _copy_output(prep: Preparation, variant: Prepared, output: Output) -> list[Tensor]:
    """A copy enqueued right behind the step, so that work which escaped the step's stream is not in it."""
    found = read_files(output)
    variant.output, variant.returned, variant.files = leaves(found), output, files_in(output)
    if any(leaf.device.type != prep.device.type for leaf in variant.output):
        settle(prep.device)  # a copy to the host is done when the device is
    return in_order(found, [leaf.detach().to(prep.device, copy=True) for leaf in variant.output])


def _call_again(prep: Preparation, variant: Prepared) -> list[Tensor]:
    """The output of a second call on the same inputs, after one element of each output has been spoilt."""
    spots = random.Random(prep.seeds.getrandbits(48))  # one seed for all ranks, whose outputs may differ in shape
    for leaf in variant.output:
        if leaf.numel():
            spot = leaf.detach()
            for extent in leaf.shape:
                spot = spot[spots.randrange(extent)]
            poison([spot])
    poison_files(variant.files)
    for key in prep.workload.mutates:
        overwrite(variant.inputs[key], prep.inputs[key], key)
    settle(prep.device)
    second = _copy_output(prep, variant, variant.step())
    settle(prep.device)
    return second


def _equal(a: list[Tensor], b: list[Tensor]) -> bool:
    return len(a) == len(b) and all(map(same, a, b))


def _still_written(prep: Preparation, variant: Prepared, seen: list[Tensor], returned: float) -> bool:
    """Whether the output differs from what was `seen`, a while after the step had `returned` (in seconds)."""
    time.sleep(max(0.0, STALE_WRITE_S - (now_s() - returned)))  # comparing has taken some of that time
    settle(prep.device)
    found = read_files(variant.returned)
    now = [leaf.detach().to(prep.device) for leaf in leaves(found)]
    return not _equal(in_order(found, now), seen)
