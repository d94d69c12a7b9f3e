"""A suite: choose what can run here, run each pair's session, write each result as it comes, sum up."""

import json
import math
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from common.python import journal, lock, manifest, resume
from common.python.assignment import assign, compile_ahead, idle
from common.python.cuda import nvcc_version
from common.python.discovery import Pair, choose
from common.python.following import follow
from common.python.interrupt import alarm
from common.python.journal import write
from common.python.launch import ONE_HOST, Launch
from common.python.machine import Machine
from common.python.machine import machine as host
from common.python.markdown import pair_markdown, summary_csv, summary_markdown
from common.python.peak_survey import Say, aloud, peaks_for_run
from common.python.performance_targets import Peaks
from common.python.results import Manifest, PairResult, Summary
from common.python.roster import Roster
from common.python.session import Session
from common.python.settings import TIME_UP, Settings, SuiteTimeUp
from common.python.targets import TargetError
from common.python.telemetry import Monitor
from common.python.tool_profiles import profile
from common.python.topology import topology_of
from common.python.worker import COMPILERS, Worker, WorkerError, warm_up_forkserver

PAIR_LIMIT_S = 120.0
INTERRUPTED = "Ctrl-C"  # why a pair was not run
START_LIMIT_S = 120.0
CLOSING_S = 2.0  # of a suite's time, for ending its workers and beginning its report
CLOSING_SHARE = 0.25  # at most
REPORT_S = 0.04  # and for each pair in the report
Show = Callable[[str, PairResult], None]


@dataclass(frozen=True)
class Options:
    """What `run` was asked for."""

    targets: list[str]
    root: Path
    artifacts_dir: Path
    size: str | None = None
    iterations: int | None = None
    warmup: int | None = None
    timeout_multiplier: float = 1.0
    suite_timeout: float | None = None
    reproducible: bool = False
    cold_start: bool = False
    profile: bool = False
    fail_fast: bool = False
    resume: Path | None = None
    seed: int | None = None
    budget_s: float = 3.0
    lock_clocks: str | None = None
    launch: Launch = ONE_HOST


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
    asked_to_stop: Callable[[], bool] = lambda: False
    failed: bool = False  # a pair of this run, not of one that it goes on with

    def run(self) -> Summary:
        """Run what is missing. Raises OSError, naming the file, where a result cannot be written."""
        started, stopped = time.monotonic(), None
        try:
            for pair in self.pairs:
                if self.done(pair):
                    continue
                stopped = self._stopped()
                if stopped is not None:
                    break
                self._keep(self._run_pair(pair), pair)
        except SuiteTimeUp as error:
            stopped = str(error)
        except KeyboardInterrupt:
            stopped = INTERRUPTED
        not_run = {pair.key: stopped or "" for pair in self.pairs if not self.done(pair)}
        summary = Summary(
            manifest=self.manifest,
            finished=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            seconds=time.monotonic() - started,
            complete=not not_run,
            interrupted=stopped == INTERRUPTED or self.asked_to_stop(),
            not_run=not_run,
            pairs=[result.model_copy(update={"blocks": []}) for result in self.results],
        )
        write(self.folder / "summary.json", summary.model_dump_json(indent=1))
        write(self.folder / "summary.md", summary_markdown(summary))
        write(self.folder / "summary.csv", summary_csv(summary))
        return summary

    def note_clocks(self, told: str) -> None:
        """Keep with the run what became of --lock-clocks."""
        self.manifest = self.manifest.model_copy(update={"clocks": told})
        write(self.folder / "manifest.json", self.manifest.model_dump_json(indent=1))

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

    def _run_pair(self, pair: Pair) -> PairResult:
        result = PairResult(chapter=pair.chapter, name=pair.name, status="unsupported", device=self.device)
        result.best_pace_us = min((done.best_pace_us for done in self.results if done.best_pace_us), default=None)
        timed, checked, result.variants = assign(pair, self.machine, self._gpu(), self.options.launch)
        if pair.variants and not (pair.variants[0].path.parent / f"baseline_{pair.name}.py").exists():
            return result.model_copy(update={"status": "failed", "reason": f"no baseline_{pair.name}.py"})
        self.show("start", result)
        if not timed and not checked:
            return idle(result)
        limit_s = PAIR_LIMIT_S * self.options.timeout_multiplier
        with tempfile.TemporaryDirectory(prefix="benchmark-", ignore_cleanup_errors=True) as scratch:
            settings = Settings(
                root=self.options.root,
                folder=self._folder_of(pair),
                scratch=Path(scratch),
                size=self.options.size or ("bench" if self._gpu() else "cpu"),
                seed=self.seed,
                device=self.device,
                budget_s=self.options.budget_s,
                time_limit_s=limit_s,
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
            )
            if self.options.launch.follows:
                return follow(pair, result, settings)
            return profile(Session(pair, Roster(result, timed, checked), settings, result).run(), pair, settings)

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
        self.failed = self.failed or failed(result)
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
    sources = [v.path for pair in pairs for v in pair.variants]
    sources += [cu for path in sources if (cu := path.with_suffix(".cu")).exists()]
    sources += sorted((manifest.ROOT / "common").rglob("*.py")) + sorted((manifest.ROOT / "common").rglob("*.cuh"))
    links = topology_of([gpu.uuid for gpu in machine.gpus])
    about = manifest.collect(
        options.targets, asked(options), sources, seed, host=machine, nvcc=nvcc_version(), topology=links
    )
    done, about = resume.go_on(folder, about, say) if options.resume else ([], about)
    write(folder / "manifest.json", about.model_dump_json(indent=1))
    journal.begin(folder)
    peaks = peaks_for_run(manifest.ROOT, options.artifacts_dir, folder, machine, found, say, deadline)
    suite = Suite(options, pairs, folder, machine, found["device"], found.get("uuid"), peaks, seed, show, about)
    suite.results, suite.deadline = done, deadline
    with alarm(deadline, SuiteTimeUp(f"{TIME_UP} while pairs were compiled")):
        missing = [pair for pair in pairs if not suite.done(pair)]
        compile_ahead(missing, machine, found["device"] != "cpu", options.launch, say)
    return suite


