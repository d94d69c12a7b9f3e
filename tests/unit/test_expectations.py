"""Expectations become a chapter's file and its README's table, are read back, and say of how many runs they are."""

import json
import subprocess
from pathlib import Path

import pytest
from synthetic_run import manifest, pair

from common.python.base.manifest import digest, git_state
from common.python.base.results import Interval, Manifest
from common.python.regress import expectations
from common.python.regress.expectations import Expectation
from common.python.regress.runs import made_of
from common.python.report.markdown import escaped
from common.python.report.rows import interval_text

ROOT = Path(__file__).resolve().parents[2]
README = "# Chapter\n\n<!-- results:begin -->\nold\n<!-- results:end -->\n"


def expected(name: str = "copy", runs: int = 3, optimized: float = 40.0, about: Manifest | None = None) -> Expectation:
    found = pair({"baseline": 100.0, "optimized": optimized, "peer__lib": 50.0}, name=name, log="noise")
    return made_of([(found, about or manifest())] * runs, ROOT)


def chapter(root: Path) -> Path:
    (root / "ch07").mkdir()
    (root / "ch07" / "README.md").write_text(README)
    return root / "ch07"


def test_an_expectation_is_kept_under_its_gpu_with_what_it_depends_on_and_shown_in_the_readme(tmp_path: Path) -> None:
    folder = chapter(tmp_path)
    about = manifest(versions={"torch": "2.11.0", "triton": "3.6.0", "nvcc": "13.0"})
    written = expectations.record(tmp_path, [expected(about=about)])
    assert written == [folder / "expectations_h200.json", folder / "README.md"]
    kept = expectations.read(written[0])
    one = kept.pairs["copy"]
    assert (kept.schema_version, kept.gpu, one.runs) == (2, "NVIDIA H200", 3)
    assert (one.commit, one.driver, one.power_limit_w, one.sm_mhz, one.cpu) == ("abc123", "580", 700.0, 1980.0, "a CPU")
    assert one.versions == {"torch": "2.11.0", "triton": "3.6.0", "nvcc": "13.0"}
    assert one.gain is not None
    assert one.time is not None
    assert (one.gain.ratio, one.time.us) == pytest.approx((2.5, 40.0), rel=2e-3)
    peer = one.result.peer_ratio
    assert peer is not None
    assert peer.low < 1.25 < peer.high
    assert one.result.variants[1].percent_of_limit == pytest.approx(50.0, rel=2e-3)
    assert (one.result.log, one.result.blocks, one.result.variants[0].proofs) == ("", [], [])
    readme = (folder / "README.md").read_text()
    assert "2.50x" in readme
    assert "old" not in readme


def test_pairs_that_were_not_run_again_stay_and_the_table_names_what_is_provisional(tmp_path: Path) -> None:
    folder = chapter(tmp_path)
    expectations.record(tmp_path, [expected("copy")])
    assert "Provisional" not in (folder / "README.md").read_text()
    expectations.record(tmp_path, [expected("transpose", runs=2)])
    assert list(expectations.read(folder / "expectations_h200.json").pairs) == ["copy", "transpose"]
    assert "the interval over runs. Provisional, from fewer runs: transpose." in (folder / "README.md").read_text()


def test_the_line_that_speaks_for_a_pair_has_the_speedup_over_all_runs() -> None:
    several, one = expected(), expected(runs=1)
    wide = several.model_copy(update={"speedup": Interval(ratio=2.4, low=1.3, high=4.4, rounds=3)})
    lines = [
        expectations.table(expectations.Expectations(schema_version=2, gpu="NVIDIA H200", pairs={"copy": pair}))
        for pair in (wide, one)
    ]
    shown = escaped(interval_text(wide.speedup)) if wide.speedup else ""
    assert f"| faster | {shown} |" in lines[0]
    assert shown not in lines[1]
    assert wide.result.variants[1].speedup == several.result.variants[1].speedup, "what is kept stays as it was"


def test_a_file_of_the_first_schema_is_read_as_of_one_run_and_becomes_one_of_the_second(tmp_path: Path) -> None:
    folder = chapter(tmp_path)
    result = json.loads(expected(runs=1).result.model_dump_json(exclude_defaults=True))
    old = {"measured": "2026-01-01", "commit": None, "dirty": None, "versions": {"torch": "2"}, "driver": "570"}
    path = folder / "expectations_h200.json"
    path.write_text(json.dumps({"gpu": "NVIDIA H200", "pairs": {"copy": {**old, "result": result}}}))
    kept = expectations.read(path)
    one = kept.pairs["copy"]
    assert (kept.schema_version, one.runs, one.power_limit_w, one.time) == (1, 1, None, None)
    assert one.gain == one.result.variants[1].speedup
    assert "Provisional" in expectations.table(kept)
    assert {name for name, fact in one.facts().items() if fact is None} >= {"power limit", "CPU", "CUDA"}
    expectations.record(tmp_path, [expected("transpose")])
    kept = expectations.read(path)
    assert (kept.schema_version, kept.pairs["copy"]) == (2, one)


