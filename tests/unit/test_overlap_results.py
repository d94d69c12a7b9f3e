"""How much communication lies below arithmetic, of made-up traces whose figures were worked out by hand."""

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from synthetic_run import manifest
from test_report_plots import corners, styled, words

from common.python.report.markup import Markup
from tools.documentation.overlap import Overlap, gaps, intersection, kind, overlap
from tools.documentation.overlap_results import PAIRS, main

PAGE = "# Chapter\n\n<!-- overlap:begin -->\nold\n<!-- overlap:end -->\n\nAfter.\n"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
PEER_COPY = "Memcpy PtoP (Device -> Device)"
TORCH = "c10d::symmetric_memory::"
KINDS = {
    "sm90_xmma_gemm_bf16bf16_bf16f32": "arithmetic",
    "void at::native::reduce_kernel<512, 1>(at::native::ReduceOp<float>)": "arithmetic",
    "triton_one_shot": "arithmetic",
    NCCL: "communication",
    f"{TORCH}lsa_put_kernel(void**)": "communication",
    "void (anonymous namespace)::one_shot_all_reduce_kernel<c10::BFloat16, 16, 2>(c10::BFloat16**)": "communication",
    "void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<float, 16, 2>(float**)": "communication",
    "void (anonymous namespace)::multimem_all_gather_kernel<16>(char*, char*)": "communication",
    f"{TORCH}wait_signal_kernel(unsigned int**, int, int, int, int, unsigned long)": "waiting",
    f"{TORCH}put_signal_kernel(unsigned int**, int, int, int, int, unsigned long)": "waiting",
    f"{TORCH}barrier_kernel(unsigned int**, int, int, int, unsigned long)": "waiting",
    f"{TORCH}multimem_barrier_kernel(unsigned int*, unsigned int*)": "waiting",
}


def event(name: str, ts: float, dur: float, category: str = "kernel") -> dict[str, Any]:
    return {"name": name, "cat": category, "ph": "X", "ts": ts, "dur": dur, "args": {}}


def us(seen: Overlap) -> tuple[float, ...]:
    """Step, arithmetic, communication, hidden, exposed and waiting."""
    spans = (seen.arithmetic, seen.communication, seen.hidden, seen.exposed, seen.waiting)
    return (seen.step_us, *(sum(end - start for start, end in one) for one in spans))


@pytest.mark.parametrize("name", KINDS)
def test_a_kernel_is_of_the_kind_that_its_name_says(name: str) -> None:
    assert kind(event(name, 0, 1)) == KINDS[name]


def test_of_copies_only_those_between_gpus_count() -> None:
    others = ("Memcpy DtoD (Device -> Device)", "Memcpy HtoD (Pinned -> Device)")
    assert [kind(event(name, 0, 1, "gpu_memcpy")) for name in (PEER_COPY, *others)] == ["communication", "", ""]
    assert kind(event("Memset (Device)", 0, 1, "gpu_memset")) == ""


def test_what_lies_half_below_arithmetic_is_half_hidden() -> None:
    seen = overlap([event("gemm", 1000, 100), event(NCCL, 1060, 80)])
    assert us(seen) == (140, 100, 80, 40, 40, 0)
    assert (seen.hidden, seen.exposed, seen.share()) == ([(60, 100)], [(100, 140)], "50%")


def test_what_lies_wholly_below_arithmetic_is_hidden_though_it_is_of_two_kernels() -> None:
    seen = overlap([event("gemm", 1000, 50), event("tanh", 1050, 50), event(PEER_COPY, 1020, 60, "gpu_memcpy")])
    assert (us(seen), seen.share()) == ((100, 100, 60, 60, 0, 0), "100%")
    assert (seen.arithmetic, seen.hidden) == ([(0, 100)], [(20, 80)])


def test_what_comes_before_between_and_behind_arithmetic_is_exposed() -> None:
    sent = [event(NCCL, 1000, 10), event(NCCL, 1040, 5), event(NCCL, 1060, 20)]
    seen = overlap([*sent, event("gemm", 1010, 30), event("gemm", 1045, 15)])
    assert (us(seen), seen.share()) == ((80, 45, 35, 0, 35, 0), "0%")
    assert seen.exposed == [(0, 10), (40, 45), (60, 80)]


def test_streams_that_overlap_themselves_count_once() -> None:
    sent = [event(NCCL, 1010, 30), event(PEER_COPY, 1020, 40, "gpu_memcpy"), event(NCCL, 1090, 20)]
    computed = [event("gemm", 1000, 30), event("tanh", 1005, 10), event("gemm", 1050, 45)]
    assert us(overlap([*sent, *computed])) == (110, 75, 70, 20 + 10 + 5, 20 + 15, 0)


