"""Who takes part in a session, who is out and why. A proof that failed, an exception, a crash: each is a reason."""

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
        file=f"{pair.chapter}/{variant.path.name}",
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
    faults: list[tuple[str, str]] = field(default_factory=list)  # who (or "workload") is at fault, and why: each once

    @property
    def baseline_module(self) -> str:
        return f"{self.result.chapter}.baseline_{self.result.name}"

    @property
    def compares(self) -> bool:
        return len(self.timed) > 1 and self.timed[0].role == "baseline"

    @property
    def everybody(self) -> list[str]:
        return [variant.name for variant in (*self.timed, *self.checked)]

    def modules(self) -> dict[str, str]:
        """Module by name of all that take part, the control included."""
        modules = {variant.name: variant.module for variant in (*self.timed, *self.checked, *self.imported)}
        return modules | ({CONTROL: self.baseline_module} if self.compares else {})

    def active(self) -> list[str]:
        """Who is to be timed now."""
        failed = self._failed()
        names = [variant.name for variant in self.timed if variant.name not in failed]
        return names + [CONTROL] * (self.compares and len(names) > 1)

    def living(self, names: Iterable[str]) -> list[str]:
        """Those of these names that have not failed."""
        return [name for name in names if self.row(name).status != "failed"]

    def nothing_left(self) -> bool:
        """The baseline failed, or all that it was to be timed against."""
        failed, names = self._failed(), [variant.name for variant in self.timed or self.checked]
        rivals = [variant.name for variant in self.timed[1:]]
        return not names or names[0] in failed or (bool(rivals) and failed.issuperset(rivals))

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
                self.exclude(name, f"wrong at {wrong['size']} size, {wrong['when']}: {wrong['reason']}")

    def exclude(self, name: str, reason: str) -> None:
        self.faults.append((name, reason))
        self._fail(self.row(name), reason)

    def exclude_each(self, reasons: Mapping[str, str]) -> None:
        """Of the variants that are named, for the reason of each."""
        for name, reason in reasons.items():
            self.exclude(name, reason)

    def exclude_all(self, reason: str) -> None:
        """The workload itself is at fault, so no result of it can stand."""
        self.faults.append(("workload", reason))
        for row in self.result.variants:
            if row.status != "unsupported":
                row.verdict = "invalid"
                self._fail(row, reason)

    def blame(self, who: str, reason: str) -> None:
        """The session ends here: whoever was at work takes the reason, and so does the pair."""
        if any(row.name == who for row in self.result.variants) or who == CONTROL:
            self.exclude(who, reason)
        else:
            self.faults.append((who, reason))
        self.result.status = "failed"
        self.result.reason = f"{who}: {reason}"

    def close(self, ranks: int = 0) -> None:
        """Say of each row that was not timed why: nothing is called proven without a proof.

        `ranks` is how many proved it, for a pair on several GPUs.
        """
        failed = self._failed()
        for name in self.everybody:
            row = self.row(name)
            if row.status == "proven" and not row.proofs:
                if self.result.reason is None and self.faults and self.everybody[0] not in failed:
                    self.result.reason = "{}: {}".format(*self.faults[0])  # its rivals are at fault, not the baseline
                self._fail(row, f"not run: {self.result.reason or 'the baseline failed'}")
        for variant in self.checked:
            row = self.row(variant.name)
            if row.status == "proven":
                row.reason = f"proven {f'on {ranks} gloo ranks ' if ranks else ''}at test size; not timed"
                if "Triton" in variant.kinds:
                    row.reason = "proven in Triton's interpreter at test size; not timed"

    @staticmethod
    def _fail(row: VariantResult, reason: str) -> None:
        row.status, row.reason = "failed", row.reason or reason

    def _failed(self) -> set[str]:
        return {row.name for row in self.result.variants if row.status == "failed"}
