"""What `run` and `report` do: a suite before the user's eyes, then its report. Imports are inside: --help is quick."""

import errno
import io
import json
import math
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import typer

if TYPE_CHECKING:
    from common.python.base.interrupt import Interrupts
    from common.python.base.lock import Claim
    from common.python.base.results import Summary
    from common.python.corpus.discovery import Pair
    from common.python.report.display import Display
    from common.python.run.options import Options
    from common.python.run.suite import Suite
    from common.python.workers.launch import Launch

DONE, FAILED, USAGE, SLOWER, NOTHING, INTERRUPTED = 0, 1, 2, 3, 4, 130
NO_TARGETS = "nothing to run: name targets, such as `run --targets ch1` or `run --targets all`"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # for what is written; never of what is read


def usage(message: str) -> typer.Exit:
    """Say in one line what was wrong and what would be right; the caller raises what is returned."""
    from common.python.base.text import clean

    typer.echo(f"benchmark_cli: {clean(message)}", err=True)
    return typer.Exit(USAGE)


@contextmanager
def exits(place: Path | None = None, wrong: tuple[type[Exception], ...] = (ValueError,)) -> Iterator[None]:
    """End a command by what an error means: 2 for what the user can mend, 4 where nothing could run, 130 by Ctrl-C.

    `wrong` are the errors whose message says what to mend, and `place` what cannot be used by an OSError that names no
    file; without a place such errors pass.
    """
    from common.python.base.lock import Busy

    try:
        yield
    except typer.Exit:
        raise
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except wrong as error:
        raise usage(str(error)) from error
    except OSError as error:
        if place is None:
            raise
        raise usage(f"cannot use {error.filename or place}: {error.strerror or error}") from error
    except (RuntimeError, Busy) as error:
        typer.echo(f"benchmark_cli: {str(error).strip()}", err=True)
        raise typer.Exit(NOTHING) from error


def told(line: str) -> None:
    """Say it beside the results. Unbuffered, since a signal handler says things too, in the middle of anything."""
    os.write(2, f"benchmark_cli: {line}\n".encode())


def written(command: Callable[[], int]) -> int:
    """The exit code of a command, whose output has been written; else one line says that it is lost.

    Raises what is another error.
    """
    _open_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # what a terminal cannot show
    try:
        code = command()
        sys.stdout.flush()
        return code
    except OSError as error:
        if error.filename is not None or error.errno not in NO_ROOM:
            raise
        told(f"the output cannot be written: {error.strerror}")
        _hush()
        return FAILED


def _open_streams() -> None:
    """Where a standard stream is closed (`>&-`), the next file that is opened would get its number, and its text."""
    while (number := os.open(os.devnull, os.O_RDWR)) < 3:
        os.set_inheritable(number, True)
    os.close(number)
    sys.stdout, sys.stderr = sys.stdout or os.fdopen(1, "w"), sys.stderr or os.fdopen(2, "w")


def _hush() -> None:
    """Nothing more goes to the output: what cannot be written now of its buffer could not be at the end either."""
    with suppress(OSError):
        sys.stdout.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def claims(stack: ExitStack, wait: bool, limit_s: float | None = None) -> "Claim":
    """The function that takes a device's lock for as long as `stack` lives, at once or after waiting for it.

    It waits until this process is `limit_s` seconds old.
    """
    from common.python.base.lock import hold

    def claim(uuid: str | None) -> None:
        left_s = math.inf if limit_s is None else max(0.0, limit_s - _age_s())
        stack.enter_context(hold(uuid, told, left_s if wait else 0.0))

    return claim


def launch(nnodes: int, node_rank: int, nproc_per_node: int | None, rdzv_endpoint: str | None) -> "Launch":
    """How the ranks of pairs on several GPUs are started."""
    from common.python.workers.launch import Launch

    with exits():
        return Launch(nnodes, node_rank, nproc_per_node, rdzv_endpoint)


