"""What people read of hand-made results: on a terminal (`report`), and in files (`markdown`)."""

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import synthetic_run
from markdown_it import MarkdownIt
from rich.console import Console
from rich.table import Table

from common.python.base.results import Cost, Interval, Limit, PairResult, Proof, Spread, Summary, Why
from common.python.report.markdown import (
    append_to_job_page,
    chapter_table,
    replace_between_markers,
    summary_csv,
)
from common.python.report.rows import (
    bytes_text,
    clean,
    footers,
    memory_text,
    pair_line,
    ratio_text,
    rows,
    suite_table,
    terminal_line,
    time_text,
)
from common.python.report.templates import pair_markdown, summary_markdown

US = {"baseline": 1234.0, "optimized": 361.0, "peer__cublas": 379.0}
ROWS = {
    "baseline": {"why": Why(kernels=12, syncs=3, copied_bytes=1e9, peak_bytes=5.4e9)},
    "optimized": {"why": Why(kernels=1, copied_bytes=1e9, peak_bytes=2.1e9)},
}
SPREAD = Spread(n=64, mean=365, std=7.22, median=361, q1=357, q3=368, p95=379, p99=397, outliers=2)


def pair(rungs: dict[str, float] | None = None, goal: str = "speed", **changes: Any) -> PairResult:
    """A transpose, whose limit is 338 us, with further variants that took so many us; judged, and then changed."""
    rows, cost = changes.pop("rows", {}), Cost(read=338e-6 * 4e12)
    known = {"rows": ROWS | rows, "goal": goal, "cost": cost, "shape": {"n": 16384}, "tolerance": 0.0}
    made = synthetic_run.pair(US | (rungs or {}), "transpose", **known)
    return made.model_copy(update=changes)


def refused(status: str, reason: str, hint: str | None = None) -> PairResult:
    return synthetic_run.refused(status, "gemm", reason, hint=hint, device=None)


def invalid(**changes: Any) -> PairResult:
    return pair(verdict="invalid", reason="the control lies outside the margin", **changes)


def summary(*pairs: PairResult, **changes: Any) -> Summary:
    return synthetic_run.summary(pairs, **changes)


def drawn(table: Table, width: int = 240) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(table)
    return out.getvalue()


def test_a_pair_is_one_line_with_interval_times_limit_peer_and_why() -> None:
    assert str(pair_line(pair())) == (
        "ch07:transpose  faster  3.42x [3.41, 3.42]  1.23 ms -> 361 us  27% -> 94% of limit  peer: 1.050x cublas  "
        "12 kernels -> 1, 3 syncs -> 0, 5.4 GB -> 2.1 GB"
    )


@pytest.mark.parametrize("status", ["failed", "unsupported", "proven", "built"])
def test_a_pair_that_was_not_measured_is_a_line_with_its_reason_and_hint(status: str) -> None:
    result = refused(status, "Traceback:\n  no such file", "check the path")
    assert str(pair_line(result)) == f"ch08:gemm  {status}  Traceback: no such file; check the path"
    line = next(line for line in drawn(suite_table([pair(), result])).splitlines() if "ch08:gemm" in line)
    assert status in line
    assert "no such file; check the path" in line


NUMBERS = ("3.42", "3.41", "1.23 ms", "361", "94%", "1.050x")


def test_an_invalid_pair_shows_no_ratio_and_no_number_of_unproven_work_anywhere() -> None:
    result = invalid()
    run = summary(result)
    texts = [
        str(pair_line(result)),
        drawn(suite_table([result])),
        pair_markdown(result),
        summary_markdown(run),
        summary_csv(run),
        chapter_table([result]),
    ]
    for text in texts:
        assert "invalid" in text
        assert "the control lies outside the margin" in text
        assert not [number for number in NUMBERS if number in text]
        assert "faster" not in text


