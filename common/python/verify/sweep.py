"""`verify`: check all that can be checked here, and count what cannot, with the reason.

A CPU proves a pair again only when something that its proof depends on has changed, or with `--again`.
"""

import contextlib
import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

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
from common.python.verify.static_checks import Finding, check_results, check_sources, line_of
from common.python.workers.launch import ONE_HOST
from common.python.workers.parallel import at_once, room
from common.python.workers.process import open_machine

GPU_SHARE_GIB = 32.0  # of GPU memory for a pair at `bench` size with its float64 reference
SEED = 0  # the same inputs each time, so that only a change of code changes the outcome
ENDED = "another problem of its pair came first"
AT = re.compile(r"(.*?) at (\w+\.py):(\d+)(?:: (.*))?", re.DOTALL)  # a worker's exception, or its death
AUDIT = {"module": "common.python.verify.cost_audit", "function": "audit"}
CHECKS = ("sources", "expectations", "README tables", "imports", "proofs", "costs", "compilation")
FINDINGS = TypeAdapter(list[Finding])


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
        """The file that notes which checks this pair has passed; None where no notes are kept."""
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


class Report(NamedTuple):
    """What `verify` found, of how many pairs, and the seconds it took."""

    findings: list[Finding]
    pairs: int
    seconds: float


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
    started, findings = time.monotonic(), list[Finding]()

    def keep(found: Iterable[Finding]) -> None:
        for one in found:
            findings.append(one)
            if one.outcome in ("warning", "problem"):
                view.tell(str(one))

    view.begin("starting")
    every, asked = survey(root, targets)
    whole, pairs = {pair.key: pair for pair in every}, select(every, asked)
    sources, sound = check_sources(pairs, whole)
    keep(sources)
    keep(check_results({pair.chapter: pair.folder.path for pair in pairs}))
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
            keep(execute_pairs(pairs, place, view, again))
        else:
            each = [check for pair in pairs for check in ("costs", *("imports", "proofs") * len(pair.variants))]
            keep(Finding(check, "not done", "--no-execute") for check in each)
        keep(check_compilation(pairs, sound, build, view))
    return Report(findings, len(pairs), time.monotonic() - started)


def _findings_of(pair: Pair, place: Place, view: LiveView, again: bool) -> list[Finding]:
    """Those of an earlier sweep where the pair is unchanged since, but not `again`; else what executing it gives."""
    note = place.note(pair)
    with contextlib.suppress(OSError, ValueError):
        if note and not again:
            return [*FINDINGS.validate_json(note.read_bytes()), Finding("pairs", "unchanged")]
    findings = execute_pair(pair, place, view)
    if note == place.note(pair):  # its files have not changed meanwhile
        sound = not any(one.outcome in ("warning", "problem") for one in findings)
        take_note(note, FINDINGS.dump_json(findings).decode() if sound else None)  # None removes an earlier one
    return findings


def execute_pairs(pairs: Sequence[Pair], place: Place, view: LiveView, again: bool) -> Iterator[Finding]:
    """Import and prove pairs and audit their costs, several at once."""
    crowded = list[Pair]()  # they ran out of GPU memory beside others, and are executed again by themselves
    view.expect(len(pairs), "proofs")
    for pair, findings in at_once(lambda pair: _findings_of(pair, place, view, again), pairs, place.jobs):
        view.end(pair.key)
        full = any(one.outcome == "problem" and "out of memory" in one.message for one in findings)
        if full and place.device != CPU:
            crowded.append(pair)
        else:
            yield from findings
    for pair in crowded:
        yield from execute_pair(pair, place, view)


def execute_pair(pair: Pair, place: Place, view: LiveView = SILENCE) -> list[Finding]:
    """Import what can be imported here, audit its cost, and prove what can run: at `test`, on a GPU also at `bench`."""
    place, findings, audit = place.of(pair), list[Finding](), dict[str, list[str]]()
    able, imported = list[Variant](), list[Variant]()
    for variant in pair.variants:
        if unready := place.unready(pair, variant):
            findings += [Finding(check, "not done", unready) for check in ("imports", "proofs")]
        elif reasons := missing(pair, variant, place.machine):
            findings.append(Finding("proofs", "not done", "; ".join(reasons)))
            imported.append(variant)
        else:
            able.append(variant)
    if not able and not imported:
        return findings
    result = new_result(pair.only({variant.name for variant in (*able, *imported)}), place.device)
    settings = replace(place.settings(pair), progress=lambda phase, _: view.begin(pair.key, phase))
    session = Session(pair, Roster(result, [], able, imported), settings)
    session.prove(then=lambda pool: audit.update(pool.first("call", **AUDIT)))
    findings += _proofs(session)
    costs = [_located(session, "costs", "workload", fault) for fault in dict.fromkeys(audit.get("faults", []))]
    costs += [Finding("costs", "not done", why) for why in audit.get("not_done", [ENDED])]
    return findings + (costs or [Finding("costs", "passed")])


