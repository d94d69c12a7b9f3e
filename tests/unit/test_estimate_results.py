"""The page of predictions is made of stored files by the formulas of `estimate`, for the pairs as they are."""

from dataclasses import replace
from pathlib import Path

import pytest

from ch15.baseline_continuous_batching import workload as continuous_batching
from ch16.baseline_speculative_decoding import AGREED
from ch16.optimized_speculative_decoding import PROPOSED
from ch20.baseline_decode_8b import MODELS as DECODED
from ch20.baseline_train_step_8b import MODELS as TRAINED
from common.models.decoder import Shape
from common.models.lengths import length_mix
from common.python.base.results import Cost, PairResult
from common.python.estimate.estimate import Board
from common.python.regress.expectations import expected
from tools.cli.estimate_table import MARGIN
from tools.documentation import estimate_results
from tools.documentation.estimate_results import BEGIN, END, MODELS, PAIRS, bf16, current, decoder, least, main, rows

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs" / "results").glob("*/estimate.md"))
BOARD = Board("round", memory_bytes=80e9, bandwidth=1e12, rates={"bf16": 1e15}, source="made up")
# Blocks of 2 heads of 8 with one KV head, and an MLP of 32: 16 x 48 + 3 x 16 x 32 = 2,304 weights, a head of 10 x 16.
TINY = {"layers": 3, "vocabulary": 10, "width": 16, "heads": 2, "kv_heads": 1, "hidden": 32}
WEIGHTS, NORMS = 3 * 2304 + 160, 7 * 16


def result(key: str, cost: Cost | None = None, **shape: object) -> PairResult:
    chapter, name = key.split(":")
    known = {"chapter": chapter, "name": name, "status": "measured", "shape": shape}
    return PairResult.model_validate(known | {"cost": cost})


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.parent.name)
def test_the_page_is_what_the_stored_files_make_of_it(page: Path) -> None:
    text = page.read_text()
    assert text == current(text, page.parent, ROOT), "run `python -m tools.documentation.estimate_results`"


def test_an_h200_has_a_page_which_the_chapters_name() -> None:
    assert [page.parent.name for page in PAGES] == ["h200"]
    for chapter in {key.split(":")[0] for key in PAIRS}:
        assert "](../docs/results/h200/estimate.md)" in (ROOT / chapter / "README.md").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.parent.name)
def test_every_pair_has_all_its_measured_variants_and_none_is_faster_than_physics(page: Path) -> None:
    found, kept = rows(page.parent, ROOT), expected(ROOT, "NVIDIA H200")
    assert {row.pair for row in found} == set(PAIRS)
    for key in PAIRS:
        measured = {v.label for v in kept[key].result.variants if v.status == "measured"}
        assert {row.variant.removeprefix("peer ") for row in found if row.pair == key} == measured
    assert [row for row in found if row.ratio is not None and row.ratio < 1 / (1 + MARGIN)] == []


def test_what_stored_sizes_do_not_spell_out_is_what_the_pairs_say() -> None:
    for name, of in (("llama31_8b", DECODED), ("llama31_8b_sixteenth", TRAINED)):
        shape = of[name]
        assert isinstance(shape, Shape)
        assert MODELS[name] == {word: getattr(shape, word) for word in MODELS[name]}
    assert (estimate_results.PROPOSED, estimate_results.AGREED) == (PROPOSED, AGREED)


def test_a_pairs_shape_has_the_weights_that_the_pair_counts() -> None:
    model = decoder(TINY)
    assert (model.linear + model.head, model.vectors, model.embedding) == (WEIGHTS, NORMS, 160)
    assert Shape(**TINY).read_weights == WEIGHTS


def test_a_kept_cache_is_a_prefill_and_a_step_for_each_further_token() -> None:
    """All bound by memory: weights, and 2 x 3 x 8 numbers for each token that is written or read, 2 bytes each."""
    again, kept = PAIRS["ch15:kv_cache"](BOARD, result("ch15:kv_cache", shape=TINY, batch=5, prompt=7, new=3))
    passes = [2 * (WEIGHTS + NORMS + 5 * length * 48) / 1e12 * 1e3 for length in (7, 8, 9)]
    assert kept.least == pytest.approx(sum(passes))
    assert again.least == pytest.approx(sum(passes))  # so few tokens take no longer than the weights
    assert (kept.bound, kept.source) == ("memory", "a prefill of 5 x 7, 2 decode steps")


