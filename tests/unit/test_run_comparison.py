"""Two runs are compared by what they measured alone, and what differs around them comes first."""

import json
from pathlib import Path
from typing import Any

import pytest
from synthetic_run import HOSTILE_NAME, every_kind, manifest, pair, write_run

from common.python.base.results import Manifest, PairResult, Telemetry
from common.python.regress.run_comparison import WARNING, VariantChange, compare_runs, print_comparison
from common.python.report.artifacts import Run, read_run

US = {"baseline": 100.0, "optimized": 50.0}
OPTIONS = manifest().options


def run(folder: Path, pairs: list[PairResult], about: Manifest | None = None) -> Run:
    return read_run(write_run(folder, pairs, about))


def changes(tmp_path: Path, a: PairResult, b: PairResult) -> dict[str, VariantChange]:
    found = compare_runs(run(tmp_path / "a", [a]), run(tmp_path / "b", [b]))
    return {change.variant: change for change in found.changes}


def test_times_are_compared_between_the_runs_and_speedups_within_each(tmp_path: Path) -> None:
    found = changes(tmp_path, pair(US), pair({"baseline": 110.0, "optimized": 50.0}))
    baseline, optimized = found["baseline_copy"], found["optimized_copy"]
    assert (baseline.a_us, baseline.b_us) == pytest.approx((100.0, 110.0), rel=2e-3)
    assert baseline.ratio.low < 100 / 110 < baseline.ratio.high < 0.92
    assert (baseline.reads, optimized.reads) == ("slower", "same")
    assert (baseline.a_gain, baseline.gain) == ("", None)
    assert optimized.a_gain.startswith("2.00x [")
    assert optimized.b_gain.startswith("2.20x [")
    assert optimized.gain.low < 1.1 < optimized.gain.high < 1.11


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (pair(US, control_us=150.0), "too noisy in B: the control, baseline against itself, reads"),
        (pair(US, rows={"optimized": {"status": "unsupported", "reason": "needs sm_100"}}), "unsupported in B: needs"),
        (pair(US, size="test"), "another size, shape or clock"),
        (pair(US, shape={"n": 1}), "another size, shape or clock"),
    ],
)
def test_what_may_not_be_compared_says_why(tmp_path: Path, other: PairResult, reason: str) -> None:
    found = changes(tmp_path, pair(US), other)["optimized_copy"]
    assert found.reason.startswith(reason)
    assert (found.a_us, found.ratio, found.reads, found.gain) == (None, None, None, None)


def test_what_lacks_times_in_both_for_one_reason_says_so_once(tmp_path: Path) -> None:
    lacking = pair(US, rows={"optimized": {"status": "unsupported", "reason": "needs sm_100"}})
    assert changes(tmp_path, lacking, lacking)["optimized_copy"].reason == "unsupported in both: needs sm_100"


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"versions": {"torch": "2.12.0"}}, ["torch 2.11.0 -> 2.12.0"]),
        ({"versions": {"torch": "2.11.0", "numpy": "2"}}, ["numpy unknown -> 2"]),
        ({"git_commit": "def456", "git_dirty": False}, ["commit abc123 -> def456", "uncommitted changes yes -> no"]),
        ({"options": {**OPTIONS, "budget_s": 6.0}}, ["--budget 3.0 -> 6.0"]),
        (
            {"options": {**OPTIONS, "figure": "n=8", "cold_start": True}},
            ["--set unknown -> n=8", "--cold-start unknown"],
        ),
        ({"options": {**OPTIONS, "resume": "x", "artifacts_dir": "y"}}, []),
        ({"environment": {}}, ["environment CUDA_MODULE_LOADING LAZY -> unknown"]),
        ({"seed": 8, "started": "2027-01-01T00:00:00+00:00"}, []),
        ({"sources": {"a.py": "2", "c.py": "1"}}, ["sources changed: a.py"]),
        ({"sources": {f"{n}.py": "2" for n in range(7)}}, ["sources changed: 0.py, "]),
    ],
)
def test_what_differs_around_the_runs_is_named(tmp_path: Path, changed: dict[str, Any], told: list[str]) -> None:
    before = {"sources": {"a.py": "1", "b.py": "1"} | {f"{n}.py": "1" for n in range(7)}}
    a = run(tmp_path / "a", [pair(US)], manifest(**before))
    b = run(tmp_path / "b", [pair(US)], manifest(**{**before, **changed}))
    found = compare_runs(a, b).differences
    assert len(found) == len(told)
    assert all(line.startswith(start) for line, start in zip(found, told))
    if "0.py" in "".join(told):
        assert found[0].endswith("4.py and 2 more")


def test_clock_and_pace_are_of_the_pairs_that_both_have(tmp_path: Path) -> None:
    slow, other = pair(US), pair(US, name="other")
    for block in slow.blocks:
        block.telemetry, block.paces = Telemetry(sm_mhz=1500), [30.0]
    before = pair(US)
    for block in before.blocks:
        block.paces = [23.0]
    for block in other.blocks:
        block.telemetry = Telemetry(sm_mhz=100)
    found = compare_runs(run(tmp_path / "a", [before]), run(tmp_path / "b", [slow, other]))
    assert found.differences == ["SM clock 1980 -> 1500 MHz", "host pace 23 -> 30 us"]


def test_environment_comes_first_and_the_warning_always(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = write_run(tmp_path / "a", [pair(US), pair(US, name="old")])
    b = write_run(tmp_path / "b", [pair({**US, "optimized": 40.0})], manifest(git_commit="def456"))
    print_comparison(a, b, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [f"A: {a}", f"B: {b}", "differs: commit abc123 -> def456", "only in A: ch07:old"]
    assert any("50.0 us -> 40.0 us" in line and "1.25x" in line and "faster" in line for line in lines)
    assert lines[-1] == WARNING
    print_comparison(a, a, as_json=False)
    assert "differs: nothing that is recorded" in capsys.readouterr().out
    print_comparison(a, b, as_json=True)
    parsed = json.loads(capsys.readouterr().out)
    assert parsed["changes"][1]["ratio"]["ratio"] == pytest.approx(1.25, rel=2e-3)
    assert "drift is not controlled" in parsed["warning"]


def test_foreign_names_reach_no_terminal_and_no_markup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = (write_run(tmp_path / name, pairs) for name, pairs in (("a", every_kind()), ("b", every_kind()[-1:])))
    print_comparison(b, a, as_json=False)
    shown = capsys.readouterr().out
    b = write_run(tmp_path / "c", [pair(US)])
    print_comparison(a, b, as_json=False)
    shown += capsys.readouterr().out
    assert "only in A: ch07:<script>" in shown
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "[31m" in shown
    assert HOSTILE_NAME.isprintable() is False
