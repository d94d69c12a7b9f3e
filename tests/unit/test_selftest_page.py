"""The page of evidence is made from files, and what decides the exit code of a selftest."""

from pathlib import Path

import pytest

from common.python.base.machine import Machine
from common.python.base.results import Interval, Manifest, Verdict
from tools.selftest import command, page, truth
from tools.selftest.binomial import at_least, fewest
from tools.selftest.drift import HEATED
from tools.selftest.experiments import REPORT, broken, nothing_ran
from tools.selftest.forms import FORMS, FULL, QUICK
from tools.selftest.models import NAMES, Name, Outcome, Promise, Report, Session, Sessions, Standing

ROOT = Path(__file__).resolve().parents[2]
PAGE = "# Evidence\n\n<!-- results:begin -->\n<!-- results:end -->\n"


def report(*experiments: Name, device: str = "NVIDIA H200", hits: int = 200, commit: str = "abc") -> Report:
    host = Machine(hostname="h", system="s", cpu="c", cores=1, memory_gib=1.0, numa_nodes=1, gpus=[])
    about = Manifest(
        started="2026-01-02T03:04:05+00:00", command=[], options={}, targets=[], machine=host, versions={},
        git_commit=commit, git_dirty=False, sources={}, environment={}, seed=1,
    )  # fmt: skip
    promises = [at_least(name, "it | covers", hits, 200, 0.93) for name in experiments]
    return Report(
        manifest=about, device=device, form="full", seconds=dict.fromkeys(experiments, 9.0), promises=promises
    )  # fmt: skip


def written(folder: Path, found: Report) -> Path:
    folder.mkdir(parents=True)
    (folder / REPORT).write_text(found.model_dump_json())
    for name in found.seconds:
        (folder / name).mkdir()
        (folder / name / "plot.svg").write_text(f"<svg>{name}</svg>")
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / page.PAGE).write_text(PAGE)
    return tmp_path


def test_the_page_in_this_tree_is_what_its_files_say() -> None:
    text = (ROOT / page.PAGE).read_text()
    assert page.current(text, ROOT) == text


def test_what_has_no_result_is_not_yet_measured(root: Path) -> None:
    text = page.current(PAGE, root)
    assert text.count("Not yet measured.") == len(NAMES)
    assert all(f"`benchmark_cli selftest --full --only {name}`" in text for name in NAMES)


def test_selftests_are_merged_and_the_later_one_wins(root: Path) -> None:
    first = written(root / "a", report("aa", "truth", hits=150, commit="1" * 40))
    second = written(root / "b", report("aa", commit="2" * 40))
    page.publish([first], root)
    page.publish([second], root)
    text = (root / page.PAGE).read_text()
    assert text.count("Not yet measured.") == len(NAMES) - 2
    aa, truth = text.split("## 2.")[0], text.split("## 2.")[1].split("## 3.")[0]
    assert "commit 222222222222, 2026-01-02T03:04:05+00:00, full form, 9 s." in aa
    assert "| it \\| covers | 100.0% (200 of 200) \\[98.2%, 100.0%\\] | at least 93% of 42 or more | kept |" in aa
    assert "commit 111111111111" in truth
    assert "| refuted |" in truth
    assert (root / "docs/results/h200/selftest_aa.svg").read_text() == "<svg>aa</svg>"
    assert "(results/h200/selftest_aa.svg)" in aa
    assert page.current(text, root) == text


def test_the_first_table_counts_what_each_gpu_keeps(root: Path) -> None:
    """Nothing that failed, was not kept or was not measured may look as if all were well."""
    page.publish([written(root / "a", report("aa", "truth", commit="1" * 40))], root)
    broken_one = report("truth", "drift", "others", "cheats", hits=150, device="NVIDIA H100 80GB HBM3", commit="2" * 40)
    broken_one.failed, broken_one.at_work = {"drift": "no heat"}, "others"
    broken_one.promises = [promise for promise in broken_one.promises if promise.experiment != "cheats"]
    page.publish([written(root / "b", broken_one)], root)
    table = (root / page.PAGE).read_text().split("## 1.")[0]
    assert "| Promises kept | NVIDIA H100 80GB HBM3 | NVIDIA H200 |" in table
    assert "| 1. A variant against itself | not measured | all 1 (1111111) |" in table
    assert "| 2. Known truth | **0 of 1** (2222222) | all 1 (1111111) |" in table
    assert "| 3. Drift | failed (2222222) | not measured |" in table
    assert "| 4. Against what people use today | cut off (2222222) | not measured |" in table
    assert "| 5. Cheats | **0 of 0** (2222222) | not measured |" in table