def test_slots_that_are_never_idle_take_as_many_steps_as_their_tokens_fill() -> None:
    """Three requests of 4 tokens make 9 after their first: five steps of two slots, at contexts 6, 7 and 8."""
    size = {"requests": 3, "slots": 2, "prompt": 5}
    cost = Cost(hbm_bytes=2 * (6 * WEIGHTS + 48 * 3 * (5 + 6 + 7)), items=12)
    [one] = PAIRS["ch15:continuous_batching"](BOARD, result("ch15:continuous_batching", cost, shape=TINY, **size))
    prefill, step = (2 * (WEIGHTS + NORMS + tokens * 48) / 1e9 for tokens in (3 * 5, 2 * 7))
    assert one.least == pytest.approx(prefill + 5 * step)
    assert list(PAIRS["ch15:continuous_batching"](BOARD, result("ch15:continuous_batching", shape=TINY, **size))) == []


def test_the_mean_context_is_that_of_the_mix_that_is_served() -> None:
    size = continuous_batching.sizes["bench"]
    mix = length_mix(size["requests"], size["mean"], size["longest"], size["spread"])
    contexts = [size["prompt"] + made for count in mix for made in range(1, count)]
    cost, slots = continuous_batching.cost(**size), bf16(size["shape"], size["slots"], 1)
    [one] = PAIRS["ch15:continuous_batching"](BOARD, result("ch15:continuous_batching", cost, **size))
    steps = -(-len(contexts) // size["slots"])
    assert f"{steps} decode steps" in one.source
    prefill = least("prefill", bf16(size["shape"], size["requests"], size["prompt"]), BOARD)
    step = least("decode", replace(slots, context=round(sum(contexts) / len(contexts))), BOARD)
    assert one.least == pytest.approx(prefill.ms + steps * step.ms)


def test_own_tokens_are_what_whole_prompts_take_more_than_their_prefix() -> None:
    """Bound by arithmetic on this board: 2 FLOPs a weight and token, 4 x 3 x 16 a query and the key that it sees."""
    slow = Board("slow", memory_bytes=80e9, bandwidth=1e15, rates={"bf16": 1e9}, source="made up")
    size = {"prompts": 1, "requests": 5, "shared": 11, "own": 2}
    whole, once = PAIRS["ch16:prefix_cache"](slow, result("ch16:prefix_cache", shape=TINY, **size))
    matrices, head = 2 * 3 * 2304, 2 * 160
    assert whole.least == pytest.approx((5 * (13 * matrices + head) + 5 * 192 * (13 * 14 // 2)) / 1e6)
    flops = (11 + 5 * 2) * matrices + head + 192 * (66 + 5 * (12 + 13))
    assert once.least == pytest.approx(flops / 1e6)


def test_rounds_are_as_many_as_the_share_of_right_guesses_makes_them() -> None:
    size = {"target": TINY, "draft": {**TINY, "layers": 1}, "prompt": 6, "new": 4}
    plain, guessed = PAIRS["ch16:speculative_decoding"](BOARD, result("ch16:speculative_decoding", **size))
    target = [2 * (WEIGHTS + NORMS + tokens * 48) / 1e9 for tokens in (6, 7, 8, 9, 5 * 8)]
    draft = [2 * (2304 + 160 + 3 * 16 + tokens * 16) / 1e9 for tokens in (6, 8)]
    rounds = 3 / (1 + 0.8 + 0.8**2 + 0.8**3 + 0.8**4)
    assert plain.least == pytest.approx(sum(target[:4]))
    assert guessed.least == pytest.approx(target[0] + draft[0] + rounds * (target[4] + 4 * draft[1]))


def test_the_spread_of_the_mixes_is_that_of_the_published_percentiles() -> None:
    """Median 139 and 90th percentile 484 of LMSys-Chat-1M's answers: ln(484 / 139) over 1.2816 deviations."""
    size = continuous_batching.sizes["bench"]
    mix = length_mix(1000, 1e3, 10**6, size["spread"])
    assert mix[900] / mix[500] == pytest.approx(484 / 139, rel=0.01)


def test_a_page_without_markers_or_peaks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the text must hold <!-- estimate:begin -->"):
        current("# Nothing\n", PAGES[0].parent, ROOT)
    with pytest.raises(ValueError, match=r"has no peaks\.json"):
        current(f"{BEGIN}\n{END}\n", tmp_path, ROOT)


def test_pages_are_written_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "docs" / "results" / "h200"
    folder.mkdir(parents=True)
    (folder / "peaks.json").write_bytes((PAGES[0].parent / "peaks.json").read_bytes())
    (folder / "estimate.md").write_text(f"Before.\n\n{BEGIN}\nold\n{END}\n\nAfter.\n")
    main(tmp_path)  # a tree without expectations has no rows
    text = (folder / "estimate.md").read_text()
    assert capsys.readouterr().out == f"{folder / 'estimate.md'}\n"
    assert text.startswith("Before.\n\n<!--")
    assert text.endswith("After.\n")
    assert "old" not in text
    assert "| pair | variant |" in text