def test_waiting_hides_nothing_and_is_not_hidden() -> None:
    waits = [event(f"{TORCH}barrier_kernel(int)", 1000, 10), event(f"{TORCH}wait_signal_kernel(int)", 1030, 20)]
    seen = overlap([*waits, event("gemm", 1010, 25), event(NCCL, 1040, 20)])
    assert us(seen) == (60, 25, 20, 0, 20, 30)


def test_a_step_begins_and_ends_with_any_work_and_its_host_is_no_part_of_it() -> None:
    around = [
        event("Memset (Device)", 990, 2, "gpu_memset"),
        event("Memcpy DtoD (Device -> Device)", 1090, 10, "gpu_memcpy"),
    ]
    host = [event("aten::mm", 900, 500, "cpu_op"), event("step of x", 900, 500, "gpu_user_annotation")]
    seen = overlap([*around, *host, event("gemm", 1000, 50)])
    assert (us(seen), seen.share()) == ((110, 50, 0, 0, 0, 0), "")
    assert seen.arithmetic == [(10, 60)]


def test_spans_that_only_touch_have_nothing_in_common() -> None:
    assert intersection([(0, 2), (4, 6)], [(2, 4), (5, 9)]) == [(5, 6)]
    assert gaps([(0, 2), (3, 4)], 4) == [(0, 0), (2, 3), (4, 4)]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two ranks of the two pairs; rank 1 has a longer message, and each trace another variant's step as well."""
    (tmp_path / "ch04").mkdir()
    (tmp_path / "ch04" / "README.md").write_text(PAGE)
    folder = tmp_path / "run"
    for key in PAIRS:
        name = key.partition(":")[2]
        place = folder / f"ch04_{name}" / "profiles"
        place.mkdir(parents=True)
        for rank in (0, 1):
            late, early = event(NCCL, 2000, 400 + 100 * rank), event(NCCL, 1500, 800)
            for variant, sent in ((f"baseline_{name}", late), (f"optimized_{name}__nccl", early)):
                whole = event(f"step and its work of {variant}", 500, 3000, "user_annotation")
                alien = [event("step and its work of other", 5000, 100, "user_annotation"), event("gemm", 5010, 50)]
                text = json.dumps({"traceEvents": [{"ph": "M"}, whole, event("gemm", 1000, 1000), sent, *alien]})
                (place / f"{variant}.rank{rank}.trace.json").write_text(text)
    (folder / "manifest.json").write_text(manifest(git_dirty=False, git_commit="0123456789").model_dump_json())
    return folder


def page(run: Path) -> str:
    return (run.parent / "ch04" / "README.md").read_text()


def picture(run: Path) -> Markup:
    return Markup((run.parent / "docs" / "results" / "h200" / "overlap.svg").read_text())


def test_the_page_has_a_line_for_each_variant_and_rank_and_says_what_run_it_is_of(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(run)], run.parent) == 0
    assert [Path(line).name for line in capsys.readouterr().out.splitlines()] == ["overlap.svg", "README.md"]
    text = page(run)
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ch04:")]
    assert [row[:3] for row in rows[:4]] == [
        ["ch04:ddp_overlap", variant, rank] for variant in ("baseline", "optimized__nccl") for rank in "01"
    ]
    assert [row[0] for row in rows] == [PAIRS[0]] * 4 + [PAIRS[1]] * 4
    assert rows[1][3:] == ["1.50 ms", "1.00 ms", "500 us", "0 us, 0%", "500 us", "0 us"]
    assert rows[2][3:] == ["1.30 ms", "1.00 ms", "800 us", "500 us, 62%", "300 us", "0 us"]
    assert "NVIDIA H200, 2026-01-02, commit 01234567.\n" in text
    assert "](../docs/results/h200/overlap.svg)\n<!-- overlap:end -->\n\nAfter.\n" in text
    assert text.startswith("# Chapter\n\n<!-- overlap:begin -->\n| pair ")
    assert "old" not in text


def test_a_tree_that_differed_and_a_commit_that_is_unknown_are_told(run: Path) -> None:
    for commit, dirty, told in (
        ("0123456789", True, "01234567 with uncommitted changes."),
        (None, None, "not recorded."),
    ):
        (run / "manifest.json").write_text(manifest(git_dirty=dirty, git_commit=commit).model_dump_json())
        assert main([str(run)], run.parent) == 0
        assert f"commit {told}\n" in page(run)


