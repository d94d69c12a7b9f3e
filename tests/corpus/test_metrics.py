"""What variants tell beside their time: latencies, acceptance, memory in use, and what rounding costs, each by hand."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from ch15.baseline_continuous_batching import prepare as prepare_static
from ch15.baseline_continuous_batching import serving
from ch15.baseline_continuous_batching import workload as continuous_batching
from ch15.baseline_kv_cache import prepare as prepare_again
from ch15.baseline_kv_cache import workload as kv_cache
from ch15.baseline_paged_kv import HEAD_DIM, KV_HEADS, caching
from ch15.optimized_kv_cache import prepare as prepare_kept
from ch15.optimized_kv_cache__graph import prepare as prepare_replayed
from ch16.baseline_prefix_cache import prepare as prepare_unshared
from ch16.baseline_prefix_cache import workload as prefix_cache
from ch16.baseline_speculative_decoding import prepare as prepare_plain
from ch16.baseline_speculative_decoding import workload as speculative_decoding
from ch16.optimized_prefix_cache import prepare as prepare_prefix
from ch16.optimized_speculative_decoding import acceptance
from ch16.optimized_speculative_decoding import prepare as prepare_speculative
from ch19.baseline_fp8_cast_transpose import prepare as prepare_cast
from ch19.baseline_fp8_linear_training import casting_errors, noise_like
from ch19.baseline_fp8_linear_training import workload as fp8_linear
from ch19.baseline_int4_prepacked_gemm import prepare as prepare_int4
from ch19.baseline_int4_prepacked_gemm import rounding_error as rounding_error_of_weights
from ch19.baseline_int4_prepacked_gemm import workload as int4_gemm
from ch19.peer_fp8_linear_training__compile import cast, cast_back
from ch20.baseline_decode_8b import MODELS
from ch20.baseline_decode_8b import prepare as prepare_decode
from ch20.baseline_decode_8b import workload as decode_8b
from ch20.optimized_decode_8b__int4 import rounding_error as rounding_error_of_block
from common.models.decoder import draw_weights
from common.models.int4 import on_int4_grid
from common.models.references import hidden_states
from common.models.timeline import Deliver, latencies, median_ms, metered
from common.python.workload import Draw, Inputs, Metered, Workload

CPU = torch.device("cpu")


def drawn(workload: Workload, folder: Path, **changes: Any) -> Inputs:
    return workload.inputs(Draw(CPU, 0, folder), **{**workload.sizes["test"], **changes})


def test_latencies_of_a_timeline_by_hand() -> None:
    """Request 0 has tokens at 10, 30, 50, 150 ms; request 1 at 10 and, two together, at 50; request 2 at 90."""
    found = latencies([10, 30, 50, 90, 150], [[0, 1], [0], [0, 1, 1], [2], [0]])
    # First tokens at 10, 10, 90; later ones after 20, 20, 100 (request 0) and 20, 20 (40 shared by two).
    assert found == pytest.approx(
        {
            "first token p50 ms": 10,
            "first token p95 ms": 10 + 0.9 * 80,  # 0.95 of the way from the first of three to the last
            "first token p99 ms": 10 + 0.98 * 80,
            "time per token p50 ms": 20,
            "time per token p95 ms": 20 + 0.8 * 80,
            "time per token p99 ms": 20 + 0.96 * 80,
            "tokens/s": 8 / 0.150,
        }
    )


def test_requests_of_one_token_each_have_no_time_per_token() -> None:
    assert set(latencies([4.0], [[0, 1]])) == {
        "first token p50 ms",
        "first token p95 ms",
        "first token p99 ms",
        "tokens/s",
    }


def test_the_metrics_are_of_a_run_of_their_own_and_count_from_its_beginning() -> None:
    heard: list[Deliver] = []
    answer = torch.ones(1)

    def serve(deliver: Deliver) -> Tensor:
        heard.append(deliver)
        for _ in range(3):
            time.sleep(0.01)
            deliver([0])
        return answer

    made = metered(serve, CPU)
    assert made.step() is answer
    assert len(heard) == 1
    found = made.metrics()
    assert len(heard) == 2
    for name in ("first token p50 ms", "time per token p50 ms"):
        assert 10 <= found[name] < 1000  # a busy host sleeps longer
    assert 1 < found["tokens/s"] <= 100


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[list[int]]]:
    """What a variant, whose loop stands in `module`, delivers pass by pass."""

    def hear(module: str, prepare: Callable[..., Metered], **inputs: Any) -> list[list[int]]:
        serves: list[Callable[[Deliver], Any]] = []

        def keep(serve: Callable[[Deliver], Any], device: torch.device) -> Metered:
            serves.append(serve)
            return metered(serve, device)

        monkeypatch.setattr(f"{module}.metered", keep)
        prepare(**inputs)
        passes: list[Sequence[int]] = []
        serves[0](passes.append)
        return [list(requests) for requests in passes]

    return hear


def refilled(**inputs: Any) -> Metered:
    return serving(**inputs, admits=lambda idle: True)


@pytest.mark.parametrize(
    ("prepare", "wanted"),
    [
        (prepare_static, [[0, 1], [0], [0], [0], [2, 3], [2], [2], [2]]),
        (refilled, [[0, 1], [0], [2], [0, 2], [0, 2], [3], [2]]),
    ],
)
def test_each_pass_delivers_to_the_requests_that_are_served(
    prepare: Callable[..., Metered], wanted: list[list[int]], heard: Callable[..., list[list[int]]], tmp_path: Path
) -> None:
    inputs = drawn(continuous_batching, tmp_path, requests=4, slots=2)
    inputs["wanted"] = torch.tensor([4, 1, 4, 1])
    assert heard("ch15.baseline_continuous_batching", prepare, **inputs) == wanted


@pytest.mark.parametrize("prepare", [prepare_plain, prepare_speculative])
def test_all_tokens_of_the_answer_are_delivered(
    prepare: Callable[..., Metered], heard: Callable[..., list[list[int]]], tmp_path: Path
) -> None:
    inputs = drawn(speculative_decoding, tmp_path)
    passes = heard(prepare.__module__, prepare, **inputs)
    assert passes[0] == [0]
    assert sum(map(len, passes)) == len(inputs["noise"])
    if prepare is prepare_plain:
        assert set(map(len, passes)) == {1}
    else:  # with the target as its draft: five tokens a pass, and of the last ones what is still wanted
        shapes, module = (inputs["shapes"][0],) * 2, prepare.__module__
        same = heard(module, prepare, **{**inputs, "draft": inputs["weights"], "shapes": shapes})
        assert list(map(len, same)) == [1, 18]  # four verifications that are needed at the least, and one reading


def test_a_draft_that_is_the_target_is_always_right_and_another_is_not(tmp_path: Path) -> None:
    inputs = drawn(speculative_decoding, tmp_path)
    other = prepare_speculative(**inputs).metrics()
    assert 0.3 < other["accepted share"] < 1
    same = {**inputs, "draft": inputs["weights"], "shapes": (inputs["shapes"][0],) * 2}
    told = prepare_speculative(**same).metrics()
    assert told["accepted share"] == 1
    assert told["tokens a verification"] == 5


def test_acceptance_by_hand() -> None:
    """5, 1 and 3 tokens: 4, 0 and 2 of twelve proposals."""
    assert acceptance(made=5 + 1 + 3, rounds=3) == {"accepted share": 0.5, "tokens a verification": 3}


def test_pages_are_held_whole_and_used_in_part() -> None:
    lengths = torch.tensor([1, 16, 17])  # one, one and two pages of 16
    keys, values = (torch.zeros(34, KV_HEADS, HEAD_DIM, dtype=torch.float16) for _ in range(2))
    a_token = 2 * 2 * KV_HEADS * HEAD_DIM / 1e6
    for page, held in ((16, 4 * 16), (20, 3 * 20)):
        told = caching(page, lengths, torch.zeros(3), keys, values).metrics()
        assert told == pytest.approx({"cache held MB": held * a_token, "cache used MB": 34 * a_token})


def test_two_prompts_of_two_whole_blocks_are_reused_by_three_of_five_requests(tmp_path: Path) -> None:
    told = prepare_prefix(**drawn(prefix_cache, tmp_path)).metrics()
    assert told["prompt tokens reused %"] == pytest.approx(100 * 3 * 128 / (5 * 163))
    share = told["look-up ms"] / told["first token p50 ms"]  # of two runs
    assert told["look-up % of first token"] == pytest.approx(100 * share)
    assert 0 < share < 1


@pytest.mark.parametrize("prepare", [prepare_unshared, prepare_prefix])
def test_all_prompts_have_their_first_token_at_once_and_no_other(
    prepare: Callable[..., Metered], heard: Callable[..., list[list[int]]], tmp_path: Path
) -> None:
    assert heard(prepare.__module__, prepare, **drawn(prefix_cache, tmp_path)) == [[0, 1, 2, 3, 4]]


@pytest.mark.parametrize("prepare", [prepare_again, prepare_kept, prepare_replayed])
def test_every_step_of_a_batch_gives_each_request_a_token(
    prepare: Callable[..., Metered], heard: Callable[..., list[list[int]]], tmp_path: Path
) -> None:
    inputs = drawn(kv_cache, tmp_path)
    assert heard(prepare.__module__, prepare, **inputs) == [[0, 1, 2]] * inputs["new"]
    told = prepare(**inputs).metrics()
    assert set(told) == {f"{of} p{q} ms" for of in ("first token", "time per token") for q in (50, 95, 99)} | {
        "tokens/s"
    }


def test_one_sequence_has_a_token_a_step(heard: Callable[..., list[list[int]]], tmp_path: Path) -> None:
    inputs = drawn(decode_8b, tmp_path)
    assert heard("ch20.baseline_decode_8b", prepare_decode, **inputs) == [[0]] * inputs["new"]


def test_a_cast_that_rounds_nothing_has_no_error_and_that_of_noise_is_the_steps_of_e4m3() -> None:
    """e4m3's steps are an eighth to a sixteenth of a number, so that rounding is off by a 24th of it at most: 2.6%."""
    noise, scale = torch.randn(97, 131).bfloat16(), torch.tensor([32.0])
    exact = noise.to(torch.float8_e4m3fn).bfloat16()
    assert prepare_cast(exact, scale).metrics() == {"quantisation error": 0}
    assert 0.02 < prepare_cast(noise, scale).metrics()["quantisation error"] < 0.032
    assert prepare_cast(noise * 30, scale).metrics()["quantisation error"] > 0.1  # saturation counts


