"""What the proofs of chapters 14, 17 and 19 rest on, and what of their GPU-only variants a CPU can run."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from interpreter import interpret
from torch import Tensor
from torch.nn import functional as F

from ch14 import baseline_graph_breaks as graph_breaks
from ch14.baseline_compile_block import EPSILON, rms_norm, rotate
from ch14.optimized_graph_breaks__cond import conditional
from ch17.baseline_moe_gate_fused import CHOSEN
from ch17.baseline_moe_gate_fused import workload as gate
from ch17.baseline_moe_grouped_gemm import workload as grouped_gemm
from ch17.optimized_moe_grouped_gemm import arranged
from ch19.baseline_fp8_linear_training import workload as fp8_linear
from ch19.peer_fp8_linear_training__compile import cast, products
from common.python.proof.comparison import compare, leaves, teeth
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


def test_each_token_is_the_sum_of_its_experts_by_their_shares(tmp_path: Path) -> None:
    inputs = {
        key: value.double() if value.is_floating_point() else value
        for key, value in drawn(grouped_gemm, tmp_path).items()
    }
    (out,) = leaves(grouped_gemm.reference(**inputs))
    for token, x in enumerate(inputs["x"]):
        wanted = torch.zeros_like(x)
        assert len(set(inputs["ids"][token].tolist())) == inputs["ids"].shape[1]
        for expert, share in zip(inputs["ids"][token], inputs["shares"][token]):
            gate_of, up = (inputs["gate_up"][expert] @ x).chunk(2)
            wanted += share * (inputs["down"][expert] @ (gate_of * gate_of.sigmoid() * up))
        torch.testing.assert_close(out[token], wanted)


def test_the_busiest_of_64_experts_has_two_to_six_times_the_mean(tmp_path: Path) -> None:
    for seed in range(5):
        size = {**grouped_gemm.sizes["bench"], "width": 8, "wide": 8}
        loads = drawn(grouped_gemm, tmp_path, seed, **size)["ids"].flatten().bincount(minlength=64)
        assert 2 < loads.max() / loads.double().mean() < 6


@pytest.mark.parametrize("multiple", [1, 16, 128])
def test_each_tile_of_rows_has_one_owner_and_each_choice_a_place_of_its_expert(multiple: int) -> None:
    for tokens, experts, chosen in ((150, 5, 2), (3, 11, 4), (260, 3, 1)):
        ids = torch.rand(tokens, experts, generator=torch.Generator().manual_seed(0)).topk(chosen).indices
        ids[ids == 1] = 0  # an expert that nobody chose, and one that is chosen twice
        first_rows = torch.arange(0, (ids.numel() // multiple + experts) * multiple, multiple, dtype=torch.int32)
        places, tops, owners = arranged(ids, first_rows, experts, multiple)

        tiles = [-(-int((ids == expert).sum()) // multiple) for expert in range(experts)]
        owned = [expert for expert, count in enumerate(tiles) for _ in range(count)]
        assert int(tops[-1]) == len(owned) * multiple
        assert len(owned) <= len(first_rows)
        assert owners.tolist()[: len(owned)] == owned
        assert [owned[place // multiple] for place in places.tolist()] == ids.flatten().tolist()
        for expert in range(experts):
            assert (places[ids.flatten() == expert].diff() == 1).all()  # together, and in the order of their tokens


def test_no_two_logits_are_near_enough_to_tie(tmp_path: Path) -> None:
    for size in gate.sizes.values():
        logits = drawn(gate, tmp_path, **size)["logits"].double()
        assert logits.sort(dim=1).values.diff(dim=1).min() > 3.9 / logits.shape[1]  # half a step, less rounding


def test_rows_of_an_expert_are_together_and_in_order_of_their_tokens(tmp_path: Path) -> None:
    logits = drawn(gate, tmp_path)["logits"].double()
    shares, ids, ends, order = leaves(gate.reference(logits))
    torch.testing.assert_close(shares, logits.gather(1, ids).softmax(dim=1))
    chosen = torch.zeros_like(logits).scatter(1, ids, 1.0).bool()
    least, passed_over = logits[chosen].view(-1, CHOSEN).amin(1), logits.masked_fill(chosen, -9.0).amax(1)
    assert (least > passed_over).all()
    start = 0
    for expert, end in enumerate(ends.tolist()):
        rows = order[start:end]
        assert (ids.flatten()[rows] == expert).all()
        assert (rows.diff() > 0).all()
        start = end
    assert start == order.numel()


def test_casting_the_inputs_of_the_fp8_layer_loses_nothing(tmp_path: Path) -> None:
    for seed in range(5):
        inputs = drawn(fp8_linear, tmp_path, seed)
        for each in inputs.values():
            for x in (each, each.T):
                codes, scales = cast(x)
                assert torch.equal(codes.double() * scales, x.double())


def test_the_magnitudes_of_the_fp8_layer_change_from_draw_to_draw_so_a_constant_scale_is_seen(tmp_path: Path) -> None:
    draws = [drawn(fp8_linear, tmp_path, seed) for seed in range(8)]
    for name in draws[0]:
        largest = [float(inputs[name].abs().max()) for inputs in draws]
        assert max(largest) / min(largest) > 16


def test_fp8_products_are_those_of_the_exact_inputs_and_of_noise_within_four_percent(tmp_path: Path) -> None:
    inputs = drawn(fp8_linear, tmp_path)
    for of, tolerance in ((inputs, fp8_linear.tolerance), (noise(inputs), 0.04)):
        expected = leaves(fp8_linear.reference(**{key: value.double() for key, value in of.items()}))
        found = compare(list(products(**of)), expected, [torch.bfloat16] * 3, tolerance)
        assert found.reason is None
        assert found.error > tolerance / 4


def noise(inputs: Inputs) -> Inputs:
    return {key: torch.randn(value.shape).bfloat16() for key, value in inputs.items()}


FP8 = """
import torch
from pathlib import Path
from ch19 import optimized_fp8_cast_transpose as one, optimized_fp8_linear_training as layer
from ch19.baseline_fp8_linear_training import casting_errors
from common.python.proof.comparison import compare, leaves
from common.python.workload import Draw