def test_an_invalid_rung_hides_its_own_numbers_only() -> None:
    wrong = {"status": "failed", "verdict": "invalid", "reason": "wrong by 3%"}
    result = pair({"optimized__vectorised": 300.0}, rows={"optimized__vectorised": wrong}, hint="about the pair")
    lead, rung = rows(result)
    assert lead.speedup.startswith("3.42x [")
    assert rung.cells() == ("vectorised", "invalid", "", "", "", "", "wrong by 3%")


@pytest.mark.parametrize(
    ("of_pair", "cells"),
    [
        ({"status": "proven", "verdict": None}, ("faster", "3.47x [3.47, 3.47]", "1.23 ms -> 355 us")),
        ({"verdict": "too noisy"}, ("measured", "", "")),
        ({"status": "failed", "verdict": None}, ("measured", "", "")),
    ],
)
def test_a_rung_shows_numbers_beside_a_proven_headline_and_no_verdict_without_numbers(
    of_pair: dict[str, str | None], cells: tuple[str, ...]
) -> None:
    assert rows(pair({"optimized__swizzled": 355.0}, **of_pair))[1].cells()[1:4] == cells


def test_rungs_are_indented_rows_under_their_pair() -> None:
    text = drawn(suite_table([pair({"optimized__swizzled": 355.0})]))
    lines = [line for line in text.splitlines() if "ch07:transpose" in line or "swizzled" in line]
    assert lines[0].startswith("│ ch07:transpose")
    assert lines[1].startswith("│   swizzled")
    assert "3.47x [3.47, 3.47]" in lines[1]
    assert "cublas" not in lines[1]


def test_memory_is_the_headline_of_a_memory_pair() -> None:
    result = pair(goal="memory")
    assert "smaller  2.57x less memory  1.23 ms -> 361 us" in str(pair_line(result))
    assert "3.42x" not in str(pair_line(result))


def limited(percent: float, peer: float = 2.0, **changes: Any) -> PairResult:
    """A pair whose baseline reaches this share of its limit, with a peer so many times faster than it."""
    result = pair(**changes)
    result.variants[0].percent_of_limit = percent
    result.variants[2].speedup = Interval(ratio=peer, low=peer, high=peer, rounds=8)
    return result


@pytest.mark.parametrize(
    ("result", "weak"),
    [
        (limited(1.9), True),
        (limited(2.1), False),
        (limited(50.0, peer=5.1), True),
        (limited(1.9, goal="memory"), False),  # the limit is one of time
        (pair(), False),
    ],
)
def test_where_the_baseline_is_weak_the_peer_leads_and_the_speedup_is_dim(result: PairResult, weak: bool) -> None:
    out = io.StringIO()
    Console(file=out, width=240, force_terminal=True).print(suite_table([result]))
    assert ("\x1b[2m3.42x [3.41, 3.42] †" in out.getvalue()) == weak
    assert ("peer 1.050x cublas; 3.42x [3.41, 3.42] †  " in str(pair_line(result))) == weak
    for text in (chapter_table([result]), summary_markdown(summary(result))):
        assert ("| peer 1.050x cublas; <sub>3.42x \\[3.41, 3.42\\] †</sub> |" in text) == weak
        assert ("\n- † the baseline is under 2% of its limit or a peer is over 5 times faster" in text) == weak
    assert any(line.startswith("† ") for line in footers([result])) == weak


def test_the_cpu_is_said_loudly() -> None:
    on_cpu, on_gpu = pair(device="CPU: a small one"), pair()
    assert "ON THE CPU" in str(pair_line(on_cpu))
    assert "MEASURED ON THE CPU, NOT ON A GPU" in drawn(suite_table([on_gpu, on_cpu]))
    assert "not on a GPU" in pair_markdown(on_cpu)
    assert "not of a GPU" in chapter_table([on_cpu])
    texts = (str(pair_line(on_gpu)), drawn(suite_table([on_gpu])), pair_markdown(on_gpu), chapter_table([on_gpu]))
    assert not [text for text in texts if "CPU" in text]


