"""The CSV has a line a pair with both sides, and nothing of what may not be shown."""

import csv
import io
from dataclasses import replace

import pytest
from synthetic_run import HOSTILE, ROOT, STARTED, manifest, pair

from common.python.regress.check import FIELDS, Held, Status, counts, hold, job_page, proof_csv, sight
from common.python.regress.runs import made_of

US = {"baseline": 100.0, "optimized": 50.0, "peer__lib": 55.0}


def lines(*rows: Held) -> list[dict[str, str]]:
    text = proof_csv(rows, manifest())
    assert text.count("\n") == len(rows) + 1
    return list(csv.DictReader(io.StringIO(text)))


def test_a_line_has_the_status_and_both_sides_of_everything() -> None:
    expected = made_of([(pair(US), manifest(git_commit="old", started="2025"))] * 3, ROOT)
    (line,) = lines(hold(pair({**US, "optimized": 52.0}), expected, manifest(versions={"torch": "9"})))
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
    for name, (found, expected) in figures.items():
        assert float(line[name]) == pytest.approx(found, rel=5e-3), name
        assert float(line[f"expected_{name}"]) == pytest.approx(expected, rel=5e-3), name
    for side in ("", "expected_"):
        assert float(line[f"{side}speedup_low"]) <= float(line[f"{side}speedup"]) <= float(line[f"{side}speedup_high"])
        assert float(line[f"{side}time_low"]) <= float(line[f"{side}time_high"])
        assert (line[f"{side}limit_by"], line[f"{side}peer"]) == ("hbm", "lib")
        assert line[f"{side}limit_source"].startswith("measured on 2026-01-01")
    assert (line["expected_runs"], line["commit"], line["expected_commit"]) == ("3", "abc123", "old")
    assert (line["measured"], line["expected_measured"]) == (STARTED, "2025")


def rows(*found: tuple[Status, float | None]) -> list[Held]:
    return [Held(f"ch07:copy{index}", status, smallest_loss=loss) for index, (status, loss) in enumerate(found)]


def test_what_is_counted_is_each_status_and_which_losses_could_have_shown() -> None:
    held = rows(("met", 0.02), ("met", 0.05), ("inconclusive", 0.2), ("inconclusive", None), ("regressed", 0.03))
    others = rows(("failed", None), ("new", None), ("missing", None), ("unsupported", None))
    assert counts([*held, *others]) == ("2 met, 1 regressed, 2 inconclusive, 1 failed, 1 new, 1 missing, 1 unsupported")
    assert sight([*held, *others]) == (
        "a loss of 3% would show in 2 of 5 pairs held against expectations, one of 10% in 3, one of 30% in 4"
    )
    assert (counts([]), sight(others)) == ("no pairs", None)


def test_the_page_of_a_job_names_every_pair_that_is_not_met_and_escapes_what_it_says() -> None:
    met, doubtful, new = rows(("met", 0.02), ("inconclusive", 0.123), ("new", None))
    doubtful = replace(doubtful, reason="not `sure` | torch 1 -> 2", differences=["torch 1 -> 2", "CPU a -> b"])
    page = job_page([met, doubtful, replace(new, key=f"ch07:{HOSTILE}")], "run on H200")
    assert page.startswith("## Held against expectations\n\nrun on H200: 1 met, 1 inconclusive, 1 new\n\na loss of 3%")
    table = page.split("\n\n")[3].splitlines()
    assert table[2] == ("| ch07:copy1 | inconclusive | not \\`sure\\` \\| torch 1 -> 2; CPU a -> b | 12.3% |")
    assert len(table) == 4
    assert "<script" not in table[3]
    assert "| pair |" not in job_page([met], "run on H200")
    assert job_page([], "x") == "## Held against expectations\n\nx: no pairs\n"
