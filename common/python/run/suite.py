"""A suite: prove its pairs, as many at once as there is room for, and time one after the other."""

import contextlib
import json
import math
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from common.python.base import journal, manifest
from common.python.base.interrupt import SuiteTimeUp, alarm
from common.python.base.lock import CPU, Claim
from common.python.base.machine import Machine
from common.python.base.results import Manifest, PairResult, Summary
from common.python.base.safe_read import read_model
from common.python.base.toolkit import ROOT
from common.python.build.compilation import files_of
from common.python.corpus.discovery import Pair, Variant, select, survey
from common.python.corpus.targets import TargetError
from common.python.peaks.survey import Say, aloud, peaks_for_run
from common.python.performance_targets import Peaks
from common.python.profile.nsight import profile
from common.python.report import markdown, templates
from common.python.report.artifacts import RESULTS
from common.python.run import resume
from common.python.run.options import Measuring, Options
from common.python.run.proof_cache import note_of, take_note
from common.python.run.session import APART, Session, Settings
from common.python.run.variant_status import assign, compile_cuda
from common.python.stats.verdict import lacked_memory
from common.python.timing.telemetry import Monitor
from common.python.workers.parallel import at_once, room
from common.python.workers.process import open_machine

PAIR_LIMIT_S = 120.0
TIME_UP = "the suite's time was up"
INTERRUPTED = "Ctrl-C"  # why a pair was not run
CLOSING_S, REPORT_S = 2.0, 0.04  # of a suite's time, for ending its workers, and for each pair in its report
CLOSING_SHARE = 0.25  # of a suite's time, for both at most
PROVING_SHARE = 0.5  # of a suite's time, at most
LARGE_GIB = 24.0  # a variant that needs more of a GPU is compiled while nothing else is at work
Show = Callable[[str, PairResult], None]


