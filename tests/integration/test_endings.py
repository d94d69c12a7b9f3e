"""However a run ends (killed, Ctrl-C, out of time, no room to write), what was done is kept, and a later run goes on.

What signals end is a real process. `BENCHMARK_KILLS=20 pytest tests/integration/test_endings.py -k killed` kills 20
times, `make check-all` ten, the tests once.
"""

import contextlib
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent, indent

import pytest
from small_tree import HONEST, ROOT, SPINS, Done, Tree, cli, doing, late_s, nothing_left, started_with, until

from common.python.base.lock import Busy, hold, lock_file
from common.python.base.results import PairResult, Summary
from tools.cli.exits import age_s, claims

CLI = [sys.executable, str(ROOT / "tools" / "cli" / "benchmark_cli.py")]
QUICK = ("--jobs", "1", "--iterations", "4", "--warmup", "0", "--seed", "7")
PAIRS = ("ch01:a", "ch01:b", "ch01:c")
KILLS = int(os.environ.get("BENCHMARK_KILLS", "1"))
Process = subprocess.Popen[str]
NOTED = doing("if a.numel() > 1000: import pathlib; pathlib.Path({note!r}).touch(); import time; time.sleep({seconds})")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tree]:
    """A tree whose runs have temporary files and locks of their own; none of their processes outlives the test."""
    temporary = tempfile.mkdtemp(prefix="t-", dir="/tmp")  # sockets lie in there, and their paths must be short
    monkeypatch.setenv("TMPDIR", temporary)
    monkeypatch.setattr("tempfile.tempdir", temporary)
    monkeypatch.setenv("BENCHMARK_TEST_RUN", str(tmp_path))
    yield Tree(tmp_path / "root")
    for pid in family(tmp_path):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    shutil.rmtree(temporary, ignore_errors=True)


def family(mark: Path) -> list[int]:
    """Every living process that a run of this test has started."""
    return list(started_with(f"BENCHMARK_TEST_RUN={mark}"))


def words_of(tree: Tree, *words: str | Path, targets: tuple[str, ...] = ("ch1",)) -> list[str]:
    asked = ("--root", tree.root, "--artifacts-dir", tree.artifacts, *QUICK, *words)
    return ["run", *targets, *map(str, asked)]


def run_here(tree: Tree, *words: str | Path, targets: tuple[str, ...] = ("ch1",)) -> Done:
    """The command in this process, where no signal is to end it."""
    return cli(*words_of(tree, *words, targets=targets))


def start(tree: Tree, *words: str | Path, targets: tuple[str, ...] = ("ch1",)) -> Process:
    command = [*CLI, *words_of(tree, *words, targets=targets)]
    # A session of its own, as a shell gives a job a group: what the terminal sends goes to all that are in it.
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True
    )


def finish(run: Process) -> tuple[int, str, str]:
    out, err = run.communicate(timeout=300)
    return run.returncode, out, err


def gone(mark: Path) -> None:
    until(lambda: not family(mark), 3.0 + late_s())


def folders(tree: Tree) -> list[Path]:
    return sorted(path for path in tree.artifacts.glob("*Z") if (path / "journal.jsonl").is_file())


def journaled(folder: Path) -> list[str]:
    return [json.loads(line)["pair"] for line in (folder / "journal.jsonl").read_text().splitlines()]


def stored(folder: Path, key: str) -> bytes:
    return (folder / key.replace(":", "_") / "results" / "benchmark_test_results.json").read_bytes()


def summary(folder: Path) -> Summary:
    return Summary.model_validate_json((folder / "summary.json").read_text())


def three(tree: Tree) -> None:
    for key in PAIRS:
        tree.pair(key)


# Killed.


