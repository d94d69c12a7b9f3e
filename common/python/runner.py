"""A suite: choose what can run here, run each pair's session, write each result as it comes, sum up."""

import json
import os
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from common.python import manifest
from common.python.cuda import CudaError, build, find_nvcc, nvcc_version
from common.python.discovery import Pair, Variant, find_pairs, select
from common.python.machine import Machine
from common.python.machine import machine as host
from common.python.markdown import pair_markdown, summary_csv, summary_markdown
from common.python.peak_survey import Say, aloud, peaks_for_run
from common.python.performance_targets import Peaks
from common.python.requirements import unmet
from common.python.results import Manifest, PairResult, Summary, VariantResult
from common.python.roster import Roster, new_row
from common.python.session import Session, Settings
from common.python.targets import TargetError, parse
from common.python.telemetry import Monitor
from common.python.worker import Worker, WorkerError, warm_up_forkserver

PAIR_LIMIT_S = 120.0
START_LIMIT_S = 120.0
NO_GPU: dict[str, Any] = {
    "gpus": 0,
    "sm": None,
    "targets": (),
    "memory_gib": 0.0,
}  # needs, less those that only a GPU meets
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

    def run(self) -> Summary:
        started, complete, interrupted = time.monotonic(), True, False
        try:
            for pair in self.pairs:
                if self._done(pair):
                    continue
                left = self._left(started)
                if left is not None and left <= 0:
                    complete = False
                    break
                self._keep(self._run_pair(pair, left), pair)
                if self.options.fail_fast and failed(self.results[-1]):
                    complete = False
                    break
        except KeyboardInterrupt:
            complete, interrupted = False, True
        summary = Summary(
            manifest=self.manifest,
            finished=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            seconds=time.monotonic() - started,
            complete=complete,
            interrupted=interrupted,
            pairs=[result.model_copy(update={"blocks": []}) for result in self.results],
        )
        write(self.folder / "summary.json", summary.model_dump_json(indent=1))
        write(self.folder / "summary.md", summary_markdown(summary))
        write(self.folder / "summary.csv", summary_csv(summary))
        return summary

    def _left(self, started: float) -> float | None:
        limit = self.options.suite_timeout
        return None if limit is None else limit - (time.monotonic() - started)

    def _done(self, pair: Pair) -> bool:
        """Whether the run that is resumed has this pair, with these very files."""
        files = {variant.name for variant in pair.variants}
        return any(r.key == pair.key and {row.name for row in r.variants} == files for r in self.results)

    def _run_pair(self, pair: Pair, left_s: float | None) -> PairResult:
        result = PairResult(chapter=pair.chapter, name=pair.name, status="unsupported", device=self.device)
        result.best_pace_us = min((done.best_pace_us for done in self.results if done.best_pace_us), default=None)
        timed, checked, result.variants = assign(pair, self.machine, self._gpu())
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
                time_limit_s=limit_s if left_s is None else min(limit_s, left_s),
                iterations=self.options.iterations,
                warmup=self.options.warmup,
                reproducible=self.options.reproducible,
                cold_start=self.options.cold_start,
                profile=self.options.profile,
                peaks=self.peaks,
                monitor=Monitor.open(self.uuid) if self.uuid else None,
                progress=self.show,
            )
            return Session(pair, Roster(result, timed, checked), settings, result).run()

    def _gpu(self) -> bool:
        return self.device != "cpu"

    def _folder_of(self, pair: Pair) -> Path:
        return self.folder / f"{pair.chapter}_{pair.name}"

    def _keep(self, result: PairResult, pair: Pair) -> None:
        """Write the pair's files, then one synced line in the journal: what the journal names is whole."""
        self.results.append(result)
        folder = self._folder_of(pair)
        config = {"pair": pair.key, "literals": pair.literals, "options": self.manifest.options, "seed": self.seed}
        write(folder / "config.json", json.dumps(config, indent=1, default=str))
        write(folder / "results" / "benchmark_test_results.json", result.model_dump_json(indent=1))
        write(folder / "results" / "benchmark_test_results.md", pair_markdown(result))
        line = {"pair": pair.key, "status": result.status, "verdict": result.verdict, "folder": folder.name}
        with (self.folder / "journal.jsonl").open("a") as journal:
            journal.write(json.dumps(line) + "\n")
            journal.flush()
            os.fsync(journal.fileno())
        self.show("done", result)


