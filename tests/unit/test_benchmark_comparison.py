"""Two results metric by metric: the change, which way is better, and what is no number."""

import math

import pytest
from synthetic_run import pair

from common.python.base.results import VariantResult
from common.python.benchmark_comparison import Change, Comparison, change, compare_and_display_all_metrics, judge_name

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("metric", "group", "better"),
    [
        ("latency_ms", "timing", "lower"),
        ("elapsedSeconds", "timing", "lower"),
        ("peak_memory_bytes", "memory", "lower"),
        ("dram__bytes_read.sum", "memory", "lower"),
        ("memory_saved_percent", "memory", "higher"),
        ("tokens/s", "throughput", "higher"),
        ("GB/s per rank", "throughput", "higher"),
        ("bytes_per_s", "throughput", "higher"),
        ("sm__throughput.avg.pct_of_peak_sustained_elapsed", "profiler", "higher"),
        ("speedup", "throughput", "higher"),
        ("kernels", "profiler", "lower"),
        ("l2_hit_rate", "profiler", "higher"),
        ("l1_miss_rate", "profiler", "lower"),
        ("warp_stall_cycles_per_s", "profiler", "lower"),
        ("MFU", "profiler", "higher"),
        ("error_rate", "other", "lower"),
        ("gpu_memory_utilization", "memory", None),
        ("mystery", "other", None),
        ("", "other", None),
    ],
)
def test_which_way_is_better_is_read_off_the_name_and_unit(metric: str, group: str, better: str | None) -> None:
    assert judge_name(metric) == (group, better)


@pytest.mark.parametrize(
    ("metric", "baseline", "optimized", "percent", "judgement"),
    [
        ("latency_ms", 4.0, 3.0, -25.0, "better"),
        ("tokens/s", 4.0, 3.0, -25.0, "worse"),
        ("latency_ms", 100.0, 100.9, 0.9, "same"),
        ("latency_ms", 100.0, 98.9, -1.1, "better"),
        ("mystery", 4.0, 3.0, -25.0, None),
        ("kernels", 0.0, 0.0, 0.0, "same"),
        ("kernels", 0.0, 3.0, None, "worse"),
        ("tokens/s", 0.0, 3.0, None, "better"),
        ("saved", -2.0, -1.0, 50.0, "better"),
        ("latency_ms", 5e-324, 1e300, None, "worse"),
        ("latency_ms", None, 3.0, None, None),
        ("latency_ms", NAN, 3.0, None, None),
    ],
)
def test_a_change_is_a_share_of_the_baseline_and_judged_by_direction(
    metric: str, baseline: float | None, optimized: float | None, percent: float | None, judgement: str | None
) -> None:
    found = change(metric, baseline, optimized)
    assert found.percent == (None if percent is None else pytest.approx(percent, abs=1e-9))
    assert found.judgement == judgement


def compared(
    before: VariantResult | dict[str, float | None], after: VariantResult | dict[str, float | None], raw: bool = False
) -> Comparison:
    return compare_and_display_all_metrics(
        baseline_result=before, optimized_result=after, name="x", chapter="ch07", include_raw_metrics=raw
    )


def by_name(comparison: Comparison) -> dict[str, Change]:
    return {found.metric: found for found in comparison.changes}


def test_mappings_are_compared_group_by_group_with_what_only_one_side_has(capsys: pytest.CaptureFixture[str]) -> None:
    found = compared({"mystery": 1, "kernels": 4, "latency_ms": 2.0}, {"tokens/s": 9.0, "latency_ms": 1.0})
    assert [one.group for one in found.changes] == ["timing", "throughput", "profiler", "other"]
    assert (found.judged("better"), found.judged("worse"), found.judged("same")) == (("latency_ms",), (), ())
    assert by_name(found)["tokens/s"].baseline is None
    shown = capsys.readouterr().out
    lines = {name: next(line for line in shown.splitlines() if name in line) for name in by_name(found)}
    for part in ("timing", "-50.0%", "lower", "better"):
        assert part in lines["latency_ms"]
    assert "missing" in lines["tokens/s"]
    for part in ("1", "missing", "unknown", "not judged"):
        assert part in lines["mystery"]
    assert "ch07:x" in shown


def test_variants_have_timing_memory_throughput_and_profiler_metrics(capsys: pytest.CaptureFixture[str]) -> None:
    before, after = pair({"baseline": 400.0, "optimized": 50.0}).variants
    found = compared(before, after)
    assert {one.group for one in found.changes} == {"timing", "memory", "throughput", "profiler"}
    for metric in ("device_median_us", "peak_memory_bytes", "GB/s", "kernels", "percent_of_limit"):
        assert by_name(found)[metric].judgement == "better"
    assert by_name(found)["device_median_us"].percent == pytest.approx(-87.5, abs=0.1)
    shown = capsys.readouterr().out
    assert "50.0 us" in shown
    assert "3.0 GB" in shown
    assert "device_q1_us" not in shown


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        (
            {"status": "failed", "reason": "it is [red]wrong"},
            "optimized is failed, so it has no numbers to compare: it is [red]wrong",
        ),
        ({"verdict": "invalid"}, "optimized is invalid, so it has no numbers to compare"),
        ({"status": "unsupported"}, "optimized is unsupported"),
    ],
)
def test_a_variant_that_nothing_proved_has_no_numbers(
    facts: dict[str, str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = pair({"baseline": 400.0, "optimized": 50.0}).variants
    found = compared(before, after.model_copy(update=facts))
    assert {one.optimized for one in found.changes} == {None}
    assert found.notes[0].startswith(told)
    assert told in " ".join(capsys.readouterr().out.split())
    assert {one.judgement for one in found.changes} == {None}


@pytest.mark.parametrize("value", ["fast", True, [1]])
def test_what_is_neither_number_nor_none_is_refused_by_name(value: object) -> None:
    with pytest.raises(TypeError, match=r"metric 'latency_ms' of optimized_result is .*: a number or None is needed"):
        compared({"latency_ms": 1.0}, {"latency_ms": value})  # type: ignore[dict-item]


def test_foreign_names_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    compare_and_display_all_metrics(
        baseline_result={"[red]x\x1b[31m": 1.0}, optimized_result={}, name="[bold]n", chapter="[/]"
    )
    shown = capsys.readouterr().out
    assert "[red]x [31m" in shown
    assert "[/]:[bold]n" in shown
    assert "\x1b" not in shown
