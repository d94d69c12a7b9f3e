"""What `run` and `report` do: a suite before the user's eyes, then its report."""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TextIO

from common.python.base.interrupt import interrupts
from common.python.base.journal import write
from common.python.base.results import Manifest, Summary
from common.python.base.safe_read import read_model
from common.python.base.text import counted
from common.python.corpus.discovery import Pair, choose
from common.python.fleet.ray_driver import run_on_ray
from common.python.fleet.shards import merge, shard_targets
from common.python.regress.against import with_python, with_refs
from common.python.regress.check import statuses
from common.python.regress.history import append, read
from common.python.report.artifacts import mark_latest, read_run
from common.python.report.display import Display
from common.python.report.listing import timed_here
from common.python.report.markdown import append_to_job_page
from common.python.report.templates import junit_xml, page
from common.python.run.options import Options
from common.python.run.suite import INTERRUPTED as STOPPED
from common.python.run.suite import Suite, open_suite
from common.python.stats.intervals import verdict
from common.python.workers.launch import ONE_HOST
from tools.cli.exits import DONE, FAILED, INTERRUPTED, NOTHING, SLOWER, age_s, claims, hush, told
from tools.cli.options import RunOptions, repeated

WITHOUT_RAY = ("sweep", "as_json", "resume", "shard", "suite_timeout", "fail_fast")  # options of `run`


def measure(options: Options, asked: RunOptions) -> int:
    """Run the suite before the user's eyes; the exit code.

    With `--json` stdout gets the summary and its `folder` as one JSON object, and stderr all else.
    """
    if options.resume is not None and not os.path.isfile(options.resume / "journal.jsonl"):
        raise ValueError(f"--resume {options.resume} has no journal.jsonl: name the folder of an earlier run")
    if options.resume is not None and options.shard is not None:
        raise ValueError("--resume goes on with the shard that its run is of: leave --shard out")
    if options.resume is not None and not options.targets:
        options = replace(options, targets=read_model(options.resume / "manifest.json", Manifest).targets)
    if asked.history is not None and asked.history.exists():
        read(asked.history)  # what is no history is refused before anything is measured
    if options.shard is not None:
        options = replace(options, targets=shard_targets(options.root, options.targets, options.shard))
    data, shown = (sys.stdout, sys.stderr) if asked.as_json else (None, sys.stdout)
    with ExitStack() as stack, claims(asked.wait) as claim, redirect_stdout(shown):
        display = Display()
        beside: Callable[[list[Pair]], list[Pair]] = list
        if options.against is not None:
            beside = partial(with_refs, ref=options.against, stack=stack, say=told)
        elif options.against_python is not None:
            beside = partial(with_python, python=options.against_python)
        suite = open_suite(options, display.show, claim=claim, began=time.monotonic() - age_s(), beside=beside)
        with interrupts(told) as heard:
            suite.asked_to_stop = lambda: heard() > 0
            return _run(suite, display, asked, heard, data)


def _run(suite: Suite, display: Display, asked: RunOptions, heard: Callable[[], int], data: TextIO | None) -> int:
    display.expect(len(suite.pairs))
    try:
        with display:
            summary = suite.run()
        mark_latest(suite.folder)
        there = ""
        if suite.uuid is None and any(pair.folder.package for pair in suite.pairs):
            there = timed_here(choose(suite.options.root, ["all"]), suite.machine)
        display.finish(summary, suite.folder, there)
        if heard() < 2:  # the second Ctrl-C was for the report too
            publish(suite.folder, suite.options.root, asked.junit)
        if asked.history is not None:
            added = append(asked.history, summary, suite.options.root)
            display.tell(f"{added} of {counted(len(summary.pairs), 'pair')} added to {asked.history}")
        if data is not None:
            found = {"folder": str(suite.folder)} | summary.model_dump(mode="json")
            print(json.dumps(found, indent=1), file=data)
        if heard() < 2:
            append_to_job_page((suite.folder / "summary.md").read_text() + "\n", os.environ)
    except OSError as error:
        lost = error.filename or f"{suite.folder} or the output"
        kept = f"`run ... --resume {suite.folder}` goes on from the pairs that are kept"
        told(f"stopped, since {lost} cannot be written: {error.strerror or error}; {kept}")
        hush()
        return FAILED
    return _code(summary)


def _code(summary: Summary) -> int:
    """The exit code of a run by its summary."""
    if summary.interrupted:
        return INTERRUPTED
    if not summary.complete or any(result.failed for result in summary.pairs):
        return FAILED
    if any(verdict(row.against) == "slower" for pair in summary.pairs for row in pair.variants if row.against):
        return SLOWER
    return NOTHING if all(result.status in ("unsupported", "built") for result in summary.pairs) else DONE


def on_ray(options: Options, address: str, asked: RunOptions) -> int:
    """Run the suite on a Ray cluster; the exit code. Raises ValueError for what does not go with it."""
    if options.launch != ONE_HOST or any(getattr(asked, name) for name in WITHOUT_RAY):
        names = ", ".join(f"--{name.removeprefix('as_').replace('_', '-')}" for name in WITHOUT_RAY)
        raise ValueError(f"--ray goes without {names} and options for several hosts or ranks")
    parts, display, codes = options.artifacts_dir / f"parts-{os.getpid()}", Display(), [DONE]
    pairs = choose(options.root, options.targets)
    options.artifacts_dir.mkdir(parents=True, exist_ok=True)
    with display:
        display.expect(len(pairs))
        landed = run_on_ray(address, options.root, pairs, repeated(asked.ctx), parts, display.show)
    for one in landed:
        if one.folders:
            codes.append(merge_runs(one.folders, options.artifacts_dir, options.root, asked.junit, one.not_run))
            continue
        codes.append(INTERRUPTED if set(one.not_run.values()) == {STOPPED} else FAILED)
        for reason in sorted(set(one.not_run.values())):
            told(f"nothing was measured: {reason}")
    shutil.rmtree(parts, ignore_errors=True)
    return max(codes)


def merge_runs(
    folders: Sequence[Path],
    artifacts_dir: Path,
    root: Path,
    junit: Path | None,
    not_run: Mapping[str, str] | None = None,
) -> int:
    """Merge runs and show what they are together; the exit code, as of a run."""
    folder = merge(folders, artifacts_dir, not_run)
    summary = read_run(folder).summary
    mark_latest(folder)
    Display().finish(summary, folder)
    publish(folder, root, junit)
    return _code(summary)


def publish(folder: Path, root: Path, junit: Path | None) -> Path:
    """The report of a run, and its JUnit file if asked for. Raises OSError, ValueError and ArithmeticError."""
    run, report = read_run(folder), folder / "report.html"
    write(report, page(run, root, statuses(run, root)))
    if junit is not None:
        write(junit, junit_xml(run.summary))
    return report