def test_casts_of_what_lies_on_the_grid_cost_the_layer_nothing_and_those_of_noise_three_percent(tmp_path: Path) -> None:
    inputs = drawn(fp8_linear, tmp_path)
    assert set(casting_errors(cast_back, **inputs).values()) == {0.0}
    assert all(0.03 < error < 0.05 for error in casting_errors(cast_back, *noise_like(**inputs)).values())


def test_each_product_has_a_scale_for_each_line_that_is_summed_over(tmp_path: Path) -> None:
    """What one factor has too small for its scale, the other has large: with another scale less would be lost."""
    x, weight, slope = (matrix.double() for matrix in noise_like(**drawn(fp8_linear, tmp_path)))
    of_tokens, of_wide = (torch.exp2(torch.randint(-12, 12, (n,))) for n in slope.shape)
    x, weight, slope = x * of_tokens[:, None], weight * of_wide[:, None], slope / of_tokens[:, None] / of_wide
    given = [matrix.bfloat16() for matrix in (x, weight, slope)]

    def rounded(matrix: Tensor) -> Tensor:
        codes, scales = cast(matrix.bfloat16())
        return codes.double() * scales

    products = {
        "output": (x @ weight.T, rounded(x) @ rounded(weight).T),
        "input's gradient": (slope @ weight, rounded(slope) @ rounded(weight.T).T),
        "weight's gradient": (slope.T @ x, rounded(slope.T) @ rounded(x.T).T),
    }
    found = casting_errors(cast_back, *given)
    for name, (full, narrow) in products.items():
        error = float((narrow - full).norm() / full.norm())
        assert found[f"quantisation error, {name}"] == pytest.approx(error, rel=1e-4)