# The interpreter rounds casts to fp8 otherwise than hardware does: e4m3 numbers need no rounding.
x = torch.randn(197, 331).to(torch.float8_e4m3fn).bfloat16()
x[5, 7] = -30.0
scale = torch.tensor([32.0])
for wanted, found in zip(one.workload.reference(x.double(), scale.double()), one.prepare(x, scale).step()):
    assert torch.equal(wanted.double(), found.double())
for seed in range(2):
    inputs = layer.workload.inputs(Draw(torch.device("cpu"), seed, Path()), tokens=208, width=176, wide=112)
    wanted = leaves(layer.workload.reference(**{key: value.double() for key, value in inputs.items()}))
    step = layer.prepare(**inputs).step
    for _ in range(2):
        found = compare(list(step()), wanted, [torch.bfloat16] * 3, layer.workload.tolerance)
        assert found.reason is None, found.reason
    assert set(casting_errors(layer.cast_back, **inputs).values()) == {0.0}
"""


def test_the_fp8_kernels_give_the_right_codes_both_ways_in_the_interpreter() -> None:
    interpret(FP8)


ROUTED = """
import torch
from ch17.baseline_moe_gate_fused import CHOSEN
from ch17.optimized_moe_gate_fused import GROUP, TOKENS, prepare

# Two groups of programs, the second not full, nor is its last program. Most logits tie, many at minus infinity.
tokens, experts = (GROUP.value + 1) * TOKENS.value + 5, 33
logits = torch.randint(-4, 5, (tokens, experts)) / 4
logits[:, 1:] = logits[:, 1:].masked_fill(torch.rand(tokens, experts - 1) < 0.7, float("-inf"))
ids = logits.sort(dim=1, descending=True, stable=True).indices[:, :CHOSEN]
ends, order = torch.bincount(ids.flatten(), minlength=experts).cumsum(0), ids.flatten().argsort(stable=True)
step = prepare(logits)
for _ in range(2):
    shares, *found = step()
    torch.testing.assert_close(shares, logits.gather(1, ids).softmax(dim=1))
    assert [torch.equal(one, other) for one, other in zip(found, (ids, ends, order))] == [True, True, True]
"""


def test_the_gate_takes_the_first_of_equals_and_counts_groups_of_programs_in_the_interpreter() -> None:
    interpret(ROUTED)