@dataclass(eq=False)
class Task:
    """A pair of this suite, from its first proof to its row."""

    pair: Pair
    session: Session
    note: Path | None  # of when it was last proven at `test` size and compiled
    unbuilt: list[Variant]  # variants to compile at the size that is timed
    crowded: bool = False  # it ran out of memory beside others, which is no fault of its own

    @property
    def alone(self) -> bool:
        """Whether it must be proven and compiled while nothing else is at work."""
        large = any(v.required.memory_gib > LARGE_GIB or v.autotunes for v in self.unbuilt)
        return self.crowded or self.pair.gpus > 1 or large


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
    deadline: float = math.inf  # when pairs must have ended, a monotonic time
    best_pace_us: float | None = None  # of the host, so far; at first as the worker that told of the machine found it
    asked_to_stop: Callable[[], bool] = lambda: False
    failed: bool = False  # a pair of this run, not of one that it goes on with
    scratch: Path = field(init=False)  # for temporary files, while it runs

    def run(self) -> Summary:
        """Prove pairs, time one after the other, sum up. Raises OSError, naming a file that cannot be written."""
        started, stopped = time.monotonic(), None
        with tempfile.TemporaryDirectory(prefix="benchmark-", ignore_cleanup_errors=True) as scratch:
            self.scratch = Path(scratch)
            try:
                for task in self._ready():
                    if stopped := self._stopped():
                        break
                    stopped = self.time(task)
                stopped = stopped or self._stopped()
            except KeyboardInterrupt as error:
                stopped = str(error) or INTERRUPTED
        return self._sum_up(stopped, time.monotonic() - started)

    # Prove.

    def _ready(self) -> Iterator[Task]:
        """The pairs to time: once all are proven or, with room for one at a time, each as soon as it is."""
        pairs = [pair for pair in self.pairs if not self.done(pair)]
        for group in [pairs] if self._jobs() > 1 else [[pair] for pair in pairs]:
            if self._stopped():
                return
            yield from self.prove(group)

    def prove(self, pairs: Sequence[Pair]) -> list[Task]:
        """Prove these pairs at `test` size and compile what they time; the tasks that are left to be timed.

        All at once as far as there is room, then one by one those that must be alone.
        """
        left, deadline = list[Task](), time.monotonic() + PROVING_SHARE * (self.deadline - time.monotonic())
        with contextlib.suppress(TimeoutError):  # what is not proven by then is not run
            compile_cuda(pairs, self.machine, self.device != CPU, self.options.launch, self.deadline)
            tasks = [task for pair in pairs if (task := self._task(pair))]
            if self.options.launch.nnodes > 1:  # the hosts go through the pairs together, one by one
                return tasks
            left += [task for task in tasks if not task.session.settings.prove_at]
            work = [task for task in tasks if task not in left]
            for alone, jobs in ((False, self._jobs()), (True, 1)):
                group = [task for task in work if task.alone is alone]
                with contextlib.closing(at_once(self._prove, group, jobs, deadline)) as proofs:
                    for task, result in proofs:
                        left += [task] if result and self._is_left(task, result) else []
        return sorted(left, key=lambda task: pairs.index(task.pair))

    def _task(self, pair: Pair) -> Task | None:
        """What is to be done for a pair; None where nothing of it can run here, and its row is kept."""
        session = self._session(pair)
        roster = session.roster
        if not roster.everybody:
            self._keep(session.result, pair)
            return None
        note = self._note(pair, roster.timed)
        noted = note is not None and os.path.exists(note)  # False where nothing may be read
        if noted and self.options.quick and not roster.checked:
            session.settings = replace(session.settings, prove_at=())
            session.result.notes.append("--quick: not proven at test size again: an earlier run did")
        builds = pair.gpus == 1 and not self.options.cold_start and not noted
        return Task(pair, session, note, [variant for variant in roster.timed if variant.compiles and builds])

    def _prove(self, task: Task) -> PairResult | None:
        """Prove and compile; None if that cannot stand: memory that others had is no fault of the pair."""
        if self._stopped():
            return None
        result = task.session.prove([variant.name for variant in task.unbuilt])
        if not task.alone and (lacked_memory(result) or APART in result.notes):
            task.session, task.crowded = self._session(task.pair), True
            return None
        take_note(task.note, None if task.session.roster.faults or result.size is None else manifest.utc_now())
        return result

    def _is_left(self, task: Task, result: PairResult) -> bool:
        """Whether a proven task is still to be timed; otherwise its row is kept."""
        roster = task.session.roster
        if roster.timed and not roster.nothing_left() and result.size is not None:
            self.show("proven", result)
            return True
        self._keep(result, task.pair)
        return False

    def _jobs(self) -> int:
        """Pairs to prove at once; one where a GPU takes the context of one process alone."""
        shared = all(monitor.shared() for gpu in self.machine.gpus if (monitor := Monitor.open(gpu.uuid)))
        return (self.options.jobs or room(self.machine)) if shared else 1

    def _note(self, pair: Pair, timed: Sequence[Variant]) -> Path | None:
        """The note on these variants, as they are, on this device; None where a file cannot be read."""
        about, options = self.manifest, self.options
        how = (options.reproducible, options.cold_start, options.size, options.figure, options.launch.ranks(pair.gpus))
        names = [variant.name for variant in timed]
        here = (self.device, self.machine.driver, about.versions.get("nvcc"), about.environment, *how, *names)
        return note_of(options.artifacts_dir / "proven", pair, map(str, here))

    # Time.

    def time(self, task: Task) -> str | None:
        """Measure one pair, and nothing else meanwhile; why the suite is over, if it is."""
        session, faults = task.session, task.session.roster.faults
        session.result.best_pace_us = self.best_pace_us
        self.show("start", session.result)
        if self.options.launch.follows:
            result = session.follow()
        else:
            result = profile(session.measure(), task.pair, session.settings)
        if time.monotonic() >= self.deadline and result.failed:
            return f"{TIME_UP} while {faults[-1][0] if faults else task.pair.key} was at work"
        if faults:
            take_note(task.note, None)
        self._keep(result, task.pair)
        return None

    def _session(self, pair: Pair) -> Session:
        options = self.options
        roster = assign(pair, self.machine, self.device, options.launch)
        roster.result.host = self.machine.hostname
        size = options.size or ("bench" if self.device != CPU else "cpu")
        gpus = self.machine.gpus[1 : options.launch.ranks_here(pair.gpus)]
        uuids = [self.uuid, *(gpu.uuid for gpu in gpus)] if self.uuid else []
        settings = Settings(
            folder=self.folder / f"{pair.chapter}_{pair.name}",
            scratch=self.scratch / f"{pair.chapter}_{pair.name}",
            size=f"{size},{options.figure}" if options.figure else size,
            seed=self.seed,
            device=self.device,
            time_limit_s=PAIR_LIMIT_S * options.timeout_multiplier,
            suite_deadline=self.deadline,
            peaks=self.peaks,
            monitors=tuple(monitor for uuid in uuids if (monitor := Monitor.open(uuid))),
            progress=self.show,
            earlier=self.results,
            **{one.name: getattr(options, one.name) for one in fields(Measuring)},  # as run was asked to
        )
        return Session(pair, roster, settings)

    # Report.

    def _keep(self, result: PairResult, pair: Pair) -> None:
        """Write the pair's files, then one synced line in the journal: what the journal names is whole."""
        shutil.rmtree(self.scratch / f"{pair.chapter}_{pair.name}", ignore_errors=True)
        folder = self.folder / f"{pair.chapter}_{pair.name}"
        config = {"pair": pair.key, "literals": pair.literals, "options": self.manifest.options, "seed": self.seed}
        journal.write(folder / "config.json", json.dumps(config, indent=1, default=str))
        write_result(folder, result)
        done = [other for other in self.results if other.key != result.key] + [result]
        journal.keep(self.folder, done)
        self.results[:] = done
        self.failed, self.best_pace_us = self.failed or result.failed, result.best_pace_us or self.best_pace_us
        self.show("done", result)

    def _sum_up(self, stopped: str | None, seconds: float) -> Summary:
        """Write the summary of what was done, in the order of the pairs, and of what was not run and why."""
        not_run = {pair.key: stopped or TIME_UP for pair in self.pairs if not self.done(pair)}
        places = {pair.key: place for place, pair in enumerate(self.pairs)}
        in_order = sorted(self.results, key=lambda result: places.get(result.key, -1))
        summary = Summary(
            manifest=self.manifest,
            finished=manifest.utc_now(),
            seconds=seconds,
            complete=not not_run,
            interrupted=stopped == INTERRUPTED or self.asked_to_stop(),
            not_run=not_run,
            pairs=[result.model_copy(update={"blocks": []}) for result in in_order],
        )
        write_summary(self.folder, summary)
        return summary

    def _stopped(self) -> str | None:
        """Why no further pair is to be started, if none is."""
        if self.asked_to_stop():
            return INTERRUPTED
        if time.monotonic() >= self.deadline:
            return TIME_UP
        return "--fail-fast" if self.options.fail_fast and self.failed else None

    def done(self, pair: Pair) -> bool:
        """Whether a result of this pair, with these very files, is kept."""
        files = {variant.name for variant in pair.variants}
        return any(r.key == pair.key and {row.name for row in r.variants} == files for r in self.results)


