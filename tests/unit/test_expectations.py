"""A run's proven results become a chapter's expectations and the table of its README; nothing else does."""

import subprocess
from pathlib import Path

import pytest

from common.python import expectations
from common.python.machine import Machine
from common.python.manifest import digest, git_state
from common.python.results import Interval, Manifest, PairResult, VariantResult

ROOT = Path(__file__).resolve().parents[2]
README = "# Chapter\n\n<!-- results:begin -->\nold\n<!-- results:end -->\n"


def manifest(**changes: object) -> Manifest:
    machine = Machine(hostname="h", system="s", cpu="c", cores=2, memory_gib=4, numa_nodes=1, gpus=[], driver="580")
    known = {"started": "2026-01-01T00:00:00Z", "command": [], "options": {}, "targets": [], "machine": machine}
    more = {"versions": {"torch": "2"}, "git_commit": "abc", "git_dirty": False, "sources": {}, "environment": {}}
    return Manifest.model_validate(known | more | {"seed": 1} | changes)


def result(name: str = "copy", status: str = "measured", verdict: str | None = "faster") -> PairResult:
    rows = [
        VariantResult(name=f"{role}_{name}", role=role, label=role, file="", sentence="", kinds=[], status="measured")
        for role in ("baseline", "optimized")
    ]
    rows[1].speedup, rows[1].verdict = Interval(ratio=2.5, low=2.4, high=2.6, rounds=8), "faster"
    found = {"chapter": "ch07", "name": name, "status": status, "verdict": verdict, "device": "NVIDIA H200"}
    return PairResult.model_validate(found | {"variants": rows, "log": "noise", "clock": "device"})


def chapter(root: Path) -> Path:
    (root / "ch07").mkdir()
    (root / "ch07" / "README.md").write_text(README)
    return root / "ch07"


def test_a_proven_result_is_kept_under_its_gpu_with_its_commit_and_shown_in_the_readme(tmp_path: Path) -> None:
    folder = chapter(tmp_path)
    expectations.record(tmp_path, [result()], manifest())
    kept = expectations.read(folder / "expectations_h200.json")
    assert kept.gpu == "NVIDIA H200"
    assert (kept.pairs["copy"].commit, kept.pairs["copy"].driver) == ("abc", "580")
    assert kept.pairs["copy"].result.log == ""
    readme = (folder / "README.md").read_text()
    assert "2.50x" in readme
    assert "old" not in readme


def test_pairs_that_were_not_run_again_stay(tmp_path: Path) -> None:
    folder = chapter(tmp_path)
    expectations.record(tmp_path, [result("copy")], manifest())
    expectations.record(tmp_path, [result("transpose")], manifest())
    assert list(expectations.read(folder / "expectations_h200.json").pairs) == ["copy", "transpose"]


@pytest.mark.parametrize(("status", "verdict"), [("measured", "invalid"), ("failed", None), ("proven", None)])
def test_what_is_not_proven_and_measured_is_no_expectation(status: str, verdict: str | None, tmp_path: Path) -> None:
    chapter(tmp_path)
    with pytest.raises(ValueError, match="only proven results"):
        expectations.record(tmp_path, [result(status=status, verdict=verdict)], manifest())


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
    assert expectations.origin(manifest(), tmp_path) == ("abc", False)


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "expectations_h200.json"
    broken.write_text("{")
    with pytest.raises(ValueError, match=r"expectations_h200\.json is not a readable"):
        expectations.read(broken)


def test_every_chapters_table_is_what_its_expectations_say() -> None:
    for path in ROOT.glob("ch*/expectations_h200.json"):
        table = expectations.table(expectations.read(path))
        readme = (path.parent / "README.md").read_text()
        assert table.strip() in readme, f"{path.parent.name}/README.md: run analyze_expectations.py --update"
