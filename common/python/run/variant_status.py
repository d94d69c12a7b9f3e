"""Which variants of a pair take part: who can be timed here, who only proven or compiled, who is out, and why.

That is known in part ahead of all timing; a failed proof, an exception or a crash excludes a variant later.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from common.python.base.lock import CPU
from common.python.base.machine import Machine
from common.python.base.results import CONTROL, PairResult, Proof, VariantResult
from common.python.base.toolkit import find_nvcc
from common.python.corpus.discovery import Pair, Variant
from common.python.cuda import CudaError, compile_source
from common.python.requirements import arch_of, unmet
from common.python.workers.launch import ONE_HOST, Launch
from common.python.workers.parallel import at_once


def assign(pair: Pair, machine: Machine, device: str, launch: Launch = ONE_HOST) -> "Roster":
    """Who can be timed here, who can only be proven, and a row for each, with the reason where it is neither."""
    result, gpu = new_result(pair, device), device != CPU
    timed, checked, rows = [], [], result.variants
    for variant, row in zip(pair.variants, rows):
        reasons = missing(pair, variant, machine, launch)
        if variant.problem:
            row.status, row.reason = "failed", variant.problem
        elif "CUDA" in variant.kinds and not gpu and (arch := _arch(variant, machine, gpu)):
            row.status, row.reason = built(variant, arch)
        elif reasons:
            row.status, row.reason = "unsupported", "; ".join(reasons)
        elif ("Triton" in variant.kinds or pair.gpus > 1) and not gpu:
            checked.append(variant)
        else:
            timed.append(variant)
    compared = pair.baseline is not None and len(pair.variants) > 1  # else single files were named
    comparable = any(v.role == "baseline" for v in timed) and any(v.role == "optimized" for v in timed)
    if compared and not comparable:
        timed, checked = [], timed + checked
    if compared and pair.baseline not in timed + checked:  # nothing tells which dtypes the others should return
        for row in (row for row in rows if row.status == "proven"):
            row.status, row.reason = "unsupported", "its baseline cannot run here"
        timed, checked = [], []
    if not (pair.folder.path / f"baseline_{pair.name}.py").exists():
        result.status, result.reason, timed, checked = "failed", f"no baseline_{pair.name}.py", [], []
    elif not timed and not checked:
        result.status, result.reason = rows[0].status, rows[0].reason
    return Roster(result, timed, sorted(checked, key=pair.variants.index))


def missing(pair: Pair, variant: Variant, machine: Machine, launch: Launch = ONE_HOST) -> list[str]:
    """Why a variant cannot run here, a phrase each; empty if it can."""
    return list(dict.fromkeys(unmet(variant.required, machine) + launch.unmet(pair, machine)))


def built(variant: Variant, arch: str) -> tuple[Any, str]:
    """Compile a CUDA variant: where it cannot run, its status and what to say of it."""
    if find_nvcc() is None and "NVCC" not in os.environ:  # if it is set and wrong, compiling says so
        return "unsupported", "needs a GPU; not compiled either, since there is no nvcc"
    try:
        compile_source(variant.path.with_suffix(".cu"), arch)
    except (CudaError, OSError) as error:
        return "failed", str(error)
    return "built", f"compiled for {arch}, not run: needs a GPU"


def compile_cuda(pairs: Sequence[Pair], machine: Machine, gpu: bool, launch: Launch, deadline: float) -> None:
    """Compile the .cu files that these pairs will ask for, as many at once as there are cores.

    A file that does not compile is reported by its pair, which tries again. Raises TimeoutError at `deadline`, a
    monotonic time.
    """
    variants = [] if launch.follows else [v for pair in pairs for v in pair.variants if "CUDA" in v.kinds]
    asked = {variant.path: (variant, arch) for variant in variants if (arch := _arch(variant, machine, gpu))}
    for _ in at_once(lambda one: built(*one), list(asked.values()), os.cpu_count() or 1, deadline):
        pass


def _arch(variant: Variant, machine: Machine, gpu: bool) -> str | None:
    """What a CUDA variant is compiled for: the GPU, or without one the first that it is for; None if it lacks more."""
    required = variant.required
    without_gpu = replace(required, gpus=0, sm=0, targets=(), memory_gib=0.0)
    if unmet(required if gpu else without_gpu, machine):
        return None
    if gpu:
        return arch_of(machine.gpus[0].sm)
    return required.targets[0] if required.targets else f"sm_{required.sm or 80}"


def new_result(pair: Pair, device: str) -> PairResult:
    """A result whose rows say nothing against the variants, yet."""
    rows = [
        VariantResult(
            name=variant.name,
            role=variant.role,
            label=variant.label,
            file=f"{pair.chapter}/{variant.path.name}{variant.name.removeprefix(variant.path.stem)}",
            sentence=variant.sentence,
            kinds=list(variant.kinds),
            status="proven",
        )
        for variant in pair.variants
    ]
    result = PairResult(chapter=pair.chapter, name=pair.name, status="unsupported", device=device, variants=rows)
    result.notes += pair.notes
    return result


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
        """The variants to be timed now."""
        return self.living(variant.name for variant in self.timed)

    def with_control(self) -> list[str]:
        """The same with the control, which is the baseline's own code: it is timed, and neither proven nor profiled."""
        names = self.active()
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
        first = ": ".join(self.faults[0]) if self.faults else "there was nothing to prove it with"
        for row in map(self.row, self.everybody):
            if row.status == "proven" and not row.proofs:
                _fail(row, f"not run: {self.result.reason or first}")
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
