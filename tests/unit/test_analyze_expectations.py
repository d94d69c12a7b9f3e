"""The tool over whole folders of runs: what it prints and writes, what it refuses, and with which exit code."""

import csv
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from small_tree import cli
from synthetic_run import chapter, manifest, refused, sound, write_run

from common.python.base.results import PairResult
from common.python.regress import expectations
from tools.analysis.analyze_expectations import analyze


@dataclass
class Place:
    """A tree with a chapter, and its artifacts."""

    root: Path

    @property
    def artifacts(self) -> Path:
        return self.root / "artifacts"

    @property
    def kept(self) -> Path:
        return self.root / "ch07" / "expectations_h200.json"

    def run(self, day: int, *pairs: PairResult, **facts: Any) -> Path:
        return write_run(self.artifacts / f"202601{day:02}T000000.000000Z", pairs, manifest(**facts))

    def analyze(self, *words: str | Path) -> tuple[int, list[str], list[str]]:
        command = ["--root", self.root, *(() if "--artifacts-dir" in words else ("--artifacts-dir", self.artifacts))]
        done = cli(*command, *words, tool=analyze)
        return done.returncode, done.stdout.splitlines(), done.stderr.splitlines()

    def files(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in sorted(self.root.glob("ch07/*"))}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)  # the page of the job that tests
    chapter(tmp_path)
    return Place(tmp_path)


@pytest.fixture
def settled(place: Place) -> Place:
    """With the expectations of three runs, whose speedups are 2.000, 2.016 and 2.008."""
    for day, optimized in ((1, 50.0), (2, 49.6), (3, 49.8)):
        place.run(day, sound(optimized))
    code, out, err = place.analyze("--update")
    assert (code, err) == (0, [])
    assert out[-3:-1] == ["wrote ch07/expectations_h200.json", "wrote ch07/README.md"]
    assert out[-1].startswith("ch07:copy: expected from now on 2.01x [")
    return place


def test_an_update_keeps_the_median_of_three_and_the_next_run_is_held_against_it(settled: Place) -> None:
    one = expectations.read(settled.kept).pairs["copy"]
    assert one.runs == 3
    assert one.result.variants[1].device.median == pytest.approx(49.8, rel=1e-3)
    assert "2.01x" in (settled.root / "ch07" / "README.md").read_text()
    settled.run(4, sound(49.8))
    code, out, err = settled.analyze()
    assert (code, err) == (0, [])
    assert out == [
        "ch07:copy  met",
        f"{settled.artifacts}/20260104T000000.000000Z on NVIDIA H200: 1 met",
    ]


def test_a_regression_exits_with_3_where_it_was_asked_for_and_is_in_the_csv(settled: Place) -> None:
    settled.run(4, sound(60.0), refused("failed", "crash", "segfault"))
    table = settled.root / "reports" / "proof.csv"
    before = settled.files()
    for words, code in (
        ((), 0),
        (("--fail-on", "missing,improved"), 0),
        (("--fail-on", "regressed,failed"), 3),
        (("--fail-on", " failed"), 3),
        (("--update", "--provisional", "--fail-on", "regressed"), 3),
    ):
        assert settled.analyze("--output-csv", table, *words)[0] == code
    assert settled.files() == before  # what was refused is not made the new expectation
    lines = list(csv.DictReader(table.open()))
    assert [(line["chapter"], line["pair"], line["status"]) for line in lines] == [
        ("ch07", "copy", "regressed"),
        ("ch08", "crash", "failed"),
    ]
    assert "expected 2.01x" in lines[0]["reason"]
    older = settled.artifacts / "20260103T000000.000000Z"
    assert settled.analyze("--artifacts-dir", older, "--fail-on", "regressed,failed")[0] == 0


def test_fewer_than_three_runs_are_refused_with_how_many_are_found(place: Place) -> None:
    place.run(1, sound(40.0), sources={"common/x.py": "1"})
    place.run(2, sound())
    place.run(3, sound(52.0))
    before = place.files()
    code, _, err = place.analyze("--update")
    assert code == 2
    assert err == [
        "left out 20260101T000000.000000Z: of other sources: common/x.py",
        "analyze_expectations: --update takes 3 runs of the same sources, or --provisional: found 2",
    ]
    assert place.files() == before
    code, out, _ = place.analyze("--update", "--provisional")
    assert code == 0
    assert out[-1].endswith("the median of 2")
    assert expectations.read(place.kept).pairs["copy"].runs == 2
    assert "Provisional: each is of fewer than 3 runs." in (place.root / "ch07" / "README.md").read_text()
    place.run(4, sound(60.0))
    code, out, _ = place.analyze("--fail-on", "regressed")
    assert code == 0
    assert out[0].startswith("ch07:copy  inconclusive")
    assert out[-1].endswith(": 1 inconclusive"), "so that nobody takes the 0 for a pair that holds"


def test_pairs_that_are_not_sound_are_told_of_and_stay_as_they_were(settled: Place) -> None:
    before = settled.files()
    for day in (4, 5, 6):
        settled.run(day, sound(100.0), git_commit="new")
    for folder in sorted(settled.artifacts.iterdir())[:3]:
        shutil.rmtree(folder)
    code, _, err = settled.analyze("--update")
    assert code == 2
    assert err == [
        "ch07:copy: not recorded, 0 sound runs, 3 more needed: it is same, not faster or smaller "
        f"({', '.join(f'2026010{day}T000000.000000Z' for day in (4, 5, 6))})",
        "analyze_expectations: --update recorded nothing: no pair is proven, faster and alone on its GPU often enough",
    ]
    assert settled.files() == before


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--fail-on", "regressed,slow"), "--fail-on 'slow' is not a status: met, improved, regressed, "),
        (("--fail-on", ""), "--fail-on '' is not a status"),
        (("--provisional",), "--provisional goes with --update"),
        (("--artifacts-dir", "/nowhere"), "/nowhere holds no run: name a folder of runs, such as artifacts"),
        (("--output-csv", "/proc/x/y.csv"), "Invalid value for '--output-csv': cannot write /proc/x"),
        (("--output-csv", ""), "Invalid value for '--output-csv': '' names no file"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(settled: Place, words: tuple[str, ...], told: str) -> None:
    code, _, err = settled.analyze(*words)
    assert (code, len(err)) == (2, 1)
    assert err[0].startswith(f"analyze_expectations: {told}")
