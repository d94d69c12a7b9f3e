"""The shared decoder against its float64 reference, through every way of keeping keys and values; and its numbers."""

from math import exp
from pathlib import Path

import pytest
import torch
from torch import Tensor

from common.models.caches import continuing_pages, new_cache, prefilling_pages
from common.models.decoder import SHAPES, Shape, Weights, draw_weights, forward, greedy
from common.models.fused_decode import Decoder
from common.models.lengths import SHAREGPT_ANSWER, length_mix
from common.models.references import hidden_states, planted
from common.python.workload import Draw

GROUPED = Shape(layers=3, width=24, heads=6, kv_heads=2, hidden=37, vocabulary=53, rope_base=5e5)
LENGTH = 11


def drawn(shape: Shape, folder: Path, seed: int = 0) -> tuple[Weights, Tensor, Tensor, Tensor]:
    """Weights, tokens (3, LENGTH), their positions and what the reference says of them."""
    draw = Draw(torch.device("cpu"), seed, folder)
    weights, tokens = draw_weights(draw, shape, torch.float64), draw.integers(3, LENGTH, high=shape.vocabulary)
    positions = torch.arange(LENGTH).expand(3, -1)
    return weights, tokens, positions, torch.stack([hidden_states(weights, shape, row) for row in tokens])


def test_a_shared_page_is_read_by_both_that_name_it(tmp_path: Path) -> None:
    weights, tokens, positions, _ = drawn(GROUPED, tmp_path)
    tokens[1, :6] = tokens[0, :6]
    pool = new_cache(GROUPED, 6, 3, weights["head"])
    table = torch.tensor([[4, 1, 0, 2], [4, 1, 5, 3]])
    forward(weights, GROUPED, tokens[:1, :6], positions[:1, :6], prefilling_pages(pool, table[:1], positions[:1, :6]))
    rest = slice(6, LENGTH)
    attend = continuing_pages(pool, table, positions[:2, rest])
    found = forward(weights, GROUPED, tokens[:2, rest], positions[:2, rest], attend)
    wanted = torch.stack([hidden_states(weights, GROUPED, row)[rest] for row in tokens[:2]])
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)  # angles are float32 here, float64 there


def test_the_reference_sees_each_earlier_token_and_no_later_one(tmp_path: Path) -> None:
    weights, tokens, _, wanted = drawn(GROUPED, tmp_path)
    changed = tokens[0].clone()
    changed[5] = (changed[5] + 1) % GROUPED.vocabulary
    moved = (hidden_states(weights, GROUPED, changed) - wanted[0]).abs().amax(-1)
    assert (moved[:5] == 0).all()
    assert (moved[5:] > 1e-6).all()


def test_greedy_decoding_follows_the_planted_chain(tmp_path: Path) -> None:
    shape = Shape(layers=2, width=96, heads=6, kv_heads=2, hidden=131, vocabulary=97)
    for seed in range(3):
        weights, tokens, _, _ = drawn(shape, tmp_path, seed)
        sequence = tokens[0, :4]
        for _ in range(5):
            sequence = torch.cat([sequence, greedy(weights, hidden_states(weights, shape, sequence)[-1:])])
        chosen, hidden = planted(weights, shape, tokens[0, :4], 5)
        assert torch.equal(chosen, sequence[4:])
        torch.testing.assert_close(hidden, hidden_states(weights, shape, sequence[:-1])[3:])


@pytest.mark.parametrize(
    ("name", "embedded_too"), [("stories15m", 15_187_968), ("stories110m", 109_510_656), ("llama31_8b", 7_504_658_432)]
)
def test_published_shapes_have_their_published_numbers_of_weights(name: str, embedded_too: int) -> None:
    """By hand: stories15m is 6 x (4 x 288^2 + 3 x 288 x 768) + 288 x 32000. The gains of the norms are not counted."""
    assert SHAPES[name].read_weights == embedded_too


def test_a_length_mix_has_its_mean_its_tail_and_its_bounds() -> None:
    mix = length_mix(4096, SHAREGPT_ANSWER, longest=100_000, spread=1.0)
    assert sum(mix) / len(mix) == pytest.approx(SHAREGPT_ANSWER, rel=0.01)
    assert mix[2048] == pytest.approx(SHAREGPT_ANSWER * exp(-0.5), rel=0.01)  # the median of a lognormal of sigma 1
    assert mix == sorted(mix)
    cut = length_mix(64, 20.0, longest=50, spread=1.0)
    assert (min(cut) >= 1, max(cut)) == (True, 50)


def test_a_tensor_of_starts_needs_a_cache(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="pass `cache`"):
        Decoder(drawn(GROUPED, tmp_path)[0], GROUPED, 2, torch.tensor([4, 7]), new=3)
