"""What a model takes and what a board allows, against arithmetic done by hand."""

from dataclasses import replace

import pytest

from common.python.estimate.estimate import ARITHMETIC, Board, Case, Estimate
from common.python.estimate.model_shapes import SHAPES, Model, model_of, model_of_count

BOARD = Board("round", memory_bytes=80e9, bandwidth=2e12, rates={"bf16": 1e15, "fp8": 2e15}, source="made up")
# Totals as they are commonly given, rounded; the cards were not opened. What is sure is worked out by hand below.
CARDS = {
    "stories15m": 15.2e6,
    "llama-2-7b": 6.74e9,
    "llama-3.2-1b": 1.24e9,
    "llama-3.2-3b": 3.21e9,
    "llama-3.1-8b": 8.03e9,
    "llama-3.1-70b": 70.6e9,
    "llama-3.1-405b": 406e9,
    "qwen2.5-7b": 7.61e9,
    "qwen2.5-32b": 32.5e9,
    "qwen3-8b": 8.2e9,
    "qwen3-32b": 32.8e9,
}


def model(name: str) -> Model:
    return model_of(next(shape for shape in SHAPES if shape.name == name))


def case(name: str, weights: str = "bf16", cache: str = "bf16", batch: int = 1, context: int = 4096) -> Case:
    return Case(model(name), weights, cache, ARITHMETIC[weights], batch, context)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_a_published_shape_has_as_many_parameters_as_its_card_says(shape) -> None:
    found = Case(model_of(shape), "bf16", "bf16", "bf16", batch=1, context=1)
    assert Estimate(found, BOARD).parameters == pytest.approx(CARDS[shape.name], rel=0.01)
    assert shape.heads % shape.kv_heads == 0
    assert "https://" in shape.source


@pytest.mark.parametrize(
    ("text", "count"),
    [("8B", 8e9), ("70.6b", 70.6e9), (" 15M ", 15e6), ("1.5T", 1.5e12), ("8.03e9", 8.03e9), ("7", 7), ("100k", 1e5)],
)
def test_a_count_of_parameters_is_read(text: str, count: float) -> None:
    found = model_of_count(text)
    estimate = Estimate(Case(found, "bf16", "bf16", "bf16", batch=1, context=1), BOARD)
    assert (estimate.parameters, found.shape) == (round(count), None)


@pytest.mark.parametrize(
    ("name", "weights", "read", "held"),
    [
        # bf16: two bytes each; the embedding table is held, not read, unless it is the head.
        ("stories15m", "bf16", 30_383_424, 30_383_424),
        ("llama-2-7b", "bf16", 2 * (6_738_415_616 - 131_072_000), 13_476_831_232),
        # int4: half a byte and a scale of two bytes for each 128 in the layers; head, norms and embedding in bf16.
        ("stories15m", "int4", 2_985_984 + 93_312 + 2 * 9_219_744, 21_518_784),
        ("llama-3.1-8b", "int4", 3_598_712_832 + 2 * (525_336_576 + 266_240), 5_700_591_616),
        ("llama-3.1-8b", "int8", 6_979_321_856 + 2 * (525_336_576 + 266_240), 9_081_200_640),
    ],
)
def test_bytes_of_weights(name: str, weights: str, read: float, held: float) -> None:
    found = Estimate(case(name, weights), BOARD)
    assert (found.read_bytes, found.weight_bytes) == (read, held)


def test_gpus_share_weights_flops_and_the_cache_as_far_as_there_are_kv_heads() -> None:
    found = case("llama-3.1-8b", batch=8)
    one, four, sixteen = (Estimate(found, BOARD, gpus).decode for gpus in (1, 4, 16))
    assert four.memory_ms == one.memory_ms / 4
    assert sixteen.arithmetic_ms == one.arithmetic_ms / 16
    assert Estimate(found, BOARD).cache_share(16) == 1 / 8  # each of the 8 KV heads is on two of the 16
    assert sixteen.memory_ms == pytest.approx((15_009_849_344 / 16 + 8 * 536_870_912 / 8) / 2e9)


@pytest.mark.parametrize("name", ["stories15m", "llama-2-7b", "llama-3.1-8b"])
@pytest.mark.parametrize("weights", ["bf16", "int4"])
@pytest.mark.parametrize("gpus", [1, 2])
def test_at_the_ridge_memory_and_arithmetic_take_as_long(name: str, weights: str, gpus: int) -> None:
    found = case(name, weights, "fp8", context=8)
    ridge = Estimate(found, BOARD, gpus).ridge_batch
    assert ridge is not None
    below, above = (replace(found, batch=int(ridge) + extra) for extra in (0, 1))
    assert Estimate(below, BOARD, gpus).decode.bound == "memory"
    assert Estimate(above, BOARD, gpus).decode.bound == "arithmetic"


def test_as_many_gpus_as_hold_weights_and_cache_in_nine_tenths_of_their_memory() -> None:
    # 72 GB of 80 may be used. 70B in bf16 takes 141.107 GB, 2 x 70.55, and its cache 1.342 GB for 4096 tokens.
    seventy = case("llama-3.1-70b")
    assert Estimate(seventy, BOARD, 2).held_bytes == pytest.approx((141_107_412_992 + 4096 * 327_680) / 2)
    assert Estimate(seventy, BOARD).gpus_needed == 2
    assert Estimate(replace(seventy, batch=2), BOARD).gpus_needed == 2  # 71.90 GB each
    assert Estimate(replace(seventy, batch=3), BOARD).gpus_needed == 4  # 72.57 GB would be too much
    assert Estimate(case("llama-3.1-70b", "int4"), BOARD).gpus_needed == 1  # 39.4 GB
    assert Estimate(case("llama-3.1-8b"), BOARD).gpus_needed == 1


def test_model_flops_utilisation_of_training() -> None:
    # 6 x 7,504,658,432 and 3 x 4 x 32 x 32 x 128 x 8193 / 2 FLOPs a token at context 8192: 10,000 tokens/s are 51.5%.
    found = case("llama-3.1-8b", context=8192)
    took = Estimate(found, BOARD, 1, ("train", found.tokens("train") / 10_000)).measured
    assert took is not None
    each = 45_027_950_592 + 12 * 32 * 32 * 128 * 8193 / 2
    assert took.flops_utilisation == pytest.approx(10_000 * each / 1e15) == pytest.approx(took.share_of_floor)
    assert took.flops_utilisation == pytest.approx(0.51471, rel=1e-4)