def measure(options: "Options", junit: Path | None, wait: bool = True, as_json: bool = False) -> int:
    """Run the suite before the user's eyes; the exit code.

    With `as_json` stdout gets the summary and its `folder` as one JSON object, and stderr all else.
    """
    from common.python.base.interrupt import Interrupts
    from common.python.report.display import Display

    if options.size not in (None, "bench", "cpu", "test"):
        raise usage(f"--size {options.size!r} is not a size: bench, cpu or test")
    if options.resume is not None and not os.path.isfile(options.resume / "journal.jsonl"):
        raise usage(f"--resume {options.resume} has no journal.jsonl: name the folder of an earlier run")
    with exits():
        options = replace(options, targets=options.targets or _earlier(options.resume))
    if not options.targets:
        raise usage(NO_TARGETS)
    if options.shard is not None:
        options = _sharded(options, options.shard)
    make_room(junit)
    with ExitStack() as stack:
        data = sys.stdout if as_json else None
        if as_json:
            stack.enter_context(redirect_stdout(sys.stderr))
        display = Display()
        with exits(options.artifacts_dir):
            suite = _opened(options, display, claims(stack, wait, options.suite_timeout), stack)
        try:
            with Interrupts(told) as interrupts:
                suite.asked_to_stop = lambda: interrupts.asked
                return _run(suite, display, junit, interrupts, data)
        except KeyboardInterrupt:  # the second one
            return INTERRUPTED


def _sharded(options: "Options", shard: str) -> "Options":
    """The same for one part of the targets. Raises the exit for a part that there is not."""
    from common.python.fleet.shards import shard_targets

    if options.resume:
        raise usage("--resume goes on with the shard that its run is of: leave --shard out")
    with exits():
        return replace(options, targets=shard_targets(options.root, options.targets, shard))


def _opened(options: "Options", display: "Display", claim: "Claim", stack: ExitStack) -> "Suite":
    """The suite; what it needs until its end goes on `stack`.

    Raises what `exits` knows, and the exit for a suite whose time is up.
    """
    from common.python.regress.against import with_refs
    from common.python.run.settings import SuiteTimeUp
    from common.python.run.suite import open_suite

    def beside(pairs: "list[Pair]") -> "list[Pair]":
        return with_refs(pairs, options.against, stack, told) if options.against else pairs

    try:
        return open_suite(options, display.show, claim=claim, began=time.monotonic() - _age_s(), beside=beside)
    except SuiteTimeUp as error:
        typer.echo(f"benchmark_cli: {error}", err=True)
        raise typer.Exit(FAILED) from error


def _earlier(folder: Path | None) -> list[str]:
    """The targets of the run that is resumed, if one is. Raises ValueError for one that cannot be read."""
    from common.python.base.results import Manifest
    from common.python.base.safe_read import read_model

    return read_model(folder / "manifest.json", Manifest).targets if folder else []


def make_room(file: Path | None) -> None:
    """Make the folder of a file that is written last, while a wrong name has cost nothing. Raises the exit for one.

    A file in it, of as long a name as `journal.write` needs, tells whether it takes one.
    """
    import tempfile

    if file is None:
        return
    if not file.name:
        raise usage("--junit '' names no file")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        tempfile.NamedTemporaryFile(dir=file.parent, prefix=file.name).close()
    except OSError as error:
        raise usage(f"cannot write {file}: {error.strerror or error}") from error


