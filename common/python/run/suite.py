"""A suite: choose what can run here, run each pair's session, write each result as it comes, sum up."""

import json
import math
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import cached_property, partial
from pathlib import Path
from typing import cast

from common.python.base import journal, lock, manifest
from common.python.base.interrupt import alarm
from common.python.base.journal import write
from common.python.base.machine import Machine
from common.python.base.results import Manifest, PairResult, Summary
from common.python.base.toolkit import nvcc_version
from common.python.base.topology import topology_of
from common.python.corpus.discovery import Pair, Variant, choose
from common.python.corpus.targets import TargetError
from common.python.performance_targets import Peaks
from common.python.report.markdown import pair_markdown, summary_csv, summary_markdown
from common.python.run import resume
from common.python.run.eligibility import assign, chosen_size, compile_ahead, idle
from common.python.run.external_profilers import profile
from common.python.run.last_run import LastRun
from common.python.run.node_follower import follow
from common.python.run.options import Options
from common.python.run.peak_survey import Say, aloud, peaks_for_run
from common.python.run.prebuild import Ahead
from common.python.run.probe import open_machine
from common.python.run.proof_cache import Notes, RunNote
from common.python.run.session import Session
from common.python.run.settings import TIME_UP, Settings, SuiteTimeUp
from common.python.run.turns import Turns
from common.python.run.variant_status import Roster
from common.python.stats.verdict import failed, lacked_memory
from common.python.timing.telemetry import Monitor
from common.python.workers.members import Crowded, Ended
from common.python.workers.sharing import Share, Sharing

PAIR_LIMIT_S = 120.0
INTERRUPTED = "Ctrl-C"  # why a pair was not run
CLOSING_S = 2.0  # of a suite's time, for ending its workers and beginning its report
CLOSING_SHARE = 0.25  # at most
REPORT_S = 0.04  # and for each pair in the report
Show = Callable[[str, PairResult], None]


