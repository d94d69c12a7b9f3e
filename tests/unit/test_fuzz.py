"""What is read back is of the right type, or refused with one type of error in one short line; never a traceback.

What the damage is, fuzz.py says. That the commands end with 2 and one line is tested on their own entry points.
"""

import json
import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from fuzz import SOURCES, VALUES, damaged, dumped, examples
from hypothesis import given
from hypothesis import strategies as st
from small_tree import cli
from synthetic_run import ROOT, pair, summary, write_run, written

from common.python.base import lock
from common.python.base.results import Manifest, PairResult
from common.python.base.safe_read import read_model
from common.python.base.text import clean
from common.python.corpus.discovery import find_pairs
from common.python.peaks.store import Survey
from common.python.peaks.store import load as load_peaks
from common.python.regress.expectations import Expectations
from common.python.regress.expectations import read as read_expectations
from common.python.regress.runs import made_of
from common.python.report.artifacts import Run, read_journal, read_run
from common.python.run.resume import go_on

RESULTS = "ch07_copy/results/benchmark_test_results.json"
LONGEST = 600  # characters of a refusal, which quotes at most 200 of the file and a path


@dataclass(frozen=True)
class Reader:
    """A file of a run's folder, and how it is read."""

    file: str
    read: Callable[[Path], object]
    gives: type