def test_a_run_that_is_killed_leaves_no_process_and_is_finished_by_resume(here: Tree, tmp_path: Path) -> None:
    three(here)
    moments = random.Random(5)
    targets, kills, resumed = [str(f"ch01:{letter}") for letter in "abc"], 0, None
    while kills < KILLS:
        run = start(here, *(["--resume", resumed] if resumed else []), targets=tuple(targets))
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.wait(timeout=moments.uniform(0.3, 6.0))
        kept = {key: stored(resumed, key) for key in journaled(resumed)} if resumed else {}
        run.kill()
        _, err = run.communicate()
        assert run.returncode in (-signal.SIGKILL, 0, 1), err
        kills += 1
        gone(tmp_path)
        resumed = folders(here)[-1] if folders(here) else None
        if resumed:
            text = (resumed / "journal.jsonl").read_text()
            assert all(json.loads(line) for line in text.splitlines())
            assert journaled(resumed)[: len(kept)] == list(kept)
            assert {key: stored(resumed, key) for key in kept} == kept
            if len(journaled(resumed)) == len(PAIRS):
                resumed = None  # the next run begins anew
    done = journaled(resumed) if resumed else []
    kept = {key: stored(resumed, key) for key in done} if resumed else {}
    code, out, err = finish(start(here, *(["--resume", resumed] if resumed else [])))
    assert (code, err) == (0, ""), out + err
    folder = resumed or folders(here)[-1]
    assert sorted(journaled(folder)) == sorted(PAIRS)
    assert [line.split()[0] for line in out.splitlines() if line.startswith("ch01:")][: 3 - len(done)] == [
        key for key in PAIRS if key not in done
    ]
    assert {key: stored(folder, key) for key in kept} == kept
    assert sorted(result.key for result in summary(folder).pairs) == sorted(PAIRS)


def interrupt_twice(run: Process) -> None:
    """Ctrl-C, and again when the first has been heeded: two that Python has not yet looked at are one."""
    os.killpg(run.pid, signal.SIGINT)
    until(lambda: select.select([run.stderr], [], [], 0)[0], 1 + late_s())
    assert "Ctrl-C again stops now" in run.stderr.readline()
    os.killpg(run.pid, signal.SIGINT)


def end(run: Process, how: str, mark: Path) -> None:
    """End the run in this way: its exit code says so, and nothing is left."""
    if how == "kill -9":
        run.kill()
    else:
        interrupt_twice(run)
    assert finish(run)[0] == {"kill -9": -signal.SIGKILL, "Ctrl-C": 130}[how]
    gone(mark)
    assert how == "kill -9" or not list(Path(os.environ["TMPDIR"]).glob("benchmark-*"))


@pytest.mark.parametrize("how", ["kill -9", "Ctrl-C"])
def test_all_workers_at_work_their_children_and_the_lock_go_with_the_run(here: Tree, tmp_path: Path, how: str) -> None:
    notes = [tmp_path / name for name in "ab"]
    for note in notes:  # which hang as they are proven
        child = "import subprocess; subprocess.Popen(['sleep', '600'], start_new_session=True)"
        here.pair(f"ch01:{note.name}", optimized=doing(f"{child}; open({str(note)!r}, 'w')\nwhile True: pass"))
    run = start(here, "--jobs", "2")
    until(lambda: all(note.exists() for note in notes))
    assert len(family(tmp_path)) >= 8  # the run, its forkserver, two workers below their reapers, a child of each
    end(run, how, tmp_path)
    assert json.loads(lock_file(None).read_bytes())["pid"] == run.pid
    with hold(None, print, wait=False):
        assert json.loads(lock_file(None).read_bytes())["pid"] == os.getpid()


HANGS_AT_ITS_END = """
import time
from multiprocessing.util import Finalize  # a forked worker ends without atexit

Finalize(None, lambda: open({note!r}, "w").close() or time.sleep(600), exitpriority=0)
"""


@pytest.mark.parametrize("how", ["kill -9", "Ctrl-C"])
def test_workers_that_end_and_interpreters_that_begin_go_with_the_run(here: Tree, tmp_path: Path, how: str) -> None:
    note = tmp_path / "note"
    here.pair("ch01:a", optimized=HANGS_AT_ITS_END.format(note=str(note)) + dedent(HONEST))
    hangs = NOTED.format(note=str(tmp_path / "late"), seconds=600)
    here.pair("ch01:b", fields="isolated=True,", optimized=hangs)
    run = start(here)
    until(note.exists)
    until(lambda: len(family(tmp_path)) >= 8)  # the run, its forkserver, workers below their reapers
    end(run, how, tmp_path)


# Going on.