@dataclass
class Suite:
    """A run in progress. `run` goes through the pairs; what is done is on disk after each."""

    options: Options
    pairs: list[Pair]
    folder: Path
    machine: Machine
    device: str  # the GPU's name, or "cpu"
    uuid: str | None
    peaks: Peaks | None
    seed: int
    show: Show
    manifest: Manifest
    results: list[PairResult] = field(default_factory=list)
    deadline: float = math.inf  # a monotonic time
    best_pace_us: float | None = None  # of the host, so far; at first what a quiet core may take
    asked_to_stop: Callable[[], bool] = lambda: False
    failed: bool = False  # a pair of this run, not of one that it goes on with
    scratch: Path = field(init=False)  # for temporary files, while it runs
    sharing: Sharing = field(default_factory=Sharing)  # of the machine, by sessions

    @cached_property
    def notes(self) -> Notes:
        """On what was proven before."""
        return Notes(self.options.root)

    def run(self) -> Summary:
        """Run what is missing. Raises OSError, naming the file, where a result cannot be written."""
        started, stopped = time.monotonic(), None
        turns = Turns([pair for pair in self.pairs if not self.done(pair)], self.options, self.machine)
        with tempfile.TemporaryDirectory(prefix="benchmark-", ignore_cleanup_errors=True) as scratch:
            self.scratch = Path(scratch)
            try:
                stopped = self._run_pairs(turns)
            except KeyboardInterrupt as error:
                stopped = str(error) or INTERRUPTED
            finally:
                self.sharing.close()
                turns.runs.keep()
        not_run = {pair.key: stopped or "" for pair in self.pairs if not self.done(pair)}
        places = {pair.key: place for place, pair in enumerate(self.pairs)}
        in_order = sorted(self.results, key=lambda result: places.get(result.key, -1))
        summary = Summary(
            manifest=self.manifest,
            finished=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            seconds=time.monotonic() - started,
            complete=not not_run,
            interrupted=stopped == INTERRUPTED or self.asked_to_stop(),
            not_run=not_run,
            pairs=[result.model_copy(update={"blocks": []}) for result in in_order],
        )
        write(self.folder / "summary.json", summary.model_dump_json(indent=1))
        write(self.folder / "summary.md", summary_markdown(summary))
        write(self.folder / "summary.csv", summary_csv(summary))
        return summary

    def note_clocks(self, told: str) -> None:
        """Keep with the run what became of --lock-clocks."""
        self.manifest = self.manifest.model_copy(update={"clocks": told})
        write(self.folder / "manifest.json", self.manifest.model_dump_json(indent=1))

    def _run_pairs(self, turns: Turns) -> str | None:
        """As many side by side as there is room for; why the rest was not run."""
        while True:
            while (stopped := self._stopped()) is None and (pair := turns.next()):
                self.sharing.start(partial(self._perform, pair), turns.lingers)
            if not turns.at_work:
                return stopped
            try:
                pair, run = cast("tuple[Pair, LastRun | None]", self.sharing.next(self._last_moment()))
            except TimeoutError:
                who = self.sharing.who()
                return TIME_UP + f" while {' and '.join(who)} {'were' if len(who) > 1 else 'was'} at work" * bool(who)
            turns.ended(pair, run)

    def _perform(self, pair: Pair, share: Share) -> tuple[Pair, LastRun | None]:
        """In a thread of its own: keep a pair's result; what its run took, or None if it is to run again, by itself."""
        began_s = time.monotonic() - share.lost_s
        try:
            result = self._run_pair(pair, share)
        except Crowded:
            return pair, None
        if self.sharing.ended:
            raise Ended
        if share.beside and lacked_memory(result):
            return pair, None
        self._keep(result, pair)
        return pair, LastRun(time.monotonic() - share.lost_s - began_s, share.gib)

    def _stopped(self) -> str | None:
        """Why no further pair is to be started, if none is."""
        if self.asked_to_stop():
            return INTERRUPTED
        if time.monotonic() >= self._last_moment():
            return TIME_UP
        return "--fail-fast" if self.options.fail_fast and self.failed else None

    def _last_moment(self) -> float:
        """When pairs must have ended, so that the report of all is written in time."""
        return self.deadline - REPORT_S * len(self.results)

    def done(self, pair: Pair) -> bool:
        """Whether the run that is resumed has this pair, with these very files."""
        files = {variant.name for variant in pair.variants}
        return any(r.key == pair.key and {row.name for row in r.variants} == files for r in self.results)

    def _run_pair(self, pair: Pair, share: Share) -> PairResult:
        result, timed, checked = self._opened(pair)
        self.show("start", result)
        if not timed and not checked:
            return result
        settings, note = self._noted(pair, timed, checked)
        settings = replace(settings, share=share)
        try:
            if self.options.launch.follows:
                return follow(pair, result, settings)
            session = Session(pair, Roster(result, timed, checked), settings, result)
            done = profile(session.run(), pair, settings)
            if note and (session.roster.faults or not settings.proven):
                note.write(sound=not session.roster.faults)
            if settings.proven and done.blocks:
                done.notes.append(f"proven at test size at {settings.proven}, as it is now, and not again: --quick")
            return done
        finally:
            shutil.rmtree(settings.scratch, ignore_errors=True)

    def _noted(
        self, pair: Pair, timed: Sequence[Variant], checked: Sequence[Variant]
    ) -> tuple[Settings, RunNote | None]:
        """Its settings, with what is noted of it where that is to stand, and where that is to be noted."""
        settings, note = self._settings(pair), self._note(pair, timed) if timed and not checked else None
        return replace(settings, proven=note.read()) if note and self.options.quick else settings, note

    def _note(self, pair: Pair, timed: Sequence[Variant]) -> RunNote | None:
        """The note that these variants, as they are, were proven on this device; None where a file cannot be read."""
        about, names = self.manifest, [variant.name for variant in timed]
        how = (about.versions.get("nvcc"), about.environment, self.options.reproducible)
        here = (self.device, self.machine.driver, self.options.launch.ranks(pair.gpus), *how, *names)
        try:
            return self.notes.of_run(pair, map(str, here), self.options.artifacts_dir / "proven")
        except (OSError, SyntaxError):  # which its session will tell of
            return None

    def _opened(self, pair: Pair) -> tuple[PairResult, list[Variant], list[Variant]]:
        """Its row, whom to time and whom to prove only: nobody where the row is all that there is to it."""
        result = PairResult(chapter=pair.chapter, name=pair.name, status="unsupported", device=self.device)
        result.best_pace_us = self.best_pace_us
        timed, checked, result.variants = assign(pair, self.machine, self._gpu(), self.options.launch)
        if pair.variants and not (pair.variants[0].path.parent / f"baseline_{pair.name}.py").exists():
            return result.model_copy(update={"status": "failed", "reason": f"no baseline_{pair.name}.py"}), [], []
        return result if timed or checked else idle(result), timed, checked

    def _settings(self, pair: Pair) -> Settings:
        return Settings(
            root=self.options.root,
            folder=self._folder_of(pair),
            scratch=self.scratch / f"{pair.chapter}_{pair.name}",
            size=chosen_size(self.options.size, self._gpu()),
            seed=self.seed,
            device=self.device,
            budget_s=self.options.budget_s,
            time_limit_s=PAIR_LIMIT_S * self.options.timeout_multiplier,
            suite_deadline=self._last_moment(),
            iterations=self.options.iterations,
            warmup=self.options.warmup,
            reproducible=self.options.reproducible,
            cold_start=self.options.cold_start,
            profile=self.options.profile,
            peaks=self.peaks,
            monitor=Monitor.open(self.uuid) if self.uuid else None,
            further_monitors=self._further_monitors(pair),
            launch=self.options.launch,
            progress=self.show,
            earlier=lambda: self.results,
        )

    def _further_monitors(self, pair: Pair) -> tuple[Monitor, ...]:
        gpus = self.machine.gpus[1 : self.options.launch.ranks_here(pair.gpus)]
        return tuple(monitor for gpu in gpus if (monitor := Monitor.open(gpu.uuid)) is not None)

    def _gpu(self) -> bool:
        return self.device != "cpu"

    def _folder_of(self, pair: Pair) -> Path:
        return self.folder / f"{pair.chapter}_{pair.name}"

    def _keep(self, result: PairResult, pair: Pair) -> None:
        """Write the pair's files, then one synced line in the journal: what the journal names is whole."""
        folder = self._folder_of(pair)
        config = {"pair": pair.key, "literals": pair.literals, "options": self.manifest.options, "seed": self.seed}
        write(folder / "config.json", json.dumps(config, indent=1, default=str))
        write(folder / "results" / "benchmark_test_results.json", result.model_dump_json(indent=1))
        write(folder / "results" / "benchmark_test_results.md", pair_markdown(result))
        journal.append(self.folder, result)
        self.results = [kept for kept in self.results if kept.key != result.key] + [result]
        self.failed, self.best_pace_us = self.failed or failed(result), result.best_pace_us or self.best_pace_us
        self.show("done", result)


