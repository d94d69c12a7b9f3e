"""The serving pairs: what they schedule, share and sample, each against another way to the same answer."""

from collections import Counter
from itertools import product
from pathlib import Path

import numpy
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from ch15.baseline_continuous_batching import prepare as prepare_static
from ch15.baseline_continuous_batching import serving
from ch15.baseline_continuous_batching import workload as continuous_batching
from ch15.baseline_paged_kv import workload as paged_kv
from ch16.baseline_speculative_decoding import workload as speculative_decoding
from ch16.baseline_topk_topp_sampling import K, P, sampled
from ch16.baseline_topk_topp_sampling import workload as topk_topp_sampling
from ch16.optimized_prefix_cache import BLOCK, shared_blocks
from ch16.optimized_speculative_decoding import prepare as prepare_speculative
from common.models.caches import continuing
from common.models.decoder import Shape, draw_weights, forward
from common.models.lengths import length_mix
from common.models.references import hidden_states
from common.python.workload import Draw


def gumbel(generator: torch.Generator, *shape: int) -> Tensor:
    return -torch.empty(shape).exponential_(generator=generator).log()


def chi_square(seen: Counter[tuple[int, ...]], expected: dict[tuple[int, ...], float]) -> float:
    """The statistic over outcomes, those expected fewer than five times taken together."""
    runs = seen.total()
    rare = [key for key, share in expected.items() if share * runs < 5]
    cells = [(seen[key], share * runs) for key, share in expected.items() if share * runs >= 5]
    cells.append((sum(seen[key] for key in rare), sum(expected[key] for key in rare) * runs))
    return sum((found - wanted) ** 2 / wanted for found, wanted in cells if wanted)


def limit(cells: int) -> float:
    """What chi-square with this many degrees of freedom exceeds once in 10,000, by Wilson and Hilferty."""
    return cells * (1 - 2 / (9 * cells) + 3.719 * (2 / (9 * cells)) ** 0.5) ** 3


def test_speculation_keeps_the_targets_distribution(tmp_path: Path) -> None:
    """Three tokens of a tiny target, 1500 times, with a draft that has nothing to do with it."""
    draw, count, runs = Draw(torch.device("cpu"), 3, tmp_path), 3, 1500
    shapes = Shape(1, 8, 2, 1, 8, count), Shape(1, 4, 1, 1, 4, count)
    weights, draft = (draw_weights(draw, shape, torch.float32) for shape in shapes)
    weights["head"], draft["head"] = weights["head"] * 0.4, draft["head"] * 0.8
    prompt, noise = torch.tensor([[1, 2]]), torch.empty(3, count)
    expected: dict[tuple[int, ...], float] = {}
    for answer in product(range(count), repeat=3):
        states = hidden_states(weights, shapes[0], torch.tensor([1, 2, *answer[:2]]))[1:]
        shares = F.linear(states, weights["head"]).softmax(-1)
        expected[answer] = float(shares[range(3), answer].prod())
    assert max(expected.values()) < 0.5  # or there would be little to tell apart
    step, generator, seen = (
        prepare_speculative(weights, shapes, draft, prompt, noise).step,
        torch.Generator(),
        Counter(),
    )
    generator.manual_seed(11)
    for _ in range(runs):
        noise.copy_(gumbel(generator, 3, count))
        seen[tuple(step()[0].tolist())] += 1
    assert chi_square(seen, expected) < limit(len(expected) - 1)


