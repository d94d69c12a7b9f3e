"""Which variants take part in a session, which are out and why: a failed proof, an exception, a crash."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from common.python.base.results import CONTROL, PairResult, Proof, VariantResult
from common.python.corpus.discovery import Pair, Variant


def new_row(pair: Pair, variant: Variant) -> VariantResult:
    """A row that says nothing against the variant, yet."""
    return VariantResult(
        name=variant.name,
        role=variant.role,
        label=variant.label,
        file=f"{pair.chapter}/{variant.path.name}{variant.name.removeprefix(variant.path.stem)}",
        sentence=variant.sentence,
        kinds=list(variant.kinds),
        status="proven",
    )


@dataclass
class Roster:
    """The variants of one session, with their rows in its result."""

    result: PairResult
    timed: list[Variant]  # can be timed here; the baseline first, if it is among them
    checked: list[Variant]  # are only proven here, at test size
    imported: list[Variant] = field(default_factory=list)  # are only imported here
    faults: list[tuple[str, str]] = field(default_factory=list)  # which variant (or "workload"), and why: each once

    @property
    def everybody(self) -> list[str]:
        return [variant.name for variant in (*self.timed, *self.checked)]

    def modules(self) -> dict[str, str]:
        """Module by name of all that take part, the control included."""
        modules = {variant.name: variant.module for variant in (*self.timed, *self.checked, *self.imported)}
        return modules | ({CONTROL: self.timed[0].module} if self._has_control() else {})

    def active(self) -> list[str]:
        """The variants to be timed now, the control last."""
        names = self.living(variant.name for variant in self.timed)
        return names + [CONTROL] * (self._has_control() and len(names) > 1)

    def living(self, names: Iterable[str]) -> list[str]:
        """Those of these names that have not failed."""
        return [name for name in names if self.row(name).status != "failed"]

    def nothing_left(self) -> bool:
        """Whether the baseline failed, or all that it was to be timed against."""
        names = [variant.name for variant in self.timed or self.checked]
        rivals = [variant.name for variant in self.timed[1:]]
        return not self.living(names[:1]) or (bool(rivals) and not self.living(rivals))

    def row(self, name: str) -> VariantResult:
        """The variant's row; the control has none of its own and shares the baseline's."""
        own = f"baseline_{self.result.name}" if name == CONTROL else name
        return next(variant for variant in self.result.variants if variant.name == own)

    def take_proofs(self, proofs: dict[str, list[dict[str, Any]]]) -> None:
        for name, found in proofs.items():
            row = self.row(name)
            row.proofs += [Proof(**proof) for proof in found]
            wrong = next((proof for proof in found if proof["reason"]), None)
            if wrong is not None:
                row.verdict = "invalid"
                self.exclude({name: f"wrong at {wrong['size']} size, {wrong['when']}: {wrong['reason']}"})

    def exclude(self, reasons: Mapping[str, str]) -> None:
        """These variants fail, each for its reason."""
        for name, reason in reasons.items():
            self.faults.append((name, reason))
            _fail(self.row(name), reason)

    def exclude_all(self, reason: str) -> None:
        """The workload itself is at fault, so no result of it can stand."""
        self.faults.append(("workload", reason))
        for row in self.result.variants:
            if row.status != "unsupported":
                row.verdict = "invalid"
                _fail(row, reason)

    def blame(self, name: str, reason: str) -> None:
        """The session ends here: the variant that was at work takes the reason, and so does the pair."""
        if name == CONTROL or any(row.name == name for row in self.result.variants):
            self.exclude({name: reason})
        else:
            self.faults.append((name, reason))
        self.result.status, self.result.reason = "failed", f"{name}: {reason}"

    def close(self, ranks: int = 0) -> None:
        """Say of each row that was not timed why: nothing is called proven without a proof.

        `ranks` is how many proved it, for a pair on several GPUs.
        """
        sound = bool(self.living(self.everybody[:1]))
        for row in map(self.row, self.everybody):
            if row.status == "proven" and not row.proofs:
                if self.result.reason is None and self.faults and sound:
                    self.result.reason = "{}: {}".format(*self.faults[0])  # its rivals are at fault, not the baseline
                _fail(row, f"not run: {self.result.reason or 'the baseline failed'}")
        for variant in self.checked:
            row = self.row(variant.name)
            if row.status == "proven":
                where = f" on {ranks} gloo ranks" if ranks else ""
                where = " in Triton's interpreter" if "Triton" in variant.kinds else where
                row.reason = f"proven{where} at test size; not timed"

    def _has_control(self) -> bool:
        return len(self.timed) > 1 and self.timed[0].role == "baseline"


def _fail(row: VariantResult, reason: str) -> None:
    row.status, row.reason = "failed", row.reason or reason