READERS = {
    "summary": Reader("summary.json", read_run, Run),
    "samples": Reader(RESULTS, read_run, Run),
    "peaks with a run": Reader("peaks.json", read_run, Run),
    "journal": Reader("journal.jsonl", read_journal, list),
    "journaled": Reader(RESULTS, read_journal, list),
    "peaks": Reader("peaks.json", lambda folder: load_peaks(folder / "peaks.json"), Survey),
    "manifest": Reader("manifest.json", lambda folder: read_model(folder / "manifest.json", Manifest), Manifest),
    "expectations": Reader(
        "expectations_h200.json", lambda folder: read_expectations(folder / "expectations_h200.json"), Expectations
    ),
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A small run, with all that is ever read back of one."""
    pairs = [pair({"baseline": 400.0, "optimized": 50.0}, plan={"rounds": 3, "a_round": 1})]
    folder = write_run(tmp_path / "run", pairs)
    line = {"pair": "ch07:copy", "status": "measured", "verdict": "faster", "folder": "ch07_copy"}
    (folder / "journal.jsonl").write_text(json.dumps(line) + "\n")
    about = summary(pairs).manifest
    (folder / "manifest.json").write_text(about.model_dump_json())
    expectations = Expectations(schema_version=2, gpu="NVIDIA H200", pairs={"copy": made_of([(pairs[0], about)], ROOT)})
    (folder / "expectations_h200.json").write_text(expectations.model_dump_json())
    return folder


def assert_one_line(message: str) -> None:
    assert message.isprintable(), message
    assert 0 < len(message) < LONGEST, message[:LONGEST]


def read_or_refuse(reader: Reader, folder: Path) -> object:
    """What the reader gives, or the message of the one error that it may raise."""
    try:
        found = reader.read(folder)
    except ValueError as error:
        found = str(error)
        assert_one_line(found)
        assert str(folder) in found
        return found
    assert isinstance(found, reader.gives)
    return found


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_read_or_refused_in_one_line(name: str, run: Path) -> None:
    reader = READERS[name]
    path = run / reader.file
    whole = path.read_bytes()
    assert isinstance(read_or_refuse(reader, run), reader.gives)
    outcomes = set()

    @examples(60)
    @given(damaged(whole))
    def holds(content: bytes) -> None:
        path.write_bytes(content)
        outcomes.add(type(read_or_refuse(reader, run)))

    holds()
    assert str in outcomes


def test_a_damaged_run_is_gone_on_with_or_refused_in_one_line(run: Path) -> None:
    about = read_model(run / "manifest.json", Manifest)
    whole = {name: (run / name).read_bytes() for name in ("journal.jsonl", "manifest.json", RESULTS)}
    outcomes = set()

    @examples(60)
    @given(st.sampled_from(sorted(whole)).flatmap(lambda name: st.tuples(st.just(name), damaged(whole[name]))))
    def holds(damage: tuple[str, bytes]) -> None:
        for name, content in whole.items():
            (run / name).write_bytes(content)
        (run / damage[0]).write_bytes(damage[1])
        said: list[str] = []
        try:
            results, _ = go_on(run, about, said.append)
            assert all(isinstance(result, PairResult) for result in results)
            outcomes.add(type(results))
        except ValueError as error:
            assert_one_line(str(error)[: LONGEST - 1])  # all that differs between two runs may be much
            outcomes.add(ValueError)
        for line in said:
            assert_one_line(line)

    holds()
    assert outcomes == {list, ValueError}


def test_whatever_a_lock_file_holds_its_holder_is_told_in_one_line(tmp_path: Path) -> None:
    """Everybody may write in the folder for temporary files."""
    path = tmp_path / "x.lock"
    honest = dumped({"pid": 7, "command": "run ch7", "started": "2026-01-02T03:04:05+00:00"})

    @examples(100)
    @given(damaged(honest) | st.fixed_dictionaries(dict.fromkeys(("pid", "command", "started"), VALUES)).map(dumped))
    def holds(content: bytes) -> None:
        path.write_bytes(content)
        with path.open("rb") as file:
            assert_one_line(lock.holder(file))

    holds()
    path.write_bytes(honest)
    with path.open("rb") as file:
        assert lock.holder(file) == "pid 7 (run ch7), since 2026-01-02T03:04:05+00:00"


@examples(100)
@given(SOURCES)
def test_whatever_a_pairs_file_holds_is_a_variant_or_a_problem(source: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ch07" / "baseline_x.py"
        path.parent.mkdir()
        path.write_bytes(source)
        [found] = find_pairs(Path(folder))
    [variant] = found.variants
    if variant.problem is not None:
        assert_one_line(clean(variant.problem))


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("kind", ["folder", "pipe", "loop", "device", "too large", "nothing"])
def test_what_is_no_file_or_too_large_is_refused_at_once(
    name: str, kind: str, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("common.python.base.safe_read.MOST_BYTES", 100_000)
    reader = READERS[name]
    path = run / reader.file
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "too large":
        path.write_bytes(b" " * 100_001)
    found = read_or_refuse(reader, run) if (kind, name) != ("nothing", "peaks") else "no peaks"
    assert isinstance(found, str) or (kind, name) == ("nothing", "peaks with a run")


@pytest.mark.parametrize("name", ["../ch07_copy", "{there}/ch07_copy", "a/../../ch07_copy", "..", ".", "", "x\0y"])
def test_a_journal_that_names_a_folder_outside_its_run_is_refused(name: str, run: Path) -> None:
    write_run(run.parent, [pair({"baseline": 4.0, "optimized": 2.0}, plan={"rounds": 2})])
    named = name.format(there=run.parent)
    (run / "journal.jsonl").write_text(json.dumps({"pair": "ch07:copy", "folder": named}) + "\n")
    with pytest.raises(ValueError, match="names a folder outside it"):
        read_journal(run)


@pytest.mark.parametrize(
    ("chapter", "name"), [("../ch07", "copy"), ("/etc/ch07", "copy"), ("ch07", "/../../ch07_copy")]
)
def test_a_summary_that_names_a_folder_outside_its_run_is_refused(chapter: str, name: str, run: Path) -> None:
    write_run(run.parent, [pair({"baseline": 4.0, "optimized": 2.0}, plan={"rounds": 2})])
    about = json.loads((run / "summary.json").read_bytes())
    about["pairs"][0] |= {"chapter": chapter, "name": name}
    (run / "summary.json").write_bytes(dumped(about))
    with pytest.raises(ValueError, match="names a folder outside it"):
        read_run(run)


@pytest.mark.parametrize(
    "place", ["ch07_copy", "ch07_copy/results", "report.html.partial", "ch07_copy/logs", "journal"]
)
@pytest.mark.parametrize("read", [read_run, read_journal])
def test_a_run_with_a_symbolic_link_in_it_is_refused(read: Callable[[Path], object], place: str, run: Path) -> None:
    moved, link = run.parent / "elsewhere", run / place
    if link.exists():
        link.rename(moved)
    link.symlink_to(moved)
    with pytest.raises(ValueError, match=r"is a symbolic link: a run's folder has none"):
        read(run)


# Targets.


@pytest.mark.parametrize("command", ["show", "list", "run", "verify"])
@pytest.mark.parametrize(
    "target",
    [
        "ch07:transpose\nch08:x",
        "\x1b[31mch07\x1b[0m",
        "ch07:" + "a" * 100_000,
        "ch" + "9" * 100_000,
        "ch\u0667",
        "../../etc/passwd",
        "ch07/../../../etc/baseline_passwd.py",
        "ch07:transpose; touch owned",
        "$(touch owned)",
        "\u202ech07",
        "\ud800",
        "ch07:\u00fcml\u00e4ut",
        "\x00",
    ],
)
def test_a_hostile_target_is_a_usage_error_in_one_printable_line(command: str, target: str, tmp_path: Path) -> None:
    root = written(tmp_path, {f"ch07/{role}_transpose.py": '"""Rows."""\n' for role in ("baseline", "optimized")})
    done = cli(command, target, "--root", root)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("\n")
    assert done.stderr.count("\n") == 1
    assert done.stderr[:-1].isprintable()
    assert len(done.stderr) < 3000
    assert re.search("is not a target|is not a pair|does not exist", done.stderr)
