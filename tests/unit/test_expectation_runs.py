"""Only sound runs of the same sources in the same environment make an expectation, and of these the median does."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic_run import ROOT, STARTED, blocks, manifest, pair, refused, sound, write_run

from common.python.base.results import Interval, Manifest, PairResult, Proof, Telemetry
from common.python.regress.runs import alike, doubt, expectations_of, made_of, over_runs, run_folders, where_further
from common.python.report.artifacts import followed, mark_latest, read_run

WIDE = {"baseline": 100.0, "optimized": 50.0, "optimized__wide": 40.0}


def runs_of(tmp_path: Path, *pairs: PairResult | list[PairResult], about: Manifest | None = None) -> list[Path]:
    """A folder of runs, oldest first, of a pair or several each."""
    for index, one in enumerate(pairs):
        write_run(tmp_path / f"2026010{index + 1}T000000.000000Z", one if isinstance(one, list) else [one], about)
    return run_folders(tmp_path)


def test_the_newest_run_is_the_last_by_name_and_an_unfinished_one_is_not_passed_over(tmp_path: Path) -> None:
    folders = runs_of(tmp_path, sound(), sound())
    copy = write_run(tmp_path / "before-update", [sound()])  # of an older run, under another name
    assert run_folders(copy) == [copy]
    (tmp_path / "peaks").mkdir()
    (tmp_path / "20260103T000000.000000Z").mkdir()  # what `build` leaves
    assert run_folders(tmp_path) == folders
    assert run_folders(folders[0]) == folders[:1]
    (tmp_path / "20260103T000000.000000Z" / "manifest.json").write_text("{}")
    assert run_folders(tmp_path)[-1].name == "20260103T000000.000000Z"


HASHES = {"common/python/a.py": "1", "ch07/baseline_copy.py": "2", "ch07/helpers.py": "5"}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"sources": {**HASHES, "ch08/baseline_x.py": "3"}}, None),  # another target
        ({"sources": {**HASHES, "ch07/baseline_copy.py": "9"}}, None),  # that pair's matter alone
        ({"sources": {**HASHES, "ch07/helpers.py": "9"}}, None),  # that of the pairs beside it
        ({"sources": {**HASHES, "common/python/report/new.py": "4"}}, None),  # it writes about times, and takes none
        ({"sources": {**HASHES, "common/python/new.py": "4"}}, "of other sources: common/python/new.py"),
        ({"sources": {"common/python/a.py": "8", "common/b.py": "9"}}, "common/b.py and others"),
        ({"versions": {"torch": "2.10.0"}}, "of another environment: torch 2.10.0 -> 2.11.0"),
    ],
)
def test_runs_are_alike_if_their_sources_and_environment_are(
    tmp_path: Path, changes: dict[str, Any], reason: str | None
) -> None:
    old = write_run(tmp_path / "1", [sound()], manifest(**{"sources": HASHES, **changes}))
    new = write_run(tmp_path / "2", [sound()], manifest(sources=HASHES))
    runs, told = alike([old, new], read_run(new))
    assert [run.folder for run in runs] == ([new] if reason else [old, new])
    assert [line.startswith("1: ") and reason in line for line in told if reason] == [True] * bool(reason)


def test_a_run_of_other_files_of_a_pair_is_left_out_for_that_pair_alone(tmp_path: Path) -> None:
    other = sound(name="other")
    files = {f"ch07/{role}_{name}.py": "2" for role in ("baseline", "optimized") for name in ("copy", "other")}
    files |= {"common/x.py": "1", "ch07/optimized_copy.cu": "3"}
    folders = [tmp_path / f"2026010{day}T000000.000000Z" for day in range(1, 5)]
    for folder, path in zip(folders, ("ch07/optimized_copy.cu", "ch07/optimized_copy.py", None, None)):
        write_run(folder, [sound(), other], manifest(sources=files | ({path: "9"} if path else {})))
    runs, told = alike(folders, read_run(folders[-1]))
    assert (len(runs), told) == (4, [])
    chosen, told = expectations_of(runs, ROOT, False)
    assert [(one.result.key, one.runs) for one in chosen] == [("ch07:other", 4)]
    assert told == [
        "ch07:copy: not recorded, 2 sound runs, 1 more needed: it is of other sources: optimized_copy.cu "
        f"({folders[0].name}); it is of other sources: optimized_copy.py ({folders[1].name})"
    ]


def test_a_damaged_run_is_left_out_and_told_of(tmp_path: Path) -> None:
    folders = runs_of(tmp_path, sound(), sound())
    (folders[0] / "summary.json").write_text("{")
    runs, told = alike(folders, read_run(folders[1]))
    assert len(runs) == 1
    assert "summary.json is damaged or foreign" in told[0]


def with_telemetry(state: Telemetry, discarded: str | None = None) -> PairResult:
    found = sound()
    found.blocks[3].telemetry, found.blocks[3].discarded = state, discarded
    return found


FAILED = {"status": "failed", "reason": "segfault"}
REFUTED = [Proof(size="bench", when="before timing"), Proof(size="bench", when="after timing", reason="off")]
OFF = Interval(ratio=2.0, low=1.99, high=2.01, rounds=4)


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (lambda: sound(), None),
        (lambda: sound(100.0), "it is same, not faster or smaller"),
        (lambda: sound(200.0), "it is slower"),
        (lambda: sound(100.0, goal="memory"), None),
        (lambda: sound(plan={"rounds": 2}), "it is inconclusive"),
        (lambda: refused("failed", "copy", "segfault"), "it failed: segfault"),
        (lambda: refused("unsupported", "copy", "needs sm_100"), "it is unsupported: needs sm_100"),
        (lambda: sound(control_us=150.0), "it is too noisy, not"),
        (
            lambda: pair(WIDE, rows={"optimized__wide": FAILED}),
            "it failed: optimized_copy__wide: segfault",
        ),
        (lambda: sound(device="cpu"), "it was measured on the CPU"),
        (lambda: sound(size="test"), "its size is test, not bench"),
        (lambda: sound(rows={"optimized": {"proofs": []}}), "optimized_copy holds no proof"),
        (lambda: sound(rows={"optimized": {"proofs": REFUTED}}), "optimized_copy holds no proof"),
        (lambda: sound(blocks=blocks({"baseline_copy": 100.0, "optimized_copy": 50.0})), "its control is missing"),
        (lambda: sound().model_copy(update={"control": OFF}), "its control is missing or reads other than 1"),
        (lambda: with_telemetry(Telemetry(other_processes=1)), "other processes were on the GPU"),
        (lambda: with_telemetry(Telemetry(other_processes=1), "GPU slowed"), None),
        (lambda: with_telemetry(Telemetry()), None),  # NVML refused
    ],
)
def test_only_a_proven_gain_on_a_gpu_of_its_own_is_sound(result: Callable[[], PairResult], reason: str | None) -> None:
    found = doubt(result(), manifest())
    assert found is None if reason is None else found is not None and found.startswith(reason)


@pytest.mark.parametrize(
    ("times", "kept"),
    [((50.0, 40.0, 48.0), 48.0), ((50.0, 40.0, 48.0, 45.0), 48.0), ((50.0, 40.0), 50.0), ((40.0,), 40.0)],
)
def test_the_median_is_kept_and_never_the_best(times: tuple[float, ...], kept: float) -> None:
    outcomes = [(sound(us), manifest(started=f"of {us}")) for us in times]
    one = made_of(outcomes, ROOT)
    assert (one.measured, one.runs) == (f"of {kept}", len(times))
    middle = float(np.median([100 / us for us in times])) if len(times) >= 3 else 100 / kept
    assert one.gain.ratio == pytest.approx(middle, rel=2e-3)


def test_where_memory_is_the_goal_the_median_is_of_memory() -> None:
    outcomes = []
    for index, peak in enumerate((3e9, 1e9, 2e9)):
        found = sound(100.0 - index, goal="memory")
        why = found.variants[1].why
        assert why is not None
        found.variants[1].memory_ratio = 4e9 / peak
        outcomes.append((found, manifest(started=str(index))))
    one = made_of(outcomes, ROOT)
    assert one.measured == "2"
    assert one.memory_ratio == where_further(over_runs([4 / 3, 4.0, 2.0]))
    assert (one.memory_ratio.ratio, one.memory_ratio.rounds) == (pytest.approx(2.0), 3)
    assert made_of(outcomes[:2], ROOT).memory_ratio is None, "two runs do not say where a third lies"
    assert made_of([(sound(), manifest())] * 3, ROOT).memory_ratio is None, "its goal is speed"


def test_an_interval_over_runs_shows_what_no_run_can_see() -> None:
    found = over_runs([2.0, 2.0 * 1.02, 2.0 * 1.04])
    half = 4.302653 * np.std(np.log([1.0, 1.02, 1.04]), ddof=1) / math.sqrt(3)
    assert (found.ratio, found.rounds) == (pytest.approx(2.04), 3)
    assert (math.log(found.high / 2.04), math.log(2.04 / found.low)) == pytest.approx((half, half))
    with pytest.raises(ValueError, match="needs two"):
        over_runs([2.0])


def test_the_interval_of_a_time_is_where_a_further_runs_lies() -> None:
    random = np.random.default_rng(7)
    inside = 0
    for logs in random.normal(0, 0.02, (4000, 4)):
        found = where_further(over_runs([50.0 * math.exp(log) for log in logs[:3]]))
        inside += found.low <= 50.0 * math.exp(logs[3]) <= found.high
    assert inside / 4000 == pytest.approx(0.95, abs=0.02)


def test_a_pair_needs_three_sound_runs_or_the_word_provisional(tmp_path: Path) -> None:
    contended = with_telemetry(Telemetry(other_processes=2))
    wide = pair(WIDE, name="wide")
    nights = [[sound(), sound(name="wide")], [contended, wide], [sound(), wide], [sound(), wide]]
    folders = runs_of(tmp_path, *nights)
    runs = [read_run(folder) for folder in folders]
    chosen, told = expectations_of(runs, ROOT, provisional=False)
    assert [(one.result.key, one.runs) for one in chosen] == [("ch07:copy", 3), ("ch07:wide", 3)]
    contention = "other processes were on the GPU (20260102T000000.000000Z)"
    other = "its shape, clock, goal or variants are not those of the newest run (20260101T000000.000000Z)"
    assert told == [f"ch07:copy: left out: {contention}", f"ch07:wide: left out: {other}"]
    chosen, told = expectations_of(runs[1:], ROOT, provisional=False)
    assert [one.result.key for one in chosen] == ["ch07:wide"]
    assert told == [f"ch07:copy: not recorded, 2 sound runs, 1 more needed: {contention}"]
    chosen, told = expectations_of(runs[:2], ROOT, provisional=True)
    assert [(one.result.key, one.runs) for one in chosen] == [("ch07:copy", 1), ("ch07:wide", 1)]
    assert chosen[0].measured == STARTED
    assert expectations_of(runs[3:], ROOT, provisional=False)[1] == [
        f"ch07:{name}: not recorded, 1 sound run, 2 more needed" for name in ("copy", "wide")
    ]


# A run's folder is read back whole, or refused in one line.


def test_a_run_without_peaks_has_those_of_the_datasheet_if_there_is_one(tmp_path: Path) -> None:
    for device, source in (("NVIDIA H200", "datasheet of H200"), ("cpu", None), (None, None)):
        folder = write_run(tmp_path / str(device), [pair({"baseline": 400.0}, device=device)])
        (folder / "peaks.json").unlink()
        peaks = read_run(folder).peaks
        assert (peaks.source if peaks else None) == source


def test_a_run_of_another_schema_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has schema version 99: this harness reads"):
        read_run(write_run(tmp_path, [], schema_version=99))


def test_latest_names_the_run_that_was_marked_last(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / name, []) for name in ("20260101T000000Z", "20260102T000000Z")]
    for folder in folders:
        mark_latest(folder)
    latest = tmp_path / "latest"
    assert followed(latest) == folders[1]
    assert followed(folders[0]) == folders[0]
    assert run_folders(tmp_path) == folders
    assert {path.name for path in tmp_path.iterdir()} == {"latest", *(folder.name for folder in folders)}