def test_a_selftest_is_of_the_commit_whose_sources_it_ran(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the tree on another machine may hold what is none of its sources, and is then called changed."""
    ran = report("aa", commit="1" * 40)
    ran.manifest.git_dirty, ran.manifest.sources = True, {"common/a.py": "0ff"}
    folder, another = written(root / "a", ran), sessions(root / "b", report("aa", commit="3" * 40), 0)
    asked: list[dict[str, str]] = []

    def origin(about: Manifest, place: Path) -> tuple[str, bool]:
        asked.append(about.sources)
        return "2" * 40, False

    monkeypatch.setattr(page, "origin", origin)
    page.publish([folder], root)
    assert asked == [{"common/a.py": "0ff"}]
    assert "commit 222222222222, 2026-01-02" in (root / page.PAGE).read_text()
    page.publish([another, sessions(root / "c", report("aa", commit="4" * 40), 0)], root)
    assert "2 selftests pooled: 2 of commit 222222222222; full form" in (root / page.PAGE).read_text()


def test_what_is_published_changes_the_tree_for_none_of_the_others(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tree that differs from its commit by results that are written now is the commit that they were measured at."""
    folders = [written(root / "a", report("truth")), sessions(root / "b", report("aa"), 0)]
    folders.append(sessions(root / "c", report("aa"), 0))
    results = root / "docs" / "results"
    monkeypatch.setattr(page, "origin", lambda about, place: ("2" * 40, results.exists()))
    page.publish(folders, root)
    assert "with changes" not in (root / page.PAGE).read_text()


def test_one_that_is_not_to_be_published_keeps_all_from_it(root: Path) -> None:
    folders = [written(root / "a", report("truth")), written(root / "b", report("truth", device="cpu"))]
    with pytest.raises(ValueError, match="b was measured on a CPU"):
        page.publish(folders, root)
    assert (root / page.PAGE).read_text() == PAGE
    assert not (root / "docs" / "results").exists()


def session(number: int, verdict: Verdict) -> Session:
    low, high = (1.0, 1.2) if verdict == "same" else (1.1, 1.2)
    told = Outcome(
        pair="ch01:a", session=number, above="baseline", below="control", rounds=[0.1] * 4, verdict=verdict,
        interval=Interval(ratio=1.1, low=low, high=high, rounds=4),
    )  # fmt: skip
    return Session(pair="ch01:a", number=number, seconds=1.0, phases={}, outcomes=[told])


def sessions(folder: Path, found: Report, false: int) -> Path:
    written(folder, found)
    verdicts: list[Verdict] = ["faster"] * false + ["same"] * (70 - false)
    kept = Sessions(sessions=[session(number, verdict) for number, verdict in enumerate(verdicts)])
    (folder / "aa" / "aa.json").write_text(kept.model_dump_json())
    return folder


def test_sessions_of_selftests_that_are_published_together_are_judged_together(root: Path) -> None:
    folders = []
    for place, commit, false in (("a", "1" * 40, 0), ("b", "2" * 40, 9), ("c", "2" * 40, 1)):
        folders.append(sessions(root / place, report("aa", commit=commit), false))
    page.publish([*folders, folders[1] / ".." / "b"], root)
    text = (root / page.PAGE).read_text()
    assert (
        "NVIDIA H200, 3 selftests pooled: 1 of commit 111111111111, 2 of commit 222222222222; full form, 27 s" in text
    )
    assert "4.8% (10 of 210)" in text
    assert "| undecided |" not in text.split("## 2.")[0]
    assert "210 sessions of 1 pairs" in text
    assert (root / "docs/results/h200/selftest_aa.svg").read_text() != "<svg>aa</svg>"
    assert page.current(text, root) == text
    page.publish(folders[1:2], root)
    assert "pooled" not in (root / page.PAGE).read_text()


def test_what_is_wrong_with_one_of_the_pooled_selftests_is_said_of_them_all(root: Path) -> None:
    first = report("aa", commit="1" * 40)
    first.manifest.git_dirty = True
    folders = [sessions(root / "a", first, 0), sessions(root / "b", report("aa", commit="2" * 40), 0)]
    page.publish(folders, root)
    assert "1 of commit 222222222222, with changes; full form, 18 s" in (root / page.PAGE).read_text()
    first.failed["aa"] = "the GPU was gone"
    (folders[0] / REPORT).write_text(first.model_dump_json())
    page.publish(folders, root)
    assert "The experiment failed: the GPU was gone" in (root / page.PAGE).read_text()


def test_of_another_form_or_without_a_result_nothing_is_pooled(root: Path) -> None:
    full, quick, cut = report("aa"), report("aa"), report()
    quick.form = "quick"
    folders = [sessions(root / "a", full, 0), sessions(root / "b", quick, 0)]
    with pytest.raises(ValueError, match="of the quick and of the full form are not pooled"):
        page.publish(folders, root)
    assert not (root / page.RESULTS).exists()
    written(root / "c", cut)
    (root / "c" / "aa").mkdir()
    (root / "c" / "aa" / "aa.json").write_text((folders[0] / "aa" / "aa.json").read_text())
    page.publish([folders[0], root / "c"], root)
    assert "pooled" not in (root / page.PAGE).read_text()


def test_an_experiment_that_failed_says_so_on_the_page(root: Path) -> None:
    found = report("aa")
    found.seconds["drift"], found.failed["drift"] = 3.0, "the heater's process has died"
    page.publish([written(root / "a", found)], root)
    assert "The experiment failed: the heater's process has died" in (root / page.PAGE).read_text()


def test_an_experiment_that_was_cut_off_says_so_on_the_page(root: Path) -> None:
    page.publish([written(root / "a", report("aa", "truth").model_copy(update={"at_work": "truth"}))], root)
    _, aa, truth, *_ = (root / page.PAGE).read_text().split("## ")
    assert "9 s. It was cut off: this is what it had found by then." in truth
    assert "cut off" not in aa


@pytest.mark.parametrize("spoil", ["cpu", "missing", "foreign"])
def test_what_is_no_selftest_of_a_gpu_is_one_line(root: Path, spoil: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = written(root / "a", report("aa", device="cpu" if spoil == "cpu" else "NVIDIA H200"))
    if spoil == "missing":
        (folder / REPORT).unlink()
    if spoil == "foreign":
        (folder / REPORT).write_text('{"pairs": []}')
    with pytest.raises(command.usage("").__class__) as ended:
        command.publish_runs([folder], root)
    assert ended.value.exit_code == 2
    error = capsys.readouterr().err
    assert str(folder) in error.splitlines()[-1]
    assert "Traceback" not in error
    assert (root / page.PAGE).read_text() == PAGE


def standing(name: Standing, form: str = "quick") -> Report:
    said = Promise(experiment="aa", promise="p", measured="m", bound="b", standing=name)
    return report().model_copy(update={"promises": [said], "form": form})


@pytest.mark.parametrize(
    ("found", "quick", "full"),
    [("kept", False, False), ("refuted", True, True), ("undecided", False, True), ("not run", False, True)],
)
def test_only_the_full_form_fails_on_what_is_undecided(found: Standing, quick: bool, full: bool) -> None:
    assert bool(broken(standing(found))) == quick
    assert bool(broken(standing(found, "full"))) == full


def test_nothing_ran_where_no_promise_could_be_held_against_a_measurement() -> None:
    assert nothing_ran(report())
    assert nothing_ran(standing("not run"))
    assert not nothing_ran(standing("undecided"))


def test_the_forms_keep_within_their_time() -> None:
    for form, minutes in ((QUICK, 2), (FULL, 20)):
        assert sorted(form.seconds) == sorted(NAMES)
        assert sum(form.seconds.values()) < 0.97 * 60 * minutes, "starting and writing take time too"
    assert FULL.aa_sessions * 10 == 200
    assert FULL.planted_sessions * FULL.planted_copies >= fewest(0.99)
    assert FULL.planted_sessions >= fewest(0.95)
    assert FULL.drift_sessions * FULL.drift_lanes >= fewest(0.95)
    assert FULL.drift_sessions % (2 * len(HEATED)) == 0, "each pair as often hot first as rested first"
    assert (FULL.repeats, FULL.others_pairs) == (20, 10)
    assert (FULL.suite_pairs, FULL.suite_passes) == (20, 5)
    assert FULL.every_pair
    assert truth.LARGEST / truth.LEVER <= 0.1, "of the lever's error, in the truth of the largest slowdown"
    assert FORMS == {"quick": QUICK, "full": FULL}


def test_an_unknown_experiment_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.chosen(None) == []
    assert command.chosen("truth, aa") == ["aa", "truth"]
    with pytest.raises(command.usage("").__class__):
        command.chosen("aa,nonsense")
    assert "--only 'nonsense' is no experiment: name some of aa,truth," in capsys.readouterr().err