def test_only_the_pairs_that_are_named_are_shown(run: Path) -> None:
    assert main([str(run), "--pairs", PAIRS[1]], run.parent) == 0
    assert PAIRS[1] in page(run)
    assert PAIRS[0] not in page(run)
    assert f"{PAIRS[0]}, ms" not in words(picture(run))


def bars(chart: Markup, colour: str) -> list[tuple[float, float, float]]:
    """Left, right and top of each bar, less the legend's, which is drawn last."""
    found = [corners(path) for path in styled(chart, "path", f"fill: {colour}")]
    return [(min(x for x, _ in one), max(x for x, _ in one), min(y for _, y in one)) for one in found][:-1]


def test_bars_stand_on_the_time_axis_of_their_pair_and_communication_below_arithmetic(run: Path) -> None:
    assert main([str(run)], run.parent) == 0
    chart = picture(run)
    computed, hidden, exposed = (bars(chart, colour) for colour in ("currentColor", "var(--peer)", "var(--bad)"))
    assert (len(computed), len(hidden), len(exposed)) == (4, 2, 4)  # of rank 0 only
    zero, second = computed[0][:2]  # 1 ms of arithmetic
    scale = second - zero
    assert scale > 200
    assert exposed[0][:2] == pytest.approx((zero + scale, zero + 1.4 * scale), abs=0.1)
    assert hidden[0][:2] == pytest.approx((zero + 0.5 * scale, zero + scale), abs=0.1)
    assert exposed[1][:2] == pytest.approx((zero + scale, zero + 1.3 * scale), abs=0.1)
    assert computed[0][2] < exposed[0][2] < computed[1][2] < hidden[0][2] == exposed[1][2] < computed[2][2]
    told = set(words(chart))
    assert {f"{pair}, ms" for pair in PAIRS} | {"baseline", "optimized__nccl", "0% hidden", "62% hidden"} <= told
    assert {"arithmetic", "hidden communication", "exposed communication"} <= told


def test_the_picture_is_the_same_every_time_and_stands_alone(run: Path) -> None:
    main([str(run)], run.parent)
    first = picture(run).text
    main([str(run)], run.parent)
    assert picture(run).text == first
    assert ElementTree.fromstring(first).tag.endswith("svg")
    assert not re.search(r"https?://(?!www\.w3\.org/)|<script|#00000[1-6]|<dc:date", first)


def cut(run: Path, where: str) -> str:
    """Break the run, or the page, and give what must be told of it."""
    trace = run / "ch04_tp_gemm_overlap" / "profiles" / "baseline_tp_gemm_overlap.rank1.trace.json"
    if where == "markers":
        (run.parent / "ch04" / "README.md").write_text("# Chapter\n")
        return "README.md: the text must hold <!-- overlap:begin --> and, after it, <!-- overlap:end -->, once each"
    if where == "run":
        run.rename(run.with_name("other"))
        return "manifest.json cannot be read: No such file or directory"
    if where == "traces":
        for path in run.glob("*/profiles/*"):
            path.unlink()
        return "has no trace of rank 0 of ch04:ddp_overlap: `benchmark_cli run ch04:ddp_overlap --profile` leaves them"
    if where == "GPU":
        about = manifest()
        about.machine.gpus.clear()
        (run / "manifest.json").write_text(about.model_dump_json())
        return "was on no GPU"
    whole = json.loads(trace.read_text())["traceEvents"]
    left, told = {
        "end": (trace.read_text()[:-2], "Expecting"),
        "all": ("", "Expecting value"),
        "events": ('{"a": 1}', "'traceEvents'"),
        "step": (json.dumps({"traceEvents": whole[2:]}), "it has no step"),
        "time": (json.dumps({"traceEvents": [whole[1], {"ph": "X", "name": "gemm", "cat": "kernel"}]}), "'ts'"),
        "kernels": (json.dumps({"traceEvents": whole[:2]}), "it has no kernel and no copy"),
    }[where]
    trace.write_text(left)
    return f"{trace} is no whole trace of a step on a GPU: {told}"


@pytest.mark.parametrize(
    "where", ["markers", "run", "traces", "GPU", "end", "all", "events", "step", "time", "kernels"]
)
def test_what_is_missing_or_cut_short_is_told_in_one_line_and_changes_nothing(
    where: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = cut(run, where)
    before = page(run)
    assert main([str(run)], run.parent) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("overlap_results: ")
    assert told in line
    assert page(run) == before
    assert not (run.parent / "docs").exists()


def test_this_trees_chapter_has_a_place_for_it() -> None:
    text = (Path(__file__).resolve().parents[2] / "ch04" / "README.md").read_text()
    assert re.search(r"<!-- overlap:begin -->.*<!-- overlap:end -->", text, re.DOTALL)
