"""What variants tell beside their time: latencies, acceptance, memory in use, and what rounding costs, each by hand."""

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ch15.baseline_paged_kv import serving
from ch15.baseline_paged_kv import workload as paged_kv
from ch16.baseline_speculative_decoding import workload as speculative_decoding
from ch16.baseline_speculative_decoding import wrong_guesses
from ch16.optimized_speculative_decoding__eager_passes import prepare as prepare_speculative
from ch19.baseline_fp8_cast_transpose import prepare as prepare_cast
from ch19.baseline_fp8_linear_training import casting_errors, noise_like
from ch19.baseline_fp8_linear_training import workload as fp8_linear
from ch19.baseline_int4_prepacked_gemm import prepare as prepare_int4
from ch19.baseline_int4_prepacked_gemm import rounding_error as rounding_error_of_weights
from ch19.baseline_int4_prepacked_gemm import workload as int4_gemm
from ch19.peer_fp8_linear_training__compile import cast_back
from common.models.int4 import on_int4_grid
from common.models.timeline import Arrivals, Arrived, Deliver, latencies, metered
from common.python.workload import Draw, Inputs, Workload

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


def test_requests_that_arrive_are_waited_for_and_counted_where_they_got_what_they_ask_for() -> None:
    """Request 0 comes at 5 ms and has tokens at 10, 20 and 40; request 1 comes at 9, too early for its one at 40."""
    arrivals = Arrivals([5, 9], first_token_ms=30, token_ms=15)
    times, given = [10, 20, 40], [[0], [0], [0, 1]]
    assert arrivals.goodput(times, given) == {"goodput requests/s": 25, "within objective %": 50}
    assert latencies(times, given, arrivals.times_ms)["first token p50 ms"] == 18  # of 5 and 31

    def serve(deliver: Deliver, arrived: Arrived | None = None) -> Tensor:
        deliver([*range(arrived(2) if arrived else 2)])
        return torch.ones(1)

    found = metered(serve, CPU, arrivals).metrics()
    assert found["first token p50 ms"] < 5 < 9 <= found["arriving first token p50 ms"] + 7


def test_a_draft_that_is_the_target_is_always_right_and_another_is_not(tmp_path: Path) -> None:
    inputs = drawn(speculative_decoding, tmp_path)
    other = prepare_speculative(**inputs).metrics()
    assert 0.3 < other["accepted share"] < 1
    chain, size = inputs["weights"]["successor"], speculative_decoding.sizes["test"]
    for seed in range(9):  # for weights that are kept, other prompts meet as many wrong guesses as the cost counts
        token = speculative_decoding.inputs(Draw(CPU, seed, tmp_path, kept=inputs), **size)["prompt"][0, -1]
        wrong = [int(inputs["draft"]["successor"][token] != (token := chain[token])) for _ in range(size["new"])]
        assert (wrong[0], sum(wrong[1:]), wrong[-1]) == (1, wrong_guesses(size["new"]), 0)
    same = {**inputs, "draft": inputs["weights"], "shapes": (inputs["shapes"][0],) * 2}
    told = prepare_speculative(**same).metrics()
    assert told["accepted share"] == 1
    assert told["tokens a verification"] == 5


def test_pages_are_held_whole_and_used_in_part(tmp_path: Path) -> None:
    given = drawn(paged_kv, tmp_path) | {"lengths": torch.tensor([1, 13, 14]), "new": 3, "longest": 20}
    a_token = given["shape"].kv_numbers * given["packed"].itemsize / 1e6
    for page, held in ((16, 4 * 16), (20, 3 * 20)):  # with the new tokens one, one and two pages of 16
        told = serving(page, **given).metrics()
        assert told == pytest.approx({"cache held MB": held * a_token, "cache used MB": 37 * a_token})


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


def test_weights_on_the_grid_cost_nothing_and_normal_ones_a_ninth(tmp_path: Path) -> None:
    """A step is the largest of 128 over 7, 0.4 of the deviation: rounding is off by its 12th part's root, 11%."""
    inputs = drawn(int4_gemm, tmp_path)
    assert rounding_error_of_weights(inputs["x"], on_int4_grid(torch.randn(40, 384).bfloat16())) == 0
    assert prepare_int4(**inputs).metrics()["quantisation error"] == pytest.approx(0.11, abs=0.02)