def test_a_pair_whose_source_has_changed_is_measured_anew_and_no_other(here: Tree) -> None:
    three(here)
    here.run("ch1")
    before = {key: stored(here.folder, key) for key in PAIRS}
    path = here.root / "ch01" / "optimized_b.py"
    path.write_text(path.read_text() + "\n\n\n")
    said: list[str] = []
    here.run("ch1", resume=here.folder, say=said.append)
    assert said == ["ch01:b is measured anew: changed since: optimized_b.py"]
    assert {key for key in PAIRS if stored(here.folder, key) != before[key]} == {"ch01:b"}
    assert sorted(journaled(here.folder)) == sorted(PAIRS)
    here.run("ch1", resume=here.folder, say=said.append)
    assert len(said) == 1  # what was measured anew stands


def test_a_run_is_not_gone_on_with_otherwise(here: Tree) -> None:
    here.pair("ch01:a")
    here.run("ch1")
    path = here.folder / "manifest.json"
    manifest = json.loads(path.read_text())
    name = next(name for name in manifest["sources"] if name.startswith("common/"))
    manifest["sources"][name] = "0" * 64
    path.write_text(json.dumps(manifest))
    done = run_here(here, "--resume", here.folder, "--seed", "8", "--size", "test")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    for told in (name, "--size not given -> test", "--seed 7 -> 8", "--iterations 6 -> 4", "start a new run"):
        assert told in done.stderr
    assert json.loads(path.read_text()) == manifest


# Ctrl-C.


def test_ctrl_c_finishes_the_row_and_writes_the_report(here: Tree, tmp_path: Path) -> None:
    three(here)
    note = tmp_path / "note"
    here.pair("ch01:b", optimized=NOTED.format(note=str(note), seconds=0.1))
    run = start(here)
    until(note.exists)
    os.killpg(run.pid, signal.SIGINT)
    code, out, err = finish(run)
    assert (code, err.count("\n")) == (130, 1), err
    assert "Ctrl-C again stops now" in err
    [folder] = folders(here)
    assert journaled(folder) == ["ch01:a", "ch01:b"]
    assert summary(folder).pairs[1].status == "measured"
    assert summary(folder).not_run == {"ch01:c": "Ctrl-C"}
    assert "not run, Ctrl-C: ch01:c" in out
    assert (folder / "report.html").is_file()
    gone(tmp_path)


@pytest.mark.parametrize("how", ["Ctrl-C", "SIGTERM"])
def test_ctrl_c_twice_or_sigterm_stops_now_and_keeps_what_was_done(here: Tree, tmp_path: Path, how: str) -> None:
    """SIGTERM as `timeout`, a cluster at a job's limit or a container that is stopped send it, and kill later."""
    note = tmp_path / "note"
    here.pair("ch01:a")
    here.pair("ch01:b", optimized=NOTED.format(note=str(note), seconds=600))
    run = start(here)
    until(note.exists)
    if how == "Ctrl-C":
        interrupt_twice(run)
    asked = time.monotonic()
    if how == "SIGTERM":
        run.terminate()
    code, out, err = finish(run)
    assert time.monotonic() - asked < 1 + late_s()
    assert (code, err) == (130, "")
    [folder] = folders(here)
    assert journaled(folder) == ["ch01:a"]
    assert summary(folder).not_run == {"ch01:b": how}
    assert f"not run, {how}: ch01:b" in out
    assert (folder / "report.html").is_file() or how == "Ctrl-C"
    gone(tmp_path)


def test_ctrl_c_while_torch_is_imported_is_no_traceback(here: Tree) -> None:
    here.pair("ch01:a")
    run = start(here)
    until(lambda: list(here.artifacts.glob("*Z/logs")))  # the first worker is asked for, the forkserver not ready
    os.killpg(run.pid, signal.SIGINT)
    code, _, err = finish(run)
    assert (code, err) == (130, "")


# Out of time.


