"""A step in a series of times is found, noise alone is not, and the table takes runs and refuses what is no table."""

import json
from pathlib import Path

import numpy as np
import pytest
from synthetic_run import HOSTILE_NAME, manifest, pair, write_run

from common.python.regress.history import COLUMNS, append, change_points, print_history, read
from common.python.report.artifacts import read_run


def noisy(seed: int, points: int = 60) -> np.ndarray:
    return 500 * np.exp(np.random.default_rng(seed).normal(0, 0.004, points))


@pytest.mark.parametrize("at", [3, 30, 57])
def test_a_step_of_3_percent_is_found_within_three_points(at: int) -> None:
    found = [change_points(noisy(seed) * np.where(np.arange(60) < at, 1, 1.03)) for seed in range(20)]
    assert sum(any(abs(point - at) <= 3 for point in points) for points in found) >= 19


def test_sixty_points_of_noise_rarely_change() -> None:
    assert sum(len(change_points(noisy(1000 + seed))) for seed in range(40)) <= 0.15 * 40
    assert change_points([1.0] * 20) == []


def test_runs_are_added_once_and_a_slower_commit_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, page = tmp_path / "history.csv", tmp_path / "page.html"
    for number, us in enumerate(noisy(1, 12)):
        about = manifest().model_copy(
            update={"started": f"2026-01-{number + 1:02}", "git_commit": f"{number // 6}" * 40}
        )
        one = pair({"baseline": 900.0, "optimized": us * (1.05 if number > 5 else 1)}, device=HOSTILE_NAME)
        summary = read_run(write_run(tmp_path / f"{number}", [one, pair({"baseline": 1.0}, name="b")], about)).summary
        assert [append(file, summary, tmp_path) for _ in range(2)] == [1, 1]
    assert len(table := read(file)) == 12
    assert (table["low"] <= table["speedup"]).all()
    print_history(file, page, as_json=False)
    assert "slower since 2026-01-07, commit 000000000000+ -> 111111111111+" in capsys.readouterr().out
    assert "<script>" not in page.read_text()
    assert page.read_text().count("<circle") == 12
    print_history(file, page, as_json=True)
    (change,) = json.loads(capsys.readouterr().out)[0]["changes"]
    assert change["after_us"] / change["before_us"] == pytest.approx(1.05, abs=0.01)
    file.write_text(HEAD)
    with pytest.raises(RuntimeError, match=r"nothing to show: .*history\.csv has no rows"):
        print_history(file, page, as_json=False)


HEAD, ROW = ",".join(COLUMNS) + "\n", "2026-01-02,ch07:a,optimized,H200,n=8,580.1,2.11.0,abc,{},2.0,1.9,2.1\n"
OTHER, NO_TIME = "is no history of runs: `run --history` writes one", "has no time in us in line 3: remove that line"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        *(("", OTHER), ("a,b\n1,2\n", OTHER), (HEAD + "," * 12, OTHER)),
        *((HEAD + ROW.format(1) + row, NO_TIME) for row in ("," * 11, "2026", *map(ROW.format, ("x", "inf", -1)))),
    ],
)
def test_another_file_is_refused_and_kept(text: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "notes.csv"
    file.write_text(text)
    with pytest.raises(ValueError, match=f"notes.csv {told}"):
        read(file)
    with pytest.raises(ValueError, match="both the history and its page"):
        print_history(file, file, as_json=False)
    assert file.read_text() == text