def _proofs(session: Session) -> Iterator[Finding]:
    """What a session found. A fault is one problem; what could not be done because of it is not done."""
    roster, opened = session.roster, bool(session.facts)
    faulty = {who for who, _ in roster.faults}
    unloaded = set(session.facts["failures"]) if opened else faulty
    for who, reason in roster.faults:
        yield _located(session, "imports" if who in unloaded else "proofs", who, reason)
    rest = Finding("imports", "passed") if opened else Finding("imports", "not done", ENDED)
    yield from [rest] * (len(roster.checked) + len(roster.imported) - len(unloaded))
    for variant in roster.checked:
        row = roster.row(variant.name)
        if row.status == "proven" and {proof.size for proof in row.proofs} == set(session.settings.prove_at):
            yield Finding("proofs", "passed")
        elif variant.name not in faulty - unloaded:
            yield Finding("proofs", "not done", ENDED)


def _located(session: Session, check: str, who: str, reason: str) -> Finding:
    """A fault with the line that raised, else that which states the tolerance or the cost, else `prepare`."""
    pair = session.pair
    stem = f"baseline_{pair.name}" if who == "workload" else who
    path = pair.folder.path / f"{stem}.py"
    if (at := AT.fullmatch(reason)) and path.with_name(at[2]).exists():
        message = ": ".join(filter(None, at.group(1, 4)))
        return Finding(check, "problem", message, f"{pair.chapter}/{at[2]}", int(at[3]))
    costs = "its cost" in reason
    name = "workload" if who == "workload" or costs else "prepare"
    line = line_of(path, name, "cost" if costs else "tolerance" if "tolerance" in reason else None)
    return Finding(check, "problem", reason, f"{pair.chapter}/{path.name}", line)


def check_compilation(pairs: Sequence[Pair], sound: set[Path], build: bool, view: LiveView) -> Iterator[Finding]:
    """Compile the sound CUDA and Triton sources for every target; a spill is a warning."""
    for variant in (variant for pair in pairs for variant in pair.variants):
        if not build or variant.path not in sound:
            reason = "its source has a problem" if build else "--no-build"
            count = len(TARGETS) * len({"CUDA", "Triton"} & set(variant.kinds))
            yield from [Finding("compilation", "not done", reason)] * count
    ready = [pair.only({v.name for v in pair.variants if v.path in sound}) for pair in pairs if build]
    failed: dict[tuple[str, int], list[Compiled]] = {}
    for each in compile_pairs(ready, TARGETS, view=view) if build else ():
        if each.status == "compiled":
            yield Finding("compilation", "passed")
            for warning in each.warnings:
                said = f"warning: {warning.removeprefix(f'{each.source}, ')}"
                yield Finding("compilation", "warning", said, each.source)
        elif each.status == "skipped":
            yield Finding("compilation", "not done", each.reason or "skipped")
        else:
            failed.setdefault((each.source, each.line or 1), []).append(each)
    for (source, line), those in failed.items():
        archs = ", ".join(each.arch for each in those)
        yield Finding("compilation", "problem", f"for {archs}: {those[0].reason}", source, line)


def print_report(report: Report) -> None:
    """Print the counts by kind of check, then what could not be done, by reason."""
    counts = Counter((one.check, one.outcome) for one in report.findings)
    print(f"{'check':<14}{'passed':>8}{'warnings':>10}{'problems':>10}{'not done':>10}")
    for check in CHECKS:
        own = (counts[check, outcome] for outcome in ("passed", "warning", "problem", "not done"))
        print("{:<14}{:>8}{:>10}{:>10}{:>10}".format(check, *own))
    for check in CHECKS:
        reasons = Counter(one.message for one in report.findings if one[:2] == (check, "not done"))
        for reason, count in reasons.most_common():
            print(f"not done: {count} {check}: {reason}")
    if unchanged := counts["pairs", "unchanged"]:
        print(f"{counted(unchanged, 'pair')} unchanged since last proven here: --again proves all once more")
    each = f", {report.seconds / report.pairs:.2f} s a pair" if report.pairs else ""
    print(f"{counted(report.pairs, 'pair')} in {report.seconds:.1f} s{each}")