def test_the_spread_of_a_memory_ratio_is_kept_and_a_file_without_it_is_read(tmp_path: Path) -> None:
    folder = chapter(tmp_path)
    found = [pair({"baseline": 100.0, "optimized": 90.0}, goal="memory") for _ in range(3)]
    for one, ratio in zip(found, (3.0, 4.0, 5.0)):
        one.variants[1].memory_ratio = ratio
    path = expectations.record(tmp_path, [made_of([(one, manifest()) for one in found], ROOT)])[0]
    kept = expectations.read(path).pairs["copy"].memory_ratio
    assert kept is not None
    assert (kept.ratio, kept.rounds, kept.low < 3.0, kept.high > 5.0) == (pytest.approx(4.0), 3, True, True)
    old = json.loads(path.read_text())
    del old["pairs"]["copy"]["memory_ratio"]
    path.write_text(json.dumps(old))
    assert expectations.read(path).pairs["copy"].memory_ratio is None
    assert folder == path.parent


def test_nothing_is_written_for_a_readme_without_a_place_for_the_table_or_what_is_no_chapter(tmp_path: Path) -> None:
    folder = chapter(tmp_path)
    (folder / "README.md").write_text("# Chapter\n")
    with pytest.raises(ValueError, match="the text must hold"):
        expectations.record(tmp_path, [expected()])
    one = expected()
    one.result.chapter = "../ch07"
    with pytest.raises(ValueError, match=r"'\.\./ch07' is no chapter"):
        expectations.record(tmp_path, [one])
    assert [path.name for path in folder.iterdir()] == ["README.md"]


def test_a_run_without_a_repository_is_of_this_commit_only_if_its_files_are(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1")
    same = manifest(git_commit=None, sources={"a.py": digest(tmp_path / "a.py")})
    other = manifest(git_commit=None, sources={"a.py": "0" * 64})
    gone = manifest(git_commit=None, sources={"b.py": "0" * 64})
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        who = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", "-C", str(tmp_path), *who, *command], check=True)
    assert expectations.origin(same, tmp_path) == git_state(tmp_path)
    assert git_state(tmp_path)[0] is not None
    assert [expectations.origin(run, tmp_path) for run in (other, gone)] == [(None, None)] * 2
    assert expectations.origin(manifest(), tmp_path) == ("abc123", True)
    carried = same.model_copy(update={"git_commit": "abc123", "git_dirty": True})  # a working tree, sent elsewhere
    assert expectations.origin(carried, tmp_path) == git_state(tmp_path)
    settled = carried.model_copy(update={"git_dirty": False})
    assert expectations.origin(settled, tmp_path) == ("abc123", False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "EOF"),
        ('{"gpu": "H200", "schema_version": 3}', "schema_version: Input should be 1 or 2"),
        ('{"gpu": "H200", "card": 1}', "card: Extra inputs are not permitted"),
    ],
)
def test_an_unreadable_file_is_named_with_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    broken = tmp_path / "expectations_h200.json"
    broken.write_text(text)
    with pytest.raises(ValueError, match=rf"expectations_h200\.json is damaged or foreign: .*{message}") as caught:
        expectations.read(broken)
    assert "\n" not in str(caught.value)


def test_all_tables_are_written_anew_of_what_is_kept_with_the_mechanism_of_each_line(tmp_path: Path) -> None:
    folder = chapter(tmp_path)
    expectations.record(tmp_path, [expected()])
    recorded = (folder / "README.md").read_text()
    assert "| pair | mechanism | verdict |" in recorded
    (folder / "README.md").write_text(README)
    assert expectations.renew_tables(tmp_path, "NVIDIA H200") == [folder / "README.md"]
    assert (folder / "README.md").read_text() == recorded
    assert expectations.renew_tables(tmp_path, "NVIDIA B200") == []


def test_every_chapters_table_is_what_its_expectations_say() -> None:
    for path in ROOT.glob("ch*/expectations_h200.json"):
        table = expectations.table(expectations.read(path), mechanisms=True)
        readme = (path.parent / "README.md").read_text()
        assert table.strip() in readme, f"{path.parent.name}/README.md: python -m tools.documentation.front_page"
