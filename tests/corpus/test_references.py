"""The references of these two chapters, each against another way to the same answer."""

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from ch09.baseline_add_rmsnorm import EPSILON as NORM_EPSILON
from ch09.baseline_add_rmsnorm import workload as add_rmsnorm
from ch09.baseline_linear_cross_entropy import workload as linear_cross_entropy
from ch12.baseline_cg_solver_graph import ITERATIONS, TAU
from ch12.baseline_cg_solver_graph import workload as cg_solver_graph
from ch12.baseline_sinkhorn_while_node import EPSILON, FEWEST, GAP
from ch12.baseline_sinkhorn_while_node import workload as sinkhorn_while_node
from ch12.peer_sinkhorn_while_node__fixed_count import COUNT
from common.python.proof.comparison import leaves
from common.python.workload import Draw, Workload


def drawn(workload: Workload, folder: Path, seed: int = 0, size: str = "test") -> dict[str, Tensor]:
    inputs = workload.inputs(Draw(torch.device("cpu"), seed, folder), **workload.sizes[size])
    return {key: value.double() if value.is_floating_point() else value for key, value in inputs.items()}


def answer(workload: Workload, inputs: dict[str, Tensor]) -> Tensor:
    (only,) = leaves(workload.reference(**inputs))
    return only


def test_the_norm_is_that_of_torch(tmp_path: Path) -> None:
    inputs = drawn(add_rmsnorm, tmp_path)
    total = inputs["x"] + inputs["residual"]
    normed = F.rms_norm(total, total.shape[1:], inputs["gain"], NORM_EPSILON)
    torch.testing.assert_close(add_rmsnorm.reference(**inputs), (normed, total))


def test_loss_and_gradients_are_those_of_autograd(tmp_path: Path) -> None:
    inputs = drawn(linear_cross_entropy, tmp_path)
    hidden, weight = inputs["hidden"].requires_grad_(), inputs["weight"].requires_grad_()
    loss = F.cross_entropy(hidden @ weight.T, inputs["targets"])
    wanted = loss.detach(), *torch.autograd.grad(loss, (hidden, weight))
    with torch.no_grad():
        torch.testing.assert_close(linear_cross_entropy.reference(**inputs), wanted)


def stencil(x: Tensor) -> Tensor:
    neighbours = x.roll(1, 0) + x.roll(-1, 0) + x.roll(1, 1) + x.roll(-1, 1)
    return x + TAU * (4 * x - neighbours)


def test_the_solution_put_into_the_equation_gives_its_right_side(tmp_path: Path) -> None:
    inputs = drawn(cg_solver_graph, tmp_path)
    torch.testing.assert_close(stencil(answer(cg_solver_graph, inputs)), inputs["b"])


@pytest.mark.parametrize("size", ["bench", "test"])
def test_as_many_iterations_as_are_made_reach_a_tenth_of_the_tolerance(size: str, tmp_path: Path) -> None:
    inputs = drawn(cg_solver_graph, tmp_path, size=size)
    x, r, p = torch.zeros_like(inputs["b"]), inputs["b"], inputs["b"]
    for _ in range(ITERATIONS):
        q = stencil(p)
        alpha = r.square().sum() / (p * q).sum()
        x, left = x + alpha * p, r - alpha * q
        p, r = left + left.square().sum() / r.square().sum() * p, left
    wanted = answer(cg_solver_graph, inputs)
    assert (x - wanted).norm() / wanted.norm() < 0.1 * cg_solver_graph.tolerance


def test_the_plan_moves_the_masses_and_is_a_scaled_kernel(tmp_path: Path) -> None:
    inputs = drawn(sinkhorn_while_node, tmp_path)
    plan = answer(sinkhorn_while_node, inputs)
    torch.testing.assert_close(plan.sum(dim=1), inputs["row_mass"])
    torch.testing.assert_close(plan.sum(dim=0), inputs["column_mass"])
    potentials = plan.log() + inputs["distances"] / EPSILON  # a sum of one number a row and one a column
    torch.testing.assert_close(potentials, potentials[:, :1] + potentials[:1] - potentials[0, 0])


@pytest.mark.parametrize("size", ["bench", "test"])
def test_stopping_at_the_gap_takes_the_iterations_that_the_cost_counts_on(size: str, tmp_path: Path) -> None:
    for seed in range(3):
        inputs = drawn(sinkhorn_while_node, tmp_path, seed, size)
        weights, u = (-inputs["distances"] / EPSILON).exp(), torch.ones_like(inputs["row_mass"])
        gap, iterations = 1.0, 0
        while gap > GAP:
            v = inputs["column_mass"] / (u @ weights)
            masses = weights @ v
            gap = float((u * masses - inputs["row_mass"]).abs().sum())
            u, iterations = inputs["row_mass"] / masses, iterations + 1
        assert FEWEST <= iterations <= COUNT
        plan, wanted = u[:, None] * weights * v, answer(sinkhorn_while_node, inputs)
        assert (plan - wanted).norm() / wanted.norm() < 0.1 * sinkhorn_while_node.tolerance