def test_weights_on_the_grid_cost_nothing_and_normal_ones_a_ninth(tmp_path: Path) -> None:
    """A step is the largest of 128 over 7, 0.4 of the deviation: rounding is off by its 12th part's root, 11%."""
    inputs = drawn(int4_gemm, tmp_path)
    assert rounding_error_of_weights(inputs["x"], on_int4_grid(torch.randn(40, 384).bfloat16())) == 0
    assert prepare_int4(**inputs).metrics()["quantisation error"] == pytest.approx(0.11, abs=0.02)


def test_a_block_of_rounded_matrices_is_off_as_the_plain_network_in_float64_says(tmp_path: Path) -> None:
    shape, first = MODELS["odd"], torch.zeros(1, 1, dtype=torch.int64)
    assert rounding_error_of_block(shape, first, torch.clone) == 0
    one = replace(shape, layers=1, vocabulary=1024)

    def states(keep: Callable[[Tensor], Tensor]) -> Tensor:
        weights = draw_weights(Draw(CPU, 0, tmp_path), one, torch.float32, keep)
        return hidden_states(
            tree_map(lambda leaf: leaf.double() if leaf.is_floating_point() else leaf, weights), one, torch.arange(16)
        )

    full, narrow = states(torch.clone), states(on_int4_grid)
    error = float((narrow - full).norm() / full.norm())
    assert rounding_error_of_block(shape, first, on_int4_grid) == pytest.approx(error, rel=1e-3)
    assert 0.1 < error < 0.3


@pytest.mark.parametrize(
    ("waits", "low", "high"), [([0, 0.05, 0, 0, 0.05], 0, 40), ([0.05, 0.05, 0, 0, 0.05], 50, 200)]
)
def test_a_median_is_of_the_call_in_the_middle(waits: Sequence[float], low: float, high: float) -> None:
    left = iter(waits)
    assert low <= median_ms(lambda: time.sleep(next(left))) < high
    assert not list(left)
