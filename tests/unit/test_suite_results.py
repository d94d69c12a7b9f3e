"""What is kept of a suite names no machine, and says how a second suite differs."""

import json
from pathlib import Path

import pytest
from synthetic_run import every_kind, manifest, pair, refused, write_run

from common.python.topology import Seat, Topology
from tools.documentation.suite_results import in_short, keep

US = {"baseline": 400.0, "optimized": 50.0, "peer__lib": 55.0}


def test_it_is_whole_but_for_samples_proofs_logs_and_the_machines_names(tmp_path: Path) -> None:
    about = manifest(
        command=["/home/me/benchmark_cli", "run", "ch7", "--artifacts-dir", "/home/me/a"],
        options={"budget_s": 1.0, "artifacts_dir": "/home/me/a", "resume": "/home/me/a/x"},
        environment={"CUDA_HOME": "/home/me/cuda"},
        topology=Topology([Seat("GPU-1", "0000:18:00.0", 0, 5, 16, 18)], [["X"]]),
    )
    kept = keep(write_run(tmp_path / "run", [pair(US, log="/home/me/x"), *every_kind()[1:3]], about), [], tmp_path)
    assert [path.relative_to(tmp_path / "docs" / "results" / "h200" / "suite").name for path in kept] == [
        *("summary.json", "summary.csv", "summary.md", "speedups.svg")
    ]
    texts = {path.name: path.read_text() for path in kept}
    assert all(word not in text for text in texts.values() for word in ("/home/me", "GPU-1", "box"))
    summary = json.loads(texts["summary.json"])
    assert (summary["seconds"], summary["manifest"]["options"]) == (3 * 1.75, {"budget_s": 1.0})
    assert summary["pairs"][0]["variants"][1]["speedup"]["ratio"] == pytest.approx(8, rel=0.01)
    assert all(not pair["blocks"] and not row["proofs"] for pair in summary["pairs"] for row in pair["variants"])
    assert "command: benchmark_cli run ch7" in texts["summary.md"]
    assert texts["speedups.svg"].startswith("<svg")


def test_medians_and_the_pairs_without_a_gain_are_named() -> None:
    told = in_short(every_kind())
    assert "- 6 pairs in 10 s, 1.8 s each" in told
    assert "least 15.4%, ch07:smaller" in told
    assert "median 1.10 of the best peer, over 1 pairs" in told
    assert "ch07:doubtful is inconclusive: the speedup reads " in told
    assert "ch07:disturbed is too noisy: the control" in told
    assert in_short([refused("failed", "crash", "segfault")]) == ""


def test_a_pair_whose_baseline_is_wrong_is_in_no_median() -> None:
    wrong = {"baseline": {"status": "failed", "verdict": "invalid", "reason": "it is wrong"}}
    refuted = pair({"baseline": 400.0, "optimized": 200.0, "peer__lib": 100.0}, name="bad", rows=wrong)
    assert refuted.peer_ratio
    told = in_short([pair(US), refuted])
    assert "median 40% of the limit; least 40.0%, ch07:copy" in told
    assert "median 1.10 of the best peer, over 1 pairs" in told


def test_a_second_suite_may_be_in_several_runs_and_what_is_apart_is_listed(tmp_path: Path) -> None:
    a = write_run(tmp_path / "a", [pair(US), pair(US, name="other"), pair(US, name="wall")])
    b = write_run(tmp_path / "b", [pair({**US, "optimized": 60.0})], manifest(git_commit="def456"))
    c = write_run(tmp_path / "c", [pair({**US, "optimized": 51.0}, name="other")], manifest(git_commit="def456"))
    page = keep(a, [b, c], tmp_path)[-1].read_text()
    assert "A is of commit abc123 and has 3 pairs, B is of def456 and has 2 of them." in page
    assert "of 6 variants timed on the device, 5." in page
    listed = [line for line in page.splitlines() if line.startswith("| ch07")]
    assert len(listed) == 1
    assert listed[0].startswith("| ch07:copy | optimized_copy | 50.0 us -> 60.0 us |")


def test_a_run_on_a_cpu_is_no_result_of_a_gpu(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [pair(US, device="cpu")])
    with pytest.raises(ValueError, match="measured nothing on a GPU"):
        keep(run, [], tmp_path)
