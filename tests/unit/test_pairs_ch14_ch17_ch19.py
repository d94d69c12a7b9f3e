"""What the proofs of chapters 14, 17 and 19 rest on, and what of their GPU-only variants a CPU can run."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from ch14 import baseline_graph_breaks as graph_breaks
from ch14.baseline_compile_block import EPSILON, rms_norm, rotate
from ch14.optimized_graph_breaks__cond import conditional
from common.python.verification import compare, leaves, teeth
from common.python.workload import Draw, Inputs, Workload

ROOT = Path(__file__).resolve().parents[2]


def drawn(workload: Workload, folder: Path, seed: int = 0, **size: Any) -> Inputs:
    return workload.inputs(Draw(torch.device("cpu"), seed, folder), **(size or workload.sizes["test"]))


def test_the_norm_is_that_of_torch() -> None:
    x, gain = torch.randn(3, 5, 16, dtype=torch.float64), torch.randn(16, dtype=torch.float64)
    torch.testing.assert_close(rms_norm(x, gain), F.rms_norm(x, (16,), gain, EPSILON))


def test_a_rotation_is_a_product_of_complex_numbers() -> None:
    x, angles = torch.randn(5, 8, dtype=torch.float64), torch.rand(5, 4, dtype=torch.float64)
    turned = torch.complex(*x.chunk(2, dim=1)) * torch.polar(torch.ones_like(angles), angles)
    both = angles.repeat(1, 2)
    torch.testing.assert_close(rotate(x, both.cos(), both.sin()), torch.cat((turned.real, turned.imag), dim=1))


def answer_of_graph_breaks(inputs: Inputs) -> list[Tensor]:
    doubled = [[weight.double() for weight in of_layer] for of_layer in inputs["weights"]]
    return leaves(graph_breaks.workload.reference(inputs["hidden"].double(), doubled))


@pytest.mark.parametrize(
    ("layer", "whole", "fewest", "most"),
    [
        # In each of two layers: up to the first question, the clamp and on to the second, its clamp. Then the norm.
        (graph_breaks.branching, False, 2 * 3 + 1, 2 * 3 + 1),
        (graph_breaks.branch_free, True, 1, 1),
        (conditional, True, 1, 1),
    ],
    ids=["branching", "branch_free", "conditional"],
)
def test_only_the_branch_breaks_the_graph_and_all_give_one_answer(
    layer: Callable[..., Tensor], whole: bool, fewest: int, most: int, tmp_path: Path
) -> None:
    inputs = drawn(graph_breaks.workload, tmp_path)
    expected = answer_of_graph_breaks(inputs)
    torch._dynamo.reset()
    calls: list[int] = []

    def backend(graph: Callable[..., Any], _examples: list[Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            calls.append(1)
            return graph(*arguments)

        return run

    compiled = torch.compile(partial(graph_breaks.encode, layer), backend=backend, fullgraph=whole, dynamic=False)
    with torch.no_grad():
        out = compiled(**inputs)
        calls.clear()
        out = compiled(**inputs)
    assert fewest <= len(calls) <= most
    assert compare([out], expected, [out.dtype], graph_breaks.workload.tolerance).reason is None


@pytest.mark.parametrize("seed", range(3))
def test_without_the_clamp_there_is_no_answer(seed: int, tmp_path: Path) -> None:
    def unguarded(hidden: Tensor, qkv: Tensor, out: Tensor, up: Tensor, down: Tensor) -> Tensor:
        return graph_breaks.feed_forward(graph_breaks.attend(hidden, qkv, out), up, down)

    inputs = drawn(graph_breaks.workload, tmp_path, seed)
    assert graph_breaks.encode(unguarded, **inputs).isnan().any()


def test_the_tolerance_of_graph_breaks_has_teeth(tmp_path: Path) -> None:
    right, stale = (answer_of_graph_breaks(drawn(graph_breaks.workload, tmp_path, seed)) for seed in (0, 1))
    assert teeth(right, stale, [torch.float16], graph_breaks.workload.tolerance) == []
