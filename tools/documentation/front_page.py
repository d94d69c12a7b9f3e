"""The results on the front page, from what chapters expect of an H200: `python -m tools.documentation.front_page`.

A pair a line, from each chapter that has any; the chapters' own tables, written anew too, have all pairs with their
rungs and what each does. Pictures: the headlines' shares of the limit and peers, each chapter's gains, and all pairs
that do arithmetic under the newest peaks that their limits were made of.
"""

from pathlib import Path

from common.python.base.journal import write
from common.python.base.toolkit import ROOT
from common.python.corpus.discovery import find_pairs
from common.python.performance_targets import Peaks
from common.python.regress.expectations import Expectation, Expectations, expected, over_runs, record, table
from common.python.report.charts import gain_chart, headline_chart, roofline_chart, standing_alone
from common.python.report.markdown import BEGIN, replace_between_markers

GPU, ARCH = "NVIDIA H200", "sm_90a"
PICTURE = Path("docs/results/h200/roofline.svg")
HEADLINES, GAINS = PICTURE.with_name("headlines.svg"), "gains_{}.svg"
PAIRS = (
    *("ch01:pinned_copy", "ch02:tensor_core_gemm", "ch03:huge_page_gather", "ch04:tp_gemm_overlap"),
    *("ch05:direct_read", "ch06:block_reduction", "ch07:transpose", "ch07:sgemm_tiling"),
    *("ch08:histogram_privatized", "ch09:softmax", "ch09:linear_cross_entropy", "ch10:gemm_wgmma"),
    *("ch11:copy_compute_pipeline", "ch12:sinkhorn_while_node", "ch13:adamw_fused", "ch14:triton_persistent_matmul"),
    *("ch15:paged_kv", "ch16:topk_topp_sampling", "ch17:moe_grouped_gemm", "ch18:flash_forward"),
    *("ch19:fp8_linear_training", "ch20:train_step_8b"),
)


def current(text: str, root: Path) -> str:
    """The page's text with the results as they are now. Raises ValueError for a page without a place for them."""
    known = expected(root, GPU)
    shown = {key: _lead(known[key]) for key in PAIRS if key in known}
    drawn = table(Expectations(schema_version=2, gpu=GPU, pairs=shown))
    elsewhere = [f"{key} ({', '.join(targets)})" for key, targets in compiled_only(root).items()]
    told = f"\n\nCompiled, not run, and counted apart, as they are for other GPUs: {', '.join(elsewhere)}."
    return replace_between_markers(text, drawn + told * bool(elsewhere))


def compiled_only(root: Path) -> dict[str, tuple[str, ...]]:
    """The pairs whose optimized variants are all for other GPUs, by key, and what they are compiled for."""
    ours = {pair.key: [one for one in pair.variants if one.role == "optimized"] for pair in find_pairs(root)}
    targets = {key: [arch for one in own for arch in one.required.targets or [ARCH]] for key, own in ours.items()}
    return {key: tuple(dict.fromkeys(archs)) for key, archs in targets.items() if archs and ARCH not in archs}


def charts(root: Path) -> dict[Path, str]:
    """The roofline and the charts of headlines and of each chapter's gains, by their places under `root`."""
    kept = expected(root, GPU)
    newest_last = sorted(kept.values(), key=lambda one: one.measured)
    limits = [one.result.limit for one in newest_last if one.result.limit]
    measured = {limit.resource: limit.peak for limit in limits if limit.source.startswith("measured")}
    chart = roofline_chart([one.result for one in newest_last], Peaks(values=measured, source="measured"))
    drawn = {PICTURE: standing_alone(chart)} if chart else {}  # only pairs that do arithmetic are in it
    known = {key: over_runs(one) for key, one in kept.items()}
    if shown := [known[key] for key in PAIRS if key in known]:
        drawn[HEADLINES] = standing_alone(headline_chart(shown))
    for chapter in sorted({result.chapter for result in known.values()}):
        own = [result for result in known.values() if result.chapter == chapter]
        drawn[PICTURE.with_name(GAINS.format(chapter))] = standing_alone(gain_chart(own))
    return drawn


def renew(root: Path) -> list[Path]:
    """Write them into the root's README.md, if it has a place for them, and the pictures; gives the files written."""
    page = root / "README.md"
    if not page.exists() or BEGIN not in page.read_text():
        return []
    write(page, current(page.read_text(), root))
    drawn = charts(root)
    (root / PICTURE).parent.mkdir(parents=True, exist_ok=True)
    for path, text in drawn.items():
        write(root / path, text)
    return [page, *(root / path for path in drawn)]


def _lead(one: Expectation) -> Expectation:
    """Without the rungs, whose lines stand in the chapter's table."""
    speaks = one.result.headline
    rows = [row for row in one.result.variants if row.role == "baseline" or row is speaks]
    return one.model_copy(update={"result": one.result.model_copy(update={"variants": rows, "notes": []})})


if __name__ == "__main__":
    for path in [*record(ROOT, expected(ROOT, GPU).values()), *renew(ROOT)]:
        print(f"wrote {path.relative_to(ROOT)}")