def write_result(folder: Path, result: PairResult) -> None:
    """Write a pair's result into its folder. Raises OSError that names a file which cannot be written."""
    journal.write(folder / RESULTS, result.model_dump_json(indent=1))
    journal.write((folder / RESULTS).with_suffix(".md"), templates.pair_markdown(result))


def write_summary(folder: Path, summary: Summary) -> None:
    """Raises OSError that names a file which cannot be written."""
    journal.write(folder / "summary.json", summary.model_dump_json(indent=1))
    journal.write(folder / "summary.md", templates.summary_markdown(summary))
    journal.write(folder / "summary.csv", markdown.summary_csv(summary))


def open_suite(
    options: Options,
    show: Show,
    say: Say = aloud,
    claim: Claim = lambda uuid: None,
    began: float | None = None,
    beside: Callable[[list[Pair]], list[Pair]] = list,
) -> Suite:
    """Find the pairs, look at the machine, make the artifacts folder, and on a GPU have its peaks, measured if need be.

    `say` hears where the peaks are from, and what of a resumed run is measured anew; `claim` takes the device's lock;
    the suite's time is counted from `began`, a monotonic time, or from now; `beside` adds variants to the pairs.
    Raises TargetError for targets that name nothing, OSError for a folder that cannot be written, ValueError for a run
    that cannot be gone on with or stored peaks that cannot be read, and SuiteTimeUp.
    """
    began = began or time.monotonic()
    every, targets = survey(options.root, options.targets)
    pairs = beside(select(every, targets))
    if not pairs:
        raise TargetError("no pairs to run")
    deadline = _deadline(options.suite_timeout, began, len(pairs))
    seed = _seed(options)
    folder = options.resume or journal.new_folder(options.artifacts_dir)
    if options.reproducible:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    with alarm(deadline, SuiteTimeUp(f"{TIME_UP} before a worker had started")):  # the forkserver imports torch first
        machine, found = open_machine(options.root, folder, pairs, options.reproducible)
        device, uuid = found["device"], found.get("uuid")
        claim(uuid)
        for gpu in machine.gpus[1 : max(options.launch.ranks_here(pair.gpus) for pair in pairs)]:
            claim(gpu.uuid)
    sources = manifest.sources_of(sorted({file for pair in pairs for file in files_of(pair, library=False)}))
    about = manifest.collect([*map(str, targets)], options.told(), sources, seed, machine)
    done, about = resume.go_on(folder, about, say) if options.resume else ([], about)
    journal.keep(folder, done)  # before the manifest, which says that all results are of these sources
    journal.write(folder / "manifest.json", about.model_dump_json(indent=1))
    peaks = peaks_for_run(ROOT, options.artifacts_dir, folder, machine, found, say, deadline, options.survey)
    pace_us = found["best_pace_us"]
    return Suite(options, pairs, folder, machine, device, uuid, peaks, seed, show, about, done, deadline, pace_us)


def _deadline(suite_timeout: float | None, began: float, pairs: int) -> float:
    """When pairs must have ended: what remains is for ending workers and writing the report."""
    if suite_timeout is None:
        return math.inf
    return began + suite_timeout - min(CLOSING_S + REPORT_S * pairs, CLOSING_SHARE * suite_timeout)


def _seed(options: Options) -> int:
    """What was asked for, else that of the run that is resumed, else 0 with --reproducible, else any."""
    if options.seed is not None:
        return options.seed
    if options.resume:
        return read_model(options.resume / "manifest.json", Manifest).seed or 0  # its other pairs get it too
    return 0 if options.reproducible else random.randrange(2**31)