def test_the_suites_time_holds_for_a_step_that_never_lets_python_run_and_resume_runs_it(here: Tree) -> None:
    here.pair("ch01:a")
    started = time.monotonic()
    here.run("ch1")
    limit_s = 2 + 4 * (time.monotonic() - started)  # enough for the first pair, however busy the machine
    here.pair("ch01:b", optimized=doing("if a.numel() > 1000:\n" + indent(SPINS.strip(), "    ")))
    started = time.monotonic()
    done = run_here(here, "--suite-timeout", str(age_s() + limit_s))
    assert limit_s - 2 < time.monotonic() - started < limit_s + late_s()
    assert (done.returncode, done.stderr) == (1, "")
    assert "not run, the suite's time was up while optimized_b was at work: ch01:b" in done.stdout
    folder = folders(here)[-1]
    assert journaled(folder) == ["ch01:a"]
    until(nothing_left)
    here.pair("ch01:b")
    here.folder = folder
    finished = here.run("ch1", resume=here.folder, iterations=4)
    assert [result.key for result in finished.pairs] == journaled(folder) == ["ch01:a", "ch01:b"]
    assert finished.complete


def test_a_suites_time_that_ends_before_a_worker_has_started(here: Tree) -> None:
    """Nor does anything linger that would hold open the pipe to whoever reads along."""
    here.pair("ch01:a")
    started = time.monotonic()
    code, out, err = finish(start(here, "--suite-timeout", "1"))
    assert time.monotonic() - started < 1 + late_s()
    assert (code, out) == (1, "")
    assert err == "benchmark_cli: the suite's time was up before a worker had started\n"


def test_the_suites_time_passes_while_another_holds_the_device(here: Tree) -> None:
    here.pair("ch01:a")
    with hold(None, print, wait=False):
        code, out, err = finish(start(here, "--suite-timeout", "8"))
    assert (code, out) == (4, "")
    waiting, up = err.splitlines()
    for line in (waiting, up):
        assert line.startswith(f"benchmark_cli: the CPU is in use by pid {os.getpid()} (")


# No room to write.


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A file system of 100 kB: room for a run's manifest and a pair or two."""
    place = tmp_path / "full"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=100k", "none", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small file system needs the right to mount one")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_stops_the_suite_with_one_line_and_keeps_what_was_written(
    here: Tree, full: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for letter in "abcde":
        here.pair(f"ch01:{letter}")
    done, err = run_here(here, "--artifacts-dir", full), capfd.readouterr().err
    assert (done.returncode, err.count("\n")) == (1, 1), err
    assert "No space left on device" in err
    [folder] = full.glob("*Z")
    kept = journaled(folder)
    assert 0 < len(kept) < 5
    assert f"`run ... --resume {folder}` goes on from the pairs that are kept" in err
    for key in kept:
        PairResult.model_validate_json(stored(folder, key))
    assert not list(folder.rglob("*.partial"))


# Two runs.


def test_the_second_run_says_who_holds_the_device_and_waits_or_ends_with_4(here: Tree) -> None:
    here.pair("ch01:a")
    with hold(None, print, wait=False):
        done = run_here(here, "--no-wait")
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (4, "", 1)
        assert f"the CPU is in use by pid {os.getpid()} (" in done.stderr
        second = start(here)
        told = second.stderr.readline()
    code, out, err = finish(second)
    assert (code in (0, 1), err) == (True, "")
    assert told.startswith(f"benchmark_cli: the CPU is in use by pid {os.getpid()} (")
    assert told.endswith(": waiting (--no-wait ends with exit code 4 instead)\n")
    assert "ch01:a" in out


def test_each_gpu_has_a_lock_of_its_own_by_its_uuid(here: Tree) -> None:
    with hold("GPU-12ab", print, wait=False), claims(wait=False) as claim:
        claim(None)
        claim("34cd")
        with pytest.raises(Busy, match=f"GPU 12ab is in use by pid {os.getpid()} "):
            claim("12ab")


def test_a_folder_for_temporary_files_with_too_long_a_path_is_told_in_one_line(
    here: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.pair("ch01:a")
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    said = (
        f"benchmark_cli: cannot use {long}: too long a path for the sockets of processes; set TMPDIR to a shorter one"
    )
    code, _, err = finish(start(here))
    assert (code, err.splitlines()) == (2, [said])
    command = [*CLI, "verify", "--root", str(here.root)]
    verified = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=60)
    assert (verified.returncode, verified.stderr.splitlines()) == (2, [said])
