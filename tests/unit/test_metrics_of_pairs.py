"""What variants tell beside their time: latencies, acceptance, memory in use, and what rounding costs, each by hand."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ch15.baseline_continuous_batching import prepare as prepare_static
from ch15.baseline_continuous_batching import serving
from ch15.baseline_continuous_batching import workload as continuous_batching
from ch15.baseline_paged_kv import HEAD_DIM, KV_HEADS, caching
from common.models.timeline import Deliver, latencies, metered
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


def test_pages_are_held_whole_and_used_in_part() -> None:
    lengths = torch.tensor([1, 16, 17])  # one, one and two pages of 16
    keys, values = (torch.zeros(34, KV_HEADS, HEAD_DIM, dtype=torch.float16) for _ in range(2))
    a_token = 2 * 2 * KV_HEADS * HEAD_DIM / 1e6
    for page, held in ((16, 4 * 16), (20, 3 * 20)):
        told = caching(page, lengths, torch.zeros(3), keys, values).metrics()
        assert told == pytest.approx({"cache held MB": held * a_token, "cache used MB": 34 * a_token})