HOSTILE = "[red]bad[/red] [/] [link=x] \x1b[31m | <b>\n\ta\\"


def test_foreign_text_is_shown_and_never_read_as_markup() -> None:
    foreign = dict.fromkeys(("name", "reason", "hint", "device", "best_peer"), HOSTILE)
    result = pair({f"optimized__{HOSTILE}": 300.0}, **foreign, notes=[HOSTILE])
    text = drawn(suite_table([result]))
    assert text.count("[red]bad[/red] [/] [link=x]") >= 6
    assert "\x1b" not in text + str(pair_line(result))
    assert "\n" not in str(pair_line(result))


PLANTED = (
    "a | b || c", "`x|y` ``", "a\nb\r\n\nc", "<script>alert(1)</script> <!-- x --> &lt; &#124;", "$x^2$ and $y$",
    "*e* _f_ __g__ **h** ~~i~~ ~j~", "[l](http://x) ![m](n) [o][p] <http://q>", "tail\\", "\\| \\", "# head", "## x",
    "- item", "+ item", "1. item", "12) item", "> quote", "---", "===", "***", "~~~", "    code", "\ttab",
    "| --- | --- |",
)  # fmt: skip


def rendered(text: str) -> tuple[list[str], set[str]]:
    """Markdown as a reader sees it: the text of cells and list items, and the elements that there are."""
    html = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(text)
    found = [*ElementTree.fromstring(f"<page>{html}</page>").iter()][1:]
    cells = ["".join(one.itertext()).strip() for one in found if one.tag in ("td", "li")]
    return cells, {one.tag for one in found}


@pytest.mark.parametrize("planted", PLANTED)
def test_what_github_renders_of_foreign_text_is_that_text(planted: str) -> None:
    run = summary(refused("failed", planted), pair(notes=[planted]))
    cells, elements = rendered(summary_markdown(run))
    assert clean(planted) in cells
    assert f"ch07:transpose: {clean(planted)}" in cells
    assert elements <= {"h1", "ul", "li", "p", "table", "thead", "tbody", "tr", "th", "td", "span"}
    cells, others = rendered(pair_markdown(pair(notes=[planted])))
    assert clean(planted) in cells
    assert others <= elements | {"h2", "strong"}


def test_a_rung_of_another_commit_is_told_whatever_it_is_called() -> None:
    result = pair({"optimized__a@b": 400.0, "optimized__a@b@HEAD": 440.0, "optimized__c@HEAD": 420.0})
    *_, own, ref, orphan = result.variants
    own.against, ref.role, orphan.role = Interval(ratio=1.1, low=1.09, high=1.11, rounds=9), "ref", "ref"
    told = ["a@b: 1.10x [1.09, 1.11] against HEAD, faster", "c: not compared with HEAD, faster"]
    assert footers([result])[:2] == [f"ch07:transpose {line}" for line in told]


def test_a_narrow_terminal_gets_fewer_columns_and_names_that_are_whole() -> None:
    wide, narrow = (drawn(suite_table([pair()], width), width) for width in (200, 80))
    assert "% of limit" in wide
    assert "ch07:transpose faster  3.42x [3.41, 3.42] 94%   1.050x" in narrow
    assert "1.23 ms" not in narrow


@pytest.mark.parametrize("width", [40, 80, 140])
def test_the_line_of_a_pair_is_complete_on_any_terminal(width: int) -> None:
    name = "activation_offload_overlap"
    doubt = Interval(ratio=1.056, low=1.003, high=1.111, rounds=8)
    known = pair(name=name, verdict="inconclusive")
    known.variants[1] = known.variants[1].model_copy(update={"speedup": doubt, "verdict": "inconclusive"})
    lines = terminal_line(known, width).plain.splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) == 1 or width == 40
    for part in (f"ch07:{name}", "inconclusive", "1.056x [1.003, 1.111]", "94%", "1.050x"):
        assert sum(part in line for line in lines) == 1  # whole, on one line
    refusal = "no such file; it is written by a run that went before"
    for result in (refused("failed", refusal), known.model_copy(update={"reason": refusal})):
        assert refusal in " ".join(map(str.strip, terminal_line(result, width).plain.splitlines()))


