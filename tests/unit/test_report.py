"""What people read of hand-made results: on a terminal (`report`), and in files (`markdown`)."""

import csv
import io
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest
import synthetic_run
from markdown_it import MarkdownIt
from rich.console import Console
from rich.table import Table

from common.python.base.results import Interval, Limit, PairResult, Proof, Spread, Summary, VariantResult, Why
from common.python.report.markdown import (
    chapter_table,
    pair_markdown,
    replace_between_markers,
    summary_csv,
    summary_markdown,
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
    time_text,
)


def spread(median: float) -> Spread:
    return Spread(
        n=64,
        mean=median * 1.01,
        std=median / 50,
        median=median,
        q1=median * 0.99,
        q3=median * 1.02,
        p95=median * 1.05,
        p99=median * 1.1,
        outliers=2,
    )


def variant(label: str, role: str, **changes: Any) -> VariantResult:
    stem = f"{role}_transpose" + f"__{label}" * (label != role)
    return synthetic_run.variant(stem, **{"sentence": "A padded tile.", "status": "measured", **changes})


def baseline(**changes: Any) -> VariantResult:
    why = Why(kernels=12, syncs=3, copied_bytes=1e9, peak_bytes=5.4e9)
    known = {"device": spread(1234.0), "wall": spread(1300.0), "percent_of_limit": 27.4, "why": why}
    return variant("baseline", "baseline", **known | changes)


def optimized(label: str = "optimized", **changes: Any) -> VariantResult:
    known = {
        "device": spread(361.0),
        "wall": spread(400.0),
        "percent_of_limit": 93.6,
        "why": Why(kernels=1, copied_bytes=1e9, peak_bytes=2.1e9),
        "verdict": "faster",
        "speedup": Interval(ratio=3.418, low=3.398, high=3.438, rounds=8),
        "memory_ratio": 5.4 / 2.1,
    }
    return variant(label, "optimized", **known | changes)


def pair(*variants: VariantResult, **changes: Any) -> PairResult:
    known: dict[str, Any] = {
        "chapter": "ch07",
        "name": "transpose",
        "status": "measured",
        "verdict": "faster",
        "size": "bench",
        "shape": {"n": 16384},
        "device": "NVIDIA H200",
        "clock": "device",
        "goal": "speed",
        "tolerance": 0.0,
        "limit": Limit(us=338.0, resource="hbm", peak=4.25e12, unit="B/s", source="this machine's measurement"),
        "control": Interval(ratio=1.0004, low=0.999, high=1.002, rounds=8),
        "peer_ratio": Interval(ratio=1.05, low=1.04, high=1.06, rounds=8),
        "best_peer": "cublas",
        "floor_us": 2.1,
        "seed": 7,
    }
    return PairResult.model_validate(known | {"variants": list(variants) or [baseline(), optimized()]} | changes)


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
        "ch07:transpose  faster  3.42x [3.40, 3.44]  1.23 ms -> 361 us  27% -> 94% of limit  peer: 1.050x cublas  "
        "12 kernels -> 1, 3 syncs -> 0, 5.4 GB -> 2.1 GB"
    )


@pytest.mark.parametrize("status", ["failed", "unsupported", "proven", "built"])
def test_a_pair_that_was_not_measured_is_a_line_with_its_reason_and_hint(status: str) -> None:
    result = refused(status, "Traceback:\n  no such file", "check the path")
    assert str(pair_line(result)) == f"ch08:gemm  {status}  Traceback: no such file; check the path"
    line = next(line for line in drawn(suite_table([pair(), result])).splitlines() if "ch08:gemm" in line)
    assert status in line
    assert "no such file; check the path" in line


NUMBERS = ("3.42", "3.40", "1.23 ms", "361", "94%", "1.050x", "3.418")


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
    wrong = optimized("vectorised", verdict="invalid", reason="wrong by 3%")
    result = pair(baseline(), optimized(), wrong, hint="about the pair")
    lead, rung = rows(result)
    assert lead.speedup == "3.42x [3.40, 3.44]"
    assert rung.cells() == ("vectorised", "invalid", "", "", "", "", "wrong by 3%")


def test_rungs_are_indented_rows_under_their_pair() -> None:
    rung = optimized("swizzled", device=spread(355.0), speedup=Interval(ratio=3.47, low=3.45, high=3.49, rounds=8))
    text = drawn(suite_table([pair(baseline(), rung, optimized())]))
    lines = [line for line in text.splitlines() if "ch07:transpose" in line or "swizzled" in line]
    assert lines[0].startswith("│ ch07:transpose")
    assert lines[1].startswith("│   swizzled")
    assert "3.47x [3.45, 3.49]" in lines[1]
    assert "cublas" not in lines[1]


def test_memory_is_the_headline_of_a_memory_pair() -> None:
    result = pair(baseline(), optimized(memory_ratio=2.1, verdict="smaller"), goal="memory", verdict="smaller")
    assert "smaller  2.1x less memory  1.23 ms -> 361 us" in str(pair_line(result))
    assert "3.42x" not in str(pair_line(result))


