"""`verify`: check all that can be checked here, and count what cannot, with the reason.

A CPU proves a pair again only when something that its proof depends on has changed, or with `--again`.
"""

import contextlib
import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter

from common.python.base.lock import CPU, Claim
from common.python.base.machine import Machine
from common.python.base.paths import build_folder
from common.python.base.text import counted
from common.python.base.toolkit import ROOT
from common.python.build.compilation import TARGETS, compile_pairs
from common.python.build.record import Compiled
from common.python.corpus.discovery import Pair, Variant, select, survey
from common.python.report.live_view import SILENCE, LiveView
from common.python.requirements import Requirements, unmet
from common.python.run.proof_cache import note_of, take_note
from common.python.run.session import Session, Settings
from common.python.run.suite import PAIR_LIMIT_S
from common.python.run.variant_status import Roster, missing, new_result
from common.python.verify.static_checks import Check, Problem, check_results, check_sources, line_of
from common.python.workers.launch import ONE_HOST
from common.python.workers.parallel import at_once, room
from common.python.workers.process import open_machine

GPU_SHARE_GIB = 32.0  # of GPU memory for a pair at `bench` size with its float64 reference
SEED = 0  # the same inputs each time, so that only a change of code changes the outcome
ENDED = "another problem of its pair came first"
AT = re.compile(r"(.*?) at (\w+\.py):(\d+)(?:: (.*))?", re.DOTALL)  # a worker's exception, or its death
AUDIT = {"module": "common.python.verify.cost_audit", "function": "audit"}
CHECKS = TypeAdapter(tuple[Check, ...])


@dataclass(frozen=True)
class Place:
    """Where pairs are executed."""

    folder: Path  # for scratch files and logs
    machine: Machine
    device: str  # the GPU's name, or "cpu"
    whole: dict[str, Pair]  # all pairs of the tree, by key
    sound: set[Path]  # files that have no problem
    notes: Path | None = None  # on pairs that were proven before, where such proofs count

    def unready(self, pair: Pair, variant: Variant) -> str | None:
        """Why a variant cannot be imported here; None if it can."""
        baseline = self.whole[pair.key].baseline
        for whose, needed in (("its", variant), ("its baseline's", baseline)):
            if needed is None or needed.path not in self.sound:
                return f"{whose} source has a problem"
            modules = (*needed.required.modules, *["triton"] * ("Triton" in needed.kinds))
            if reasons := unmet(Requirements(modules=modules), self.machine):
                return "; ".join(reasons)
        return None

    def note(self, pair: Pair) -> Path | None:
        """The file of the checks that the pair, as it is, has passed here; None where such checks are not kept."""
        if self.notes is None:
            return None
        lacks = [self.unready(pair, v) or "; ".join(missing(pair, v, self.machine)) for v in pair.variants]
        return note_of(self.notes, pair, lacks)

    def of(self, pair: Pair) -> "Place":
        """The place for this pair: ranks that outnumber the GPUs are proven on CPUs."""
        if ONE_HOST.ranks_here(pair.gpus) <= len(self.machine.gpus):
            return self
        return replace(self, device=CPU, machine=replace(self.machine, gpus=[]))

    @property
    def jobs(self) -> int:
        """Pairs at a time: on a GPU they mostly wait for the host, but must fit into its memory."""
        if self.device == CPU:
            return self.machine.cores
        return max(1, min(room(self.machine), int(self.machine.gpus[0].memory_gib / GPU_SHARE_GIB)))

    def settings(self, pair: Pair) -> Settings:
        folder = self.folder / f"{pair.chapter}_{pair.name}"
        return Settings(
            folder=folder,
            scratch=folder / "scratch",
            size="bench",
            seed=SEED,
            device=self.device,
            time_limit_s=2 * PAIR_LIMIT_S,  # others are at work
            prove_at=("test",) if self.device == CPU else ("test", "bench"),
        )


@dataclass(frozen=True)
class Report:
    """What `verify` found, and the seconds it took."""

    checks: list[Check]
    pairs: int
    seconds: float
    unchanged: int = 0  # pairs that an earlier sweep proved, and that are as they were

    @property
    def problems(self) -> list[Problem]:
        return [problem for check in self.checks for problem in check.problems]

    @property
    def nothing_checked(self) -> bool:
        return not any(check.passed or check.problems for check in self.checks)


