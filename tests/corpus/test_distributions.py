"""The serving pairs: what they schedule, share and sample, each against another way to the same answer."""

from collections import Counter
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from ch16.baseline_topk_topp_sampling import K, P, sampled
from ch16.baseline_topk_topp_sampling import workload as topk_topp_sampling
from ch16.optimized_speculative_decoding__eager_passes import prepare as prepare_speculative
from common.models.decoder import Shape, draw_weights
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
    """Three tokens of a tiny target, 400 times, with a draft that has nothing to do with it."""
    draw, count, runs = Draw(torch.device("cpu"), 3, tmp_path), 3, 400
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
    step, seen = prepare_speculative(weights, shapes, draft, prompt, noise).step, Counter()
    generator = torch.Generator().manual_seed(11)
    for _ in range(runs):
        noise.copy_(gumbel(generator, 3, count))
        seen[tuple(step()[0].tolist())] += 1
    assert chi_square(seen, expected) < limit(len(expected) - 1)


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