def test_the_draft_leaves_no_gap_in_its_cache_when_all_it_proposed_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the target as its own draft all is kept; the planted margin would hide a key that was never stored."""
    inputs = speculative_decoding.inputs(Draw(torch.device("cpu"), 0, tmp_path), **speculative_decoding.sizes["test"])
    draft, shape, passed = dict(inputs["weights"]), inputs["shapes"][0], set[int]()

    def noting(weights: object, *given: object) -> Tensor:
        if weights is draft:
            positions = given[2].flatten().tolist()
            assert passed.union(positions) >= set(range(max(positions)))
            passed.update(positions)
        return original(weights, *given)

    original = forward
    monkeypatch.setattr("ch16.optimized_speculative_decoding.forward", noting)
    prepare_speculative(**{**inputs, "draft": draft, "shapes": (shape, shape)}).step()
    assert len(passed) > inputs["prompt"].shape[1] + 10


def test_filtered_sampling_has_the_filtered_distribution() -> None:
    generator = torch.Generator().manual_seed(5)
    logits = torch.randn(200, generator=generator) * 2
    ordered, order = logits.double().sort(descending=True)
    shares = ordered[:K].softmax(0)
    kept = int((shares.cumsum(0) < P).sum()) + 1
    expected = {(int(token),): float(share) for token, share in zip(order, shares[:kept] / shares[:kept].sum())}
    drawn = sampled(logits.expand(20_000, -1), gumbel(generator, 20_000, 200)).tolist()
    assert set(drawn) <= {token for (token,) in expected}
    assert chi_square(Counter((token,) for token in drawn), expected) < limit(kept - 1)


@pytest.mark.parametrize("mistake", [{"K": 2 * K}, {"P": P + 0.02}, {"P": P - 0.02}, {"P": 1.1}])
def test_the_planted_tokens_tell_a_filter_that_is_slightly_off(
    mistake: dict[str, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = topk_topp_sampling.inputs(Draw(torch.device("cpu"), 0, tmp_path), rows=20, vocabulary=5003)
    right = topk_topp_sampling.reference(**inputs)
    assert torch.equal(sampled(**inputs), right)
    for name, value in mistake.items():
        monkeypatch.setattr(f"ch16.baseline_topk_topp_sampling.{name}", value)
    assert not torch.equal(sampled(**inputs), right)


def test_blocks_are_shared_only_where_all_before_them_is_the_same() -> None:
    a, b, c = (numpy.arange(BLOCK) + shift for shift in (0, 1000, 2000))
    end = numpy.array([7])
    rows = [numpy.concatenate(parts) for parts in ((a, b, end), (a, b, end), (c, b, end), (b, a, end))]
    groups = shared_blocks(numpy.stack(rows))
    assert sorted(groups) == [([0, 1], 2), ([2, 3], 0)]  # b after c is not b after a


def test_a_last_token_is_never_shared() -> None:
    rows = numpy.zeros((3, BLOCK), dtype=numpy.int64)
    assert shared_blocks(rows) == [([0, 1, 2], 0)]


def test_a_slot_that_is_refilled_at_once_saves_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decode steps counted by hand: 2 slots, wanted 4 1 4 1. Static 3 + 3. Refilled, 4 at most."""
    size = {**continuous_batching.sizes["test"], "requests": 4, "slots": 2}
    inputs = continuous_batching.inputs(Draw(torch.device("cpu"), 0, tmp_path), **size)
    inputs["wanted"] = torch.tensor([4, 1, 4, 1])
    passes: list[int] = []

    def counted(*given: object) -> object:
        passes.append(1)
        return original(*given)

    original = continuing
    monkeypatch.setattr("ch15.baseline_continuous_batching.continuing", counted)
    wanted = continuous_batching.reference(**{**inputs, "weights": _doubled(inputs["weights"])})
    for prepare, steps in (
        (prepare_static, 6),
        (lambda **given: serving(**given, admits=lambda idle: True), 4),
    ):
        passes.clear()
        tokens, states = prepare(**inputs).step()
        assert torch.equal(tokens, wanted[0])
        torch.testing.assert_close(states.double(), wanted[1], rtol=1e-3, atol=1e-3)
        assert len(passes) == steps


def _doubled(tree: object) -> object:
    return torch.utils._pytree.tree_map(lambda leaf: leaf.double() if leaf.is_floating_point() else leaf, tree)


def test_sixteen_token_pages_waste_less_than_rows_of_the_longest() -> None:
    """The row's target is a waste of at most 4% of the live keys and values; rows waste several times what lives."""
    size = paged_kv.sizes["bench"]
    lengths = length_mix(size["requests"], size["mean"], size["longest"], size["spread"])
    pages = sum(-(-length // 16) * 16 for length in lengths)
    assert pages / sum(lengths) < 1.04
    assert size["requests"] * size["longest"] / sum(lengths) > 4