def verify(
    root: Path,
    targets: Sequence[str],
    build: bool = True,
    execute: bool = True,
    view: LiveView = SILENCE,
    claim: Claim = lambda uuid: None,
    again: bool = False,
) -> Report:
    """Check the pairs that the targets name, and their chapters; `claim` locks a GPU, `again` proves all anew.

    Raises TargetError for targets that name nothing and RuntimeError where no worker can be started.
    """
    started = time.monotonic()
    view.begin("starting")
    every, asked = survey(root, targets)
    whole, pairs = {pair.key: pair for pair in every}, select(every, asked)
    sources, sound = check_sources(pairs, whole)
    checks = [sources, *check_results({pair.chapter: pair.folder.path for pair in pairs})]
    for check in checks:
        _tell(view, check)
    unchanged = 0
    with tempfile.TemporaryDirectory(prefix="benchmark-", ignore_cleanup_errors=True) as scratch:
        if execute and pairs:
            # Threads that spin while they wait made several pairs at once take 11 to 27 s for 4.5, on 2 cores.
            os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
            machine, found = open_machine(root, Path(scratch), pairs)
            if found["device"] != CPU:
                claim(found["uuid"])
                for gpu in machine.gpus[1 : max(ONE_HOST.ranks_here(pair.gpus) for pair in pairs)]:
                    claim(gpu.uuid)
            notes = build_folder(ROOT) / "verified" if found["device"] == CPU else None
            place = Place(Path(scratch), machine, found["device"], whole, sound, notes)
            executed, unchanged = execute_pairs(pairs, place, view, again)
            checks += executed
        else:
            count = sum(len(pair.variants) for pair in pairs)
            checks += [Check(name, not_done=Counter({"--no-execute": count})) for name in ("imports", "proofs")]
            checks += [Check("costs", not_done=Counter({"--no-execute": len(pairs)}))]
        compilation = _tell(view, check_compilation(pairs, sound, build, view))
    return Report([*checks, compilation], len(pairs), time.monotonic() - started, unchanged)


def _tell(view: LiveView, check: Check) -> Check:
    for problem in (*check.warnings, *check.problems):
        view.tell(str(problem))
    return check


def _checks_of(pair: Pair, place: Place, view: LiveView, again: bool) -> tuple[tuple[Check, ...], bool]:
    """The checks of a pair, and whether an earlier sweep kept them: those of an unchanged one count, but not `again`.

    What has a problem or a warning is not kept, and earlier checks are discarded.
    """
    note = place.note(pair)
    with contextlib.suppress(OSError, ValueError):
        if note and not again:
            return CHECKS.validate_json(note.read_bytes()), True
    checks = execute_pair(pair, place, view)
    if note == place.note(pair):  # its files have not changed meanwhile
        sound = not any(check.problems or check.warnings for check in checks)
        take_note(note, CHECKS.dump_json(checks).decode() if sound else None)
    return checks, False


def execute_pairs(pairs: Sequence[Pair], place: Place, view: LiveView, again: bool) -> tuple[list[Check], int]:
    """Import and prove pairs and audit their costs, several at once; and how many of them have not changed.

    One that ran out of GPU memory beside others is executed again by itself.
    """
    whole, crowded, unchanged = [Check("imports"), Check("proofs"), Check("costs")], list[Pair](), 0

    def add(checks: Sequence[Check]) -> None:
        for check, more in zip(whole, checks):
            check.add(_tell(view, more))

    view.expect(len(pairs), "proofs")
    for pair, (checks, kept) in at_once(lambda pair: _checks_of(pair, place, view, again), pairs, place.jobs):
        view.end(pair.key)
        unchanged += kept
        messages = [problem.message for check in checks for problem in check.problems]
        if place.device != CPU and any("out of memory" in message for message in messages):
            crowded.append(pair)
        else:
            add(checks)
    for pair in crowded:
        add(execute_pair(pair, place, view))
    return whole, unchanged


def execute_pair(pair: Pair, place: Place, view: LiveView = SILENCE) -> tuple[Check, Check, Check]:
    """Import what can be imported here and prove what can run, at `test` size and on a GPU at `bench` size too.

    Where anything could be imported, the pair's cost is audited as well.
    """
    imports, proofs, costs, place = Check("imports"), Check("proofs"), Check("costs"), place.of(pair)
    found: dict[str, list[str]] = {}
    able: list[Variant] = []
    imported: list[Variant] = []
    for variant in pair.variants:
        if unready := place.unready(pair, variant):
            imports.not_done[unready] += 1
            proofs.not_done[unready] += 1
        elif reasons := missing(pair, variant, place.machine):
            proofs.not_done["; ".join(reasons)] += 1
            imported.append(variant)
        else:
            able.append(variant)
    if able or imported:
        result = new_result(pair.only({variant.name for variant in (*able, *imported)}), place.device)
        settings = replace(place.settings(pair), progress=lambda phase, _: view.begin(pair.key, phase))
        session = Session(pair, Roster(result, [], able, imported), settings)
        session.prove(then=lambda pool: found.update(pool.first("call", **AUDIT)))
        _count(session, imports, proofs)
        costs.problems = [_located(session, "workload", fault) for fault in dict.fromkeys(found.get("faults", []))]
        costs.not_done.update(dict.fromkeys(found.get("not_done", [ENDED]), 1))
    costs.passed = int(bool(found) and not costs.problems and not costs.not_done)
    return imports, proofs, costs