def _age_s() -> float:
    """How long this process has run: on a busy machine its imports are a part of the suite's time that counts."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])  # proc(5): field 22, starttime
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def _run(suite: "Suite", display: "Display", junit: Path | None, interrupts: "Interrupts", data: TextIO | None) -> int:
    from common.python.report.artifacts import mark_latest

    display.expect(len(suite.pairs))
    try:
        with display:
            summary = suite.run()
        mark_latest(suite.folder)
        display.finish(summary, suite.folder)
        if interrupts.count < 2:  # the second Ctrl-C was for the report too
            _publish(suite.folder, suite.options.root, junit, job_page=True)
        if data is not None:
            json.dump({"folder": str(suite.folder)} | summary.model_dump(mode="json"), data, indent=1)
            data.write("\n")
    except OSError as error:
        done = {result.key for result in suite.results} & {pair.key for pair in suite.pairs}
        kept = f"{len(done)} of {len(suite.pairs)} pairs are kept: `run ... --resume {suite.folder}` goes on"
        lost = error.filename or f"{suite.folder} or the output"
        told(f"stopped, since {lost} cannot be written: {error.strerror or error}; {kept}")
        _hush()
        return FAILED
    except (ValueError, ArithmeticError) as error:
        raise usage(str(error)) from error
    return _code(summary)


def _code(summary: "Summary") -> int:
    """The exit code of a run by its summary."""
    from common.python.stats.verdict import slower_than_ref

    if summary.interrupted:
        return INTERRUPTED
    if not summary.complete or any(result.failed for result in summary.pairs):
        return FAILED
    if any(map(slower_than_ref, summary.pairs)):
        return SLOWER
    return NOTHING if all(result.status in ("unsupported", "built") for result in summary.pairs) else DONE


def on_ray(options: "Options", address: str, words: Sequence[str], other: bool, junit: Path | None) -> int:
    """Run the suite on a Ray cluster; the exit code. `other` says that more was asked for than goes with it."""
    from common.python.corpus.discovery import choose
    from common.python.fleet.ray_driver import run_on_ray
    from common.python.report.display import Display
    from common.python.run.suite import INTERRUPTED as STOPPED
    from common.python.workers.launch import ONE_HOST

    other = other or options.fail_fast or options.launch != ONE_HOST
    if other or options.resume or options.shard or options.suite_timeout:
        without = (
            "--resume, --shard, --sweep, --json, --suite-timeout, --fail-fast and options for several hosts or ranks"
        )
        raise usage(f"--ray goes without {without}")
    if not options.targets:
        raise usage(NO_TARGETS)
    make_room(junit)
    parts, display, codes = options.artifacts_dir / f"parts-{os.getpid()}", Display(), [DONE]
    with exits(options.artifacts_dir):
        pairs = choose(options.root, options.targets)
        options.artifacts_dir.mkdir(parents=True, exist_ok=True)
        with display:
            display.expect(len(pairs))
            landed = run_on_ray(address, options.root, pairs, words, parts, display.show)
    for one in landed:
        if one.folders:
            codes.append(merge_runs(one.folders, options.artifacts_dir, options.root, junit, one.not_run))
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
    from common.python.fleet.shards import merge
    from common.python.report.artifacts import mark_latest, read_run
    from common.python.report.display import Display

    make_room(junit)
    with exits(artifacts_dir):
        folder = merge(folders, artifacts_dir, not_run)
        summary = read_run(folder).summary
        mark_latest(folder)
    Display().finish(summary, folder)
    publish(folder, root, junit)
    return _code(summary)


def publish(folder: Path, root: Path, junit: Path | None) -> Path:
    """The report of a run, and its JUnit file if asked for."""
    make_room(junit)
    with exits(folder, (ValueError, ArithmeticError)):
        return _publish(folder, root, junit, job_page=False)


def _publish(folder: Path, root: Path, junit: Path | None, job_page: bool) -> Path:
    """The same, and the page of the CI job that the run was in. Raises OSError, ValueError and ArithmeticError."""
    from common.python.regress.check import statuses
    from common.python.report.artifacts import read_run
    from common.python.report.publish import append_to_job_page
    from common.python.report.publish import publish as write_report

    if job_page:
        append_to_job_page((folder / "summary.md").read_text() + "\n", os.environ)
    run = read_run(folder)
    return write_report(run, root, junit, statuses(run, root))