def open_suite(
    options: Options, show: Show, say: Say = aloud, claim: lock.Claim = lock.unclaimed, began: float | None = None
) -> Suite:
    """Find the pairs, look at the machine, make the artifacts folder, and on a GPU have its peaks, measured if need be.

    `say` hears where the peaks are from, and what of a resumed run is measured anew; `claim` takes the device's lock;
    the suite's time is counted from `began`, a monotonic time, or from now.
    Raises TargetError for targets that name nothing, OSError for a folder that cannot be written, ValueError for a run
    that cannot be gone on with, PeakFileError for stored peaks that cannot be read, and SuiteTimeUp.
    """
    deadline = math.inf
    if options.suite_timeout is not None:
        closing_s = min(CLOSING_S, CLOSING_SHARE * options.suite_timeout)
        deadline = (began or time.monotonic()) + options.suite_timeout - closing_s
    pairs = choose(options.root, options.targets)
    if not pairs:
        raise TargetError("no pairs to run")
    seed = options.seed if options.seed is not None else 0 if options.reproducible else random.randrange(2**31)
    if options.resume and options.seed is None:
        seed = resume.earlier_seed(options.resume) or 0
    folder = options.resume or options.artifacts_dir / datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S.%fZ")
    folder.mkdir(parents=True, exist_ok=True)
    if options.reproducible:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    with alarm(deadline, SuiteTimeUp(f"{TIME_UP} before a worker had started")):  # the forkserver imports torch first
        machine, found = open_machine(options.root, folder, pairs)
    claim(found.get("uuid"))
    for gpu in machine.gpus[1 : max(options.launch.ranks_here(pair.gpus) for pair in pairs)]:
        claim(gpu.uuid)
    files = [variant.path for pair in pairs for variant in pair.variants]
    sources, links = manifest.sources_of(files), topology_of([gpu.uuid for gpu in machine.gpus])
    about = manifest.collect(
        options.targets, options.told(), sources, seed, host=machine, nvcc=nvcc_version(), topology=links
    )
    done, about = resume.go_on(folder, about, say) if options.resume else ([], about)
    write(folder / "manifest.json", about.model_dump_json(indent=1))
    journal.begin(folder)
    peaks = peaks_for_run(manifest.ROOT, options.artifacts_dir, folder, machine, found, say, deadline, options.survey)
    suite = Suite(options, pairs, folder, machine, found["device"], found.get("uuid"), peaks, seed, show, about)
    suite.results, suite.deadline, suite.best_pace_us = done, deadline, found.get("quiet_pace_us")
    with alarm(deadline, SuiteTimeUp(f"{TIME_UP} while pairs were compiled")):
        missing = [pair for pair in pairs if not suite.done(pair)]
        compile_ahead(missing, machine, found["device"] != "cpu", options.launch, say)
        if not options.cold_start:
            place, limit_s = (options.root, machine, options.size), PAIR_LIMIT_S * options.timeout_multiplier
            Ahead(*place, seed, options.reproducible, limit_s, deadline).compile(missing, options.launch, say)
    return suite