def open_machine(root: Path, folder: Path, pairs: Iterable[Pair] = ()) -> tuple[Machine, dict[str, Any]]:
    """This machine as a worker can use it, and its device as torch sees it; its workers are to hold these pairs.

    Raises RuntimeError if no worker starts.
    """
    machine = host()
    if not machine.gpus:
        os.environ["TRITON_INTERPRET"] = "1"  # read by triton when a worker imports it
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # no pool of compilers beside what is timed
    warm_up_forkserver(*([COMPILERS] if machine.gpus and any(map(compiles, pairs)) else []))
    found = describe(root, folder)
    return machine if found["device"] != "cpu" else replace(machine, gpus=[]), found


def compiles(pair: Pair) -> bool:
    """Whether a file of it mentions torch.compile."""
    return any(b"torch.compile" in v.path.read_bytes() for v in pair.variants if v.problem is None)


def asked(options: Options) -> dict[str, str | int | float | bool | None]:
    """The options as they go into the manifest; targets have a field of their own."""
    flat = asdict(options) | asdict(options.launch)
    plain = {key: str(value) if isinstance(value, Path) else value for key, value in flat.items()}
    return {key: value for key, value in plain.items() if key not in ("targets", "root", "launch")}


def describe(root: Path, folder: Path) -> dict[str, Any]:
    """The device as torch sees it, asked of a worker, since the parent does not import torch."""
    with tempfile.TemporaryDirectory(prefix="benchmark-") as scratch:
        settings = {"seed": 0, "reproducible": False}
        worker = Worker(root, Path(scratch) / "describe", folder / "logs" / "describe.log", settings)
        try:
            found: dict[str, Any] = worker.call("describe", START_LIMIT_S)
        except WorkerError as error:
            raise RuntimeError(f"no worker could be started: {error.reason}\n{worker.log_tail()}") from error
        finally:
            worker.kill()
    return found


def failed(result: PairResult) -> bool:
    """Whether this row makes the suite fail: a pair or any variant of it that failed or is invalid."""
    statuses = [result.status, *(row.status for row in result.variants)]
    verdicts = [result.verdict, *(row.verdict for row in result.variants)]
    return "failed" in statuses or "invalid" in verdicts