def _count(session: Session, imports: Check, proofs: Check) -> None:
    """Count what a session found. A fault is one problem; what could not be done because of it is not done."""
    roster, opened = session.roster, bool(session.facts)
    unloaded = set(session.facts["failures"]) if opened else {who for who, _ in roster.faults}
    for who, reason in roster.faults:
        (imports if who in unloaded else proofs).problems.append(_located(session, who, reason))
    count = len(roster.checked) + len(roster.imported)
    imports.passed += count - len(unloaded) if opened else 0
    imports.not_done[ENDED] += 0 if opened else count - len(unloaded)
    refused = {who for who, _ in roster.faults} - unloaded
    for variant in roster.checked:
        row = roster.row(variant.name)
        if row.status == "proven" and {proof.size for proof in row.proofs} == set(session.settings.prove_at):
            proofs.passed += 1
        elif variant.name not in refused:
            proofs.not_done[ENDED] += 1


def _located(session: Session, who: str, reason: str) -> Problem:
    """A fault with the line that raised, else that which states the tolerance or the cost, else `prepare`."""
    pair = session.pair
    stem = f"baseline_{pair.name}" if who == "workload" else who
    path = pair.folder.path / f"{stem}.py"
    if (at := AT.fullmatch(reason)) and path.with_name(at[2]).exists():
        return Problem(f"{pair.chapter}/{at[2]}", int(at[3]), ": ".join(filter(None, at.group(1, 4))))
    costs = "its cost" in reason
    name = "workload" if who == "workload" or costs else "prepare"
    line = line_of(path, name, "cost" if costs else "tolerance" if "tolerance" in reason else None)
    return Problem(f"{pair.chapter}/{path.name}", line, reason)


def check_compilation(pairs: Sequence[Pair], sound: set[Path], build: bool, view: LiveView) -> Check:
    """Compile the sound CUDA and Triton sources for every target; a spill is a warning."""
    check = Check("compilation")
    for pair in pairs:
        for variant in pair.variants:
            reason = "--no-build" if not build else "its source has a problem" if variant.path not in sound else ""
            if reason:
                check.not_done[reason] += len(TARGETS) * len({"CUDA", "Triton"} & set(variant.kinds))
    if not build:
        return check
    ready = [pair.only({v.name for v in pair.variants if v.path in sound}) for pair in pairs]
    failed: dict[tuple[str, int, str], list[str]] = {}
    for each in compile_pairs(ready, TARGETS, view=view):
        if each.status == "compiled":
            check.passed += 1
            told = (warning.removeprefix(f"{each.source}, ") for warning in each.warnings)
            check.warnings += [Problem(each.source, 1, f"warning: {warning}") for warning in told]
        elif each.status == "skipped":
            check.not_done[each.reason or "skipped"] += 1
        else:
            failed.setdefault((each.source, each.line or 1, _compiler_message(each)), []).append(each.arch)
    for (source, line, said), archs in failed.items():
        check.problems.append(Problem(source, line, f"does not compile for {', '.join(archs)}: {said}"))
    return check


def _compiler_message(failed: Compiled) -> str:
    """A compiler's message without the file, line and architecture, which the problem states already."""
    name = Path(failed.source).name
    said = (failed.reason or "").removeprefix(f"{name} does not compile for {failed.arch}: ")
    said = said.removeprefix(f"{failed.source}({failed.line}): ")
    at = AT.fullmatch(said)
    return ": ".join(filter(None, at.group(1, 4))) if at and at.group(2, 3) == (name, str(failed.line)) else said


def print_report(report: Report) -> None:
    """Print the counts by kind of check, then what could not be done, by reason."""
    print(f"{'check':<14}{'passed':>8}{'warnings':>10}{'problems':>10}{'not done':>10}")
    for check in report.checks:
        counts = (check.passed, len(check.warnings), len(check.problems), check.not_done.total())
        print("{:<14}{:>8}{:>10}{:>10}{:>10}".format(check.name, *counts))
    for check in report.checks:
        for reason, count in (+check.not_done).most_common():
            print(f"not done: {count} {check.name}: {reason}")
    if report.unchanged:
        print(f"{counted(report.unchanged, 'pair')} unchanged since last proven here: --again proves all once more")
    each = f", {report.seconds / report.pairs:.2f} s a pair" if report.pairs else ""
    print(f"{counted(report.pairs, 'pair')} in {report.seconds:.1f} s{each}")