def test_the_title_counts_verdicts_and_the_footers_say_where_limits_come_from_and_each_note_once() -> None:
    measured = pair(notes=["power cap reached"])
    named = [pair(name=f"p{i}", notes=["power cap reached"]) for i in range(4)]
    from_sheet = pair(limit=Limit(us=1, resource="HBM", peak=1, unit="GB/s", source="datasheet"), verdict="slower")
    text = drawn(suite_table([measured, *named, from_sheet, refused("failed", "no")]))
    assert "NVIDIA H200: 7 pairs, 5 faster, 1 slower, 1 failed" in text
    assert "limits come from: datasheet, measured on 2026-01-01" in text
    assert text.count("power cap reached") == 1
    assert "ch07:transpose, ch07:p0, ch07:p1 and 2 more: power cap reached" in text
    assert footers([]) == []


def test_what_helps_where_pairs_are_too_noisy_is_said_once() -> None:
    disturbed = next(result for result in synthetic_run.every_kind() if result.name == "disturbed")
    noisy = [disturbed, disturbed.model_copy(update={"name": "again"})]
    assert {rows(result)[0].verdict for result in noisy} == {"too noisy"}
    assert not any("run it again" in rows(result)[0].why for result in noisy)
    assert sum("run it again" in line for line in footers(noisy)) == 1


@pytest.mark.parametrize(
    ("text_of", "value", "text"),
    [
        (time_text, 0.5234, "0.523 us"),
        (time_text, 999.6, "1.00 ms"),
        (time_text, 2_000_000_000.0, "2000 s"),
        (bytes_text, 2_100_000_000, "2.1 GB"),
        (bytes_text, 999.6e6, "1.0 GB"),
        (ratio_text, 3.418, "3.42x"),
        (ratio_text, 1.0042, "1.004x"),  # the margin of the verdict is 1%
        (memory_text, 2.1, "2.1x less memory"),
        (memory_text, 1.005, "same memory"),
    ],
)
def test_figures_have_the_digits_and_the_unit_that_suit(
    text_of: Callable[[float], str], value: float, text: str
) -> None:
    assert text_of(value) == text


def test_the_markdown_of_a_pair_tells_verdict_times_proof_and_measurement() -> None:
    proofs = [
        Proof(size="bench", when="before timing", error=2e-7),
        Proof(size="test", when="after timing", error=0.5, reason="0.5 > 1e-6"),
    ]
    spent = {"processes": 0.4, "process group": 2.125}
    result = pair(
        rows={"optimized": {**ROWS["optimized"], "proofs": proofs}}, log="  one\n```\x1b[0m two", seconds=spent
    )
    result.variants[1].device = SPREAD
    text = pair_markdown(result)
    for part in (
        "# ch07:transpose\n\n**faster**, 3.42x \\[3.41, 3.42\\], 12 kernels -> 1",
        "| optimized | What optimized does. | faster | 3.42x \\[3.41, 3.42\\] | 93.6% | 3744 GB/s |  |",
        "| optimized | 64 | 365 us | 361 us | 7.22 us | 357 us | 368 us | 379 us | 397 us | 2 |",
        "| optimized | 2 | 5.00e-01 | 0.5 > 1e-6 (test, after timing) |",
        "- limit: 338 us by hbm, 4 TB/s (measured on 2026-01-01)",
        "- control, the baseline against itself: 0.998x \\[0.997, 0.999\\]",
        "- size: bench n=16384\n",
        "- tolerance: 0 normwise against float64",
        "- peer cublas: 1.050x",
        "- seconds: processes 0.40, process group 2.12\n",
        "    ``` [0m two\n",
        "      one\n",
    ):
        assert part in text