def open_suite(options: Options, show: Show, say: Say = aloud) -> Suite:
    """Find the pairs, look at the machine, make the artifacts folder, and on a GPU have its peaks, measured if need be.

    `say` hears where the peaks are from. Raises TargetError for targets that name nothing, OSError for a folder that
    cannot be written, and PeakFileError for stored peaks that cannot be read.
    """
    pairs = select(find_pairs(options.root), [target for text in options.targets for target in parse(text)])
    if not pairs:
        raise TargetError("no pairs to run")
    done = earlier(options.resume) if options.resume else []
    folder = options.resume or options.artifacts_dir / datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S.%fZ")
    folder.mkdir(parents=True, exist_ok=True)
    if options.reproducible:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    machine, found = open_machine(options.root, folder)
    seed = options.seed if options.seed is not None else 0 if options.reproducible else random.randrange(2**31)
    sources = [v.path for pair in pairs for v in pair.variants]
    sources += [cu for path in sources if (cu := path.with_suffix(".cu")).exists()]
    sources += sorted((manifest.ROOT / "common").rglob("*.py")) + sorted((manifest.ROOT / "common").rglob("*.cuh"))
    about = manifest.collect(options.targets, asked(options), sources, seed, host=machine, nvcc=nvcc_version())
    write(folder / "manifest.json", about.model_dump_json(indent=1))
    peaks = peaks_for_run(manifest.ROOT, options.artifacts_dir, folder, machine, found, say)
    suite = Suite(options, pairs, folder, machine, found["device"], found.get("uuid"), peaks, seed, show, about)
    suite.results = done
    return suite


def open_machine(root: Path, folder: Path) -> tuple[Machine, dict[str, Any]]:
    """This machine as a worker can use it, and its device as torch sees it. Raises RuntimeError if no worker starts."""
    machine = host()
    if not machine.gpus:
        os.environ["TRITON_INTERPRET"] = "1"  # read by triton when a worker imports it
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # no pool of compilers beside what is timed
    warm_up_forkserver()
    found = describe(root, folder)
    return machine if found["device"] != "cpu" else replace(machine, gpus=[]), found


def asked(options: Options) -> dict[str, str | int | float | bool | None]:
    """The options as they go into the manifest; targets have a field of their own."""
    plain = {key: str(value) if isinstance(value, Path) else value for key, value in asdict(options).items()}
    return {key: value for key, value in plain.items() if key not in ("targets", "root")}


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


def assign(pair: Pair, machine: Machine, gpu: bool) -> tuple[list[Variant], list[Variant], list[VariantResult]]:
    """Who can be timed here, who can only be proven, and a row for each, with the reason where it is neither."""
    timed, checked, rows = [], [], []
    for variant in pair.variants:
        row = new_row(pair, variant)
        rows.append(row)
        reasons = missing(pair, variant, machine)
        if variant.problem:
            row.status, row.reason = "failed", variant.problem
        elif "CUDA" in variant.kinds and not gpu and not unmet(replace(variant.required, **NO_GPU), machine):
            row.status, row.reason = built(variant)
        elif reasons:
            row.status, row.reason = "unsupported", "; ".join(reasons)
        elif "Triton" in variant.kinds and not gpu:
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
    return timed, sorted(checked, key=pair.variants.index), rows


def missing(pair: Pair, variant: Variant, machine: Machine) -> list[str]:
    """Why a variant cannot run here, a phrase each; empty if it can."""
    several = ["pairs on several GPUs cannot be run yet"] if pair.literals.get("gpus", 1) > 1 else []
    return unmet(variant.required, machine) + several


def built(variant: Variant) -> tuple[Any, str]:
    """Compile a CUDA variant where it cannot run: the status and what to say of it."""
    arch = variant.required.targets[0] if variant.required.targets else f"sm_{variant.required.sm or 80}"
    if find_nvcc() is None and "NVCC" not in os.environ:  # if it is set and wrong, `build` says so
        return "unsupported", "needs a GPU; not compiled either, since there is no nvcc"
    try:
        build(variant.path.with_suffix(".cu"), arch)
    except (CudaError, OSError) as error:
        return "failed", str(error)
    return "built", f"compiled for {arch}, not run: needs a GPU"


def idle(result: PairResult) -> PairResult:
    """The row of a pair that nothing could be run of: its first file, which is the baseline, speaks."""
    speaks = result.variants[0]
    return result.model_copy(update={"status": speaks.status, "reason": speaks.reason})


def failed(result: PairResult) -> bool:
    """Whether this row makes the suite fail: a pair or any variant of it that failed or is invalid."""
    statuses = [result.status, *(row.status for row in result.variants)]
    verdicts = [result.verdict, *(row.verdict for row in result.variants)]
    return "failed" in statuses or "invalid" in verdicts


def earlier(folder: Path) -> list[PairResult]:
    """The results that a run's journal names. Raises OSError or ValueError where one cannot be read."""
    lines = (folder / "journal.jsonl").read_text().splitlines()
    places = [folder / json.loads(line)["folder"] / "results" / "benchmark_test_results.json" for line in lines]
    return [PairResult.model_validate_json(place.read_text()) for place in places]


def write(path: Path, text: str) -> None:
    """Replace a file as a whole: a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(path.suffix + ".partial")
    partial.write_text(text)
    partial.replace(path)
