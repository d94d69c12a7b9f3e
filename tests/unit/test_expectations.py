"""Expectations become a chapter's file and its README's table, are read back, and say of how many runs they are."""

import csv
import io
import json
from pathlib import Path

import pytest
from synthetic_run import README, ROOT, STARTED, chapter, manifest, pair

from common.python.base.results import Manifest
from common.python.regress import expectations
from common.python.regress.check import FIELDS, Held, Status, counts, hold, proof_csv
from common.python.regress.expectations import Expectation
from common.python.regress.runs import made_of


def expected(name: str = "copy", runs: int = 3, optimized: float = 40.0, about: Manifest | None = None) -> Expectation:
    found = pair({"baseline": 100.0, "optimized": optimized, "peer__lib": 50.0}, name=name, log="noise")
    return made_of([(found, about or manifest())] * runs, ROOT)


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
    assert (one.gain.ratio, one.time.us) == pytest.approx((2.5, 40.0), rel=2e-3)
    peer = one.result.peer_ratio
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
    assert "expectations file. Provisional, from fewer runs: transpose." in (folder / "README.md").read_text()


def test_a_readme_shows_the_gpu_with_the_most_pairs(tmp_path: Path) -> None:
    folder = chapter(tmp_path)
    expectations.record(tmp_path, [expected("copy"), expected("transpose")])
    shown = (folder / "README.md").read_text()
    other = expected("copy", optimized=20.0)
    other.result.device = "NVIDIA H100 80GB HBM3"
    expectations.record(tmp_path, [other])
    assert (folder / "expectations_h100_sxm.json").exists()
    assert (folder / "README.md").read_text() == shown


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


def test_nothing_is_written_for_a_readme_without_a_place_for_the_table(tmp_path: Path) -> None:
    folder = chapter(tmp_path)
    (folder / "README.md").write_text("# Chapter\n")
    with pytest.raises(ValueError, match="the text must hold"):
        expectations.record(tmp_path, [expected()])
    assert [path.name for path in folder.iterdir()] == ["README.md"]


def test_what_another_folder_is_expected_to_give_is_kept_beside_its_pairs_with_or_without_a_readme(
    tmp_path: Path,
) -> None:
    folder, one = tmp_path / "my" / "kernels", expected()
    folder.mkdir(parents=True)
    one.result.chapter = "kernels"
    with pytest.raises(ValueError, match=r"'kernels' is no chapter \(ch01 to ch20\), nor a folder here"):
        expectations.record(tmp_path, [one], [str(folder)])
    assert not list(folder.iterdir())
    (folder / "baseline_copy.py").touch()
    kept = folder / "expectations_h200.json"
    assert expectations.record(tmp_path, [one], [f"{folder}:copy"]) == [kept]
    (folder / "README.md").write_text(README)
    assert expectations.record(tmp_path, [one], [str(folder)]) == [kept, folder / "README.md"]
    assert list(expectations.expected(tmp_path, "NVIDIA H200", [str(folder)])) == ["kernels:copy"]
    assert expectations.expected(tmp_path, "NVIDIA H200") == {}


def test_all_tables_are_written_anew_of_what_is_kept_with_the_mechanism_of_each_line(tmp_path: Path) -> None:
    folder = chapter(tmp_path)
    expectations.record(tmp_path, [expected()])
    assert "| pair | mechanism | verdict |" in (folder / "README.md").read_text()
    recorded = {path: path.read_bytes() for path in folder.iterdir()}
    (folder / "README.md").write_text(README)
    expectations.record(tmp_path, expectations.expected(tmp_path, "NVIDIA H200").values())
    assert {path: path.read_bytes() for path in folder.iterdir()} == recorded


def test_a_table_says_what_each_rung_of_a_stated_order_gains_over_the_one_before(tmp_path: Path) -> None:
    folder = chapter(tmp_path)
    baseline = '"""A copy by rows of pages."""\nfrom w import Workload\nworkload = Workload(rungs="wide tall")\n'
    (folder / "baseline_copy.py").write_text(baseline)
    us = {"baseline": 100.0, "optimized": 20.0, "optimized__tall": 25.0, "optimized__wide": 50.0, "peer__tall": 80.0}
    expectations.record(tmp_path, [made_of([(pair(us, name="copy"), manifest())] * 3, ROOT)])
    said = r"- ch07:copy: wide 2.00x \[2.00, 2.00\], tall 2.00x \[2.00, 2.00\], optimized 1.25x \[1.25, 1.25\]"
    assert f"\n{said}\n<!--" in (folder / "README.md").read_text()


# The CSV has a line a pair with both sides, and nothing of what may not be shown.

US = {"baseline": 100.0, "optimized": 50.0, "peer__lib": 55.0}


def test_a_line_has_the_status_and_both_sides_of_everything() -> None:
    then = made_of([(pair(US), manifest(git_commit="old", started="2025"))] * 3, ROOT)
    text = proof_csv([hold(pair({**US, "optimized": 52.0}), then, manifest(versions={"torch": "9"}))], manifest())
    assert text.count("\n") == 2
    (line,) = csv.DictReader(io.StringIO(text))
    assert tuple(line) == FIELDS
    assert [line[name] for name in ("chapter", "pair", "status", "gpu", "size", "clock", "goal", "variant")] == [
        *("ch07", "copy", "inconclusive", "NVIDIA H200", "bench", "device", "speed", "optimized_copy")
    ]
    assert line["differences"] == "torch 2.11.0 -> 9"
    assert line["reason"].endswith("perhaps by what changed: torch 2.11.0 -> 9")
    figures = {
        "speedup": (100 / 52, 2.0),
        "baseline_us": (100.0, 100.0),
        "optimized_us": (52.0, 50.0),
        "limit_us": (20.0, 20.0),
        "baseline_percent_of_limit": (20.0, 20.0),
        "percent_of_limit": (100 * 20 / 52, 40.0),
        "peer_ratio": (55 / 52, 1.1),
        "sm_mhz": (1980, 1980),
        "memory_ratio": (3.0, 3.0),
    }
    for name, (found, before) in figures.items():
        assert float(line[name]) == pytest.approx(found, rel=5e-3), name
        assert float(line[f"expected_{name}"]) == pytest.approx(before, rel=5e-3), name
    for side in ("", "expected_"):
        assert float(line[f"{side}speedup_low"]) <= float(line[f"{side}speedup"]) <= float(line[f"{side}speedup_high"])
        assert float(line[f"{side}time_low"]) <= float(line[f"{side}time_high"])
        assert (line[f"{side}limit_by"], line[f"{side}peer"]) == ("hbm", "lib")
        assert line[f"{side}limit_source"].startswith("measured on 2026-01-01")
    assert (line["expected_runs"], line["commit"], line["expected_commit"]) == ("3", "abc123", "old")
    assert (line["measured"], line["expected_measured"]) == (STARTED, "2025")


def test_what_is_counted_is_each_status() -> None:
    found: tuple[Status, ...] = ("met", "met", "inconclusive", "regressed", "failed", "new", "missing", "unsupported")
    told = "2 met, 1 regressed, 1 inconclusive, 1 failed, 1 new, 1 missing, 1 unsupported"
    assert counts([Held(f"ch07:copy{index}", status) for index, status in enumerate(found)]) == told
    assert counts([]) == "no pairs"