def test_the_markdown_of_a_run_names_machine_commit_and_command() -> None:
    text = summary_markdown(summary(pair(), refused("unsupported", "needs 2 GPUs, found 1")))
    for part in (
        "- GPU: NVIDIA H200",
        "- commit: abc123 with uncommitted changes",
        "- command: benchmark_cli run",
        "- versions: torch 2.11.0\n",
        "| ch07:transpose | faster | 3.42x",
        "| ch08:gemm | unsupported |  |  |  |  | needs 2 GPUs, found 1 |",
        "NVIDIA H200: 2 pairs, 1 faster, 1 unsupported",
    ):
        assert part in text
    assert "Incomplete" not in text
    assert "**Incomplete" in summary_markdown(summary(complete=False))


def test_the_csv_has_a_line_for_each_variant_and_for_each_pair_without() -> None:
    result = pair(reason='a "quoted", one\nin two lines')
    result.variants[1].device, result.variants[1].wall = SPREAD, SPREAD.model_copy(update={"median": 400.0})
    run = summary(result, refused("failed", "segfault"))
    lines = list(csv.DictReader(io.StringIO(summary_csv(run))))
    assert [(line["pair"], line["variant"], line["verdict"]) for line in lines] == [
        ("transpose", "baseline_transpose", "measured"),
        ("transpose", "optimized_transpose", "faster"),
        ("transpose", "peer_transpose__cublas", "faster"),
        ("gemm", "", "failed"),
    ]
    assert lines[0]["reason"] == 'a "quoted", one in two lines'
    found = lines[1]
    assert [found[name][:5] for name in ("speedup", "speedup_low", "rounds")] == ["3.416", "3.414", "4"]
    assert (found["device_median"], found["wall_median"], found["device_n"]) == ("361.0", "400.0", "64")
    assert (found["kernels"], found["peak_bytes"], found["limit_us"]) == ("1", "2100000000.0", "338.0")
    assert (found["peer"], found["peer_ratio"][:4]) == ("cublas", "1.05")


def test_a_chapter_table_names_its_gpu_and_indents_rungs() -> None:
    text = chapter_table([pair({"optimized__swizzled": 355.0})])
    assert text.startswith("| pair | verdict | speedup | time | % of limit | peer | why |\n| --- |")
    assert "\n| &nbsp;&nbsp;swizzled | faster |" in text
    assert text.endswith("Measured on NVIDIA H200.")
    assert "Not measured yet." in chapter_table([])


README = "# Chapter\n<!-- results:begin -->\nold\n<!-- results:end -->\nprose\n"


def test_only_what_stands_between_the_markers_is_replaced_and_doing_it_again_changes_nothing() -> None:
    once = replace_between_markers(README, "| new |\n")
    assert once == "# Chapter\n<!-- results:begin -->\n| new |\n<!-- results:end -->\nprose\n"
    assert replace_between_markers(once, "| new |") == once
    hostile = chapter_table([refused("failed", "<!-- results:end -->")])
    assert replace_between_markers(replace_between_markers(README, hostile), "| new |") == once


@pytest.mark.parametrize(
    "text",
    ["", "<!-- results:begin -->", "<!-- results:end --><!-- results:begin -->", README + README],
)
def test_markers_that_are_not_one_pair_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="results:begin"):
        replace_between_markers(text, "| new |")


def test_text_is_added_to_the_page_of_a_job_and_to_nothing_elsewhere(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n")
    append_to_job_page("# Benchmark results\n", {"GITHUB_STEP_SUMMARY": str(page)})
    append_to_job_page("nowhere", {})
    append_to_job_page("nowhere", {"GITHUB_STEP_SUMMARY": ""})
    assert page.read_text() == "before\n# Benchmark results\n"