def limited(percent: float, peer: float = 2.0, **changes: Any) -> PairResult:
    """A pair whose baseline reaches this share of its limit, with a peer so many times faster than it."""
    lib = variant("cublas", "peer", device=spread(400.0), speedup=Interval(ratio=peer, low=peer, high=peer, rounds=8))
    return pair(baseline(percent_of_limit=percent), optimized(), lib, **changes)


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
    assert ("peer 1.050x cublas; \x1b[2m3.42x [3.40, 3.44] †" in out.getvalue()) == weak
    assert ("peer 1.050x cublas; 3.42x [3.40, 3.44] †  " in str(pair_line(result))) == weak
    for text in (chapter_table([result]), summary_markdown(summary(result))):
        assert ("| peer 1.050x cublas; <sub>3.42x \\[3.40, 3.44\\] †</sub> |" in text) == weak
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
    result = pair(baseline(), optimized(), optimized(HOSTILE), name=HOSTILE, reason=HOSTILE, hint=HOSTILE,
                  device=HOSTILE, best_peer=HOSTILE, notes=[HOSTILE])  # fmt: skip
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


class Read(HTMLParser):
    """Rendered markdown as a reader sees it: cells, list items, and the elements that there are."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.elements: set[str] = set()
        self.feed(MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(text))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        if tag in ("td", "li"):
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self.cells:
            self.cells[-1] += data


@pytest.mark.parametrize("planted", PLANTED)
def test_what_github_renders_of_foreign_text_is_that_text(planted: str) -> None:
    run = summary(refused("failed", planted), pair(notes=[planted]))
    found = Read(summary_markdown(run))
    cells = [cell.strip() for cell in found.cells]
    assert clean(planted) in cells
    assert f"ch07:transpose: {clean(planted)}" in cells
    assert found.elements <= {"h1", "ul", "li", "p", "table", "thead", "tbody", "tr", "th", "td", "span"}
    alone = Read(pair_markdown(pair(notes=[planted])))
    assert clean(planted) in [cell.strip() for cell in alone.cells]
    assert alone.elements <= found.elements | {"h2", "strong"}


def test_a_narrow_terminal_gets_fewer_columns_and_names_that_are_whole() -> None:
    wide, narrow = (drawn(suite_table([pair()], width), width) for width in (200, 80))
    assert "% of limit" in wide
    assert "% of limit" not in narrow
    assert pair().key in narrow


def test_the_title_counts_verdicts_and_the_footers_say_where_limits_come_from_and_each_note_once() -> None:
    measured = pair(notes=["power cap reached"])
    named = [pair(name=f"p{i}", notes=["power cap reached"]) for i in range(4)]
    from_sheet = pair(limit=Limit(us=1, resource="HBM", peak=1, unit="GB/s", source="datasheet"), verdict="slower")
    text = drawn(suite_table([measured, *named, from_sheet, refused("failed", "no")]))
    assert "NVIDIA H200: 7 pairs, 5 faster, 1 slower, 1 failed" in text
    assert "limits come from: datasheet, this machine's measurement" in text
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
    text = pair_markdown(
        pair(baseline(), optimized(proofs=proofs, rates={"GB/s": 3978.0}), log="  one\n```\x1b[0m two", seconds=spent)
    )
    for part in (
        "# ch07:transpose\n\n**faster**, 3.42x \\[3.40, 3.44\\], 12 kernels -> 1",
        "| optimized | A padded tile. | faster | 3.42x \\[3.40, 3.44\\] | 93.6% | 3978 GB/s |  |",
        "| optimized | 64 | 365 us | 361 us | 7.22 us | 357 us | 368 us | 379 us | 397 us | 2 |",
        "| optimized | 2 | 5.00e-01 | 0.5 > 1e-6 (test, after timing) |",
        "- limit: 338 us by hbm, 4.25 TB/s (this machine's measurement)",
        "- control, the baseline against itself: 1.000x \\[0.999, 1.002\\]",
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
    run = summary(pair(reason='a "quoted", one\nin two lines'), refused("failed", "segfault"))
    lines = list(csv.DictReader(io.StringIO(summary_csv(run))))
    assert [(line["pair"], line["variant"], line["verdict"]) for line in lines] == [
        ("transpose", "baseline_transpose", "measured"),
        ("transpose", "optimized_transpose", "faster"),
        ("gemm", "", "failed"),
    ]
    assert lines[0]["reason"] == 'a "quoted", one in two lines'
    found = lines[1]
    assert (found["speedup"], found["speedup_low"], found["rounds"]) == ("3.418", "3.398", "8")
    assert (found["device_median"], found["wall_median"], found["device_n"]) == ("361.0", "400.0", "64")
    assert (found["kernels"], found["peak_bytes"], found["limit_us"]) == ("1", "2100000000.0", "338.0")
    assert (found["peer"], found["peer_ratio"]) == ("cublas", "1.05")


def test_a_chapter_table_names_its_gpu_and_commit_and_indents_rungs() -> None:
    text = chapter_table([pair(baseline(), optimized(), optimized("swizzled"))], commit="abc123")
    assert text.startswith("| pair | verdict | speedup | time | % of limit | peer | why |\n| --- |")
    assert "\n| &nbsp;&nbsp;swizzled | faster |" in text
    assert text.endswith("Measured on NVIDIA H200, commit abc123.")
    assert "commit" not in chapter_table([pair()])
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
