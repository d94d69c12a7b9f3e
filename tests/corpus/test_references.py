"""References against torch's own way to the same answer: a wrong one would agree with variants that copy it."""

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves, tree_map

from ch09.baseline_add_rmsnorm import EPSILON as NORM_EPSILON
from ch09.baseline_add_rmsnorm import workload as add_rmsnorm
from ch09.baseline_linear_cross_entropy import workload as linear_cross_entropy
from ch12.baseline_cg_solver_graph import TAU
from ch12.baseline_cg_solver_graph import workload as cg_solver_graph
from ch12.baseline_sinkhorn_while_node import EPSILON
from ch12.baseline_sinkhorn_while_node import workload as sinkhorn_while_node
from ch17.baseline_moe_grouped_gemm import workload as grouped_gemm
from ch18.baseline_flash_forward import workload as flash_forward
from ch18.baseline_flex_document_mask import workload as flex_document_mask
from ch18.baseline_split_kv_decode import workload as split_kv_decode
from ch20.baseline_train_step_8b import workload as train_step_8b
from common.models.decoder import block
from common.models.training import adamw_options, loss_of
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


def test_the_solution_put_into_the_equation_gives_its_right_side(tmp_path: Path) -> None:
    inputs = drawn(cg_solver_graph, tmp_path)
    x = answer(cg_solver_graph, inputs)
    neighbours = x.roll(1, 0) + x.roll(-1, 0) + x.roll(1, 1) + x.roll(-1, 1)
    torch.testing.assert_close(x + TAU * (4 * x - neighbours), inputs["b"])


def test_the_plan_moves_the_masses_and_is_a_scaled_kernel(tmp_path: Path) -> None:
    inputs = drawn(sinkhorn_while_node, tmp_path)
    plan = answer(sinkhorn_while_node, inputs)
    torch.testing.assert_close(plan.sum(dim=1), inputs["row_mass"])
    torch.testing.assert_close(plan.sum(dim=0), inputs["column_mass"])
    potentials = plan.log() + inputs["distances"] / EPSILON  # a sum of one number a row and one a column
    torch.testing.assert_close(potentials, potentials[:, :1] + potentials[:1] - potentials[0, 0])


@pytest.mark.parametrize("workload", [flash_forward, split_kv_decode], ids=["flash_forward", "split_kv_decode"])
def test_every_query_attends_to_all_keys_of_its_head(workload: Workload, tmp_path: Path) -> None:
    inputs = drawn(workload, tmp_path)
    wanted = F.scaled_dot_product_attention(inputs["q"], inputs["k"], inputs["v"])
    torch.testing.assert_close(workload.reference(**inputs), wanted)


def test_a_token_attends_to_what_came_before_it_in_its_document(tmp_path: Path) -> None:
    inputs = drawn(flex_document_mask, tmp_path)
    mask = (inputs["document"][:, None] == inputs["document"]).tril()
    wanted = F.scaled_dot_product_attention(inputs["q"], inputs["k"], inputs["v"], attn_mask=mask)
    torch.testing.assert_close(flex_document_mask.reference(**inputs), wanted)


def test_each_token_is_the_sum_of_its_experts_by_their_shares(tmp_path: Path) -> None:
    inputs = drawn(grouped_gemm, tmp_path)
    out = answer(grouped_gemm, inputs)
    for token, x in enumerate(inputs["x"]):
        wanted = torch.zeros_like(x)
        for expert, share in zip(inputs["ids"][token], inputs["shares"][token]):
            gate, up = (inputs["gate_up"][expert] @ x).chunk(2)
            wanted += share * (inputs["down"][expert] @ (F.silu(gate) * up))
        torch.testing.assert_close(out[token], wanted)


def test_the_training_step_is_autograd_and_torchs_adamw(tmp_path: Path) -> None:
    drawn_once = train_step_8b.inputs(Draw(torch.device("cpu"), 0, tmp_path), **train_step_8b.sizes["test"])
    inputs = tree_map(lambda x: x.double() if isinstance(x, Tensor) and x.is_floating_point() else x, drawn_once)
    found = train_step_8b.reference(**tree_map(lambda x: x.clone() if isinstance(x, Tensor) else x, inputs))
    weights = tree_map(lambda x: x.clone().requires_grad_(), inputs["weights"])
    loss = loss_of(weights, inputs["shape"], inputs["tokens"], block)
    loss.backward()
    options = adamw_options(inputs["shape"])
    parameters, betas = tree_leaves(weights), (options.pop("beta1"), options.pop("beta2"))
    optimizer = torch.optim.AdamW(parameters, betas=betas, **options)
    for each, mean, square in zip(parameters, tree_leaves(inputs["means"]), tree_leaves(inputs["squares"])):
        step = torch.tensor(float(inputs["count"]) - 1)
        optimizer.state[each] = {"step": step, "exp_avg": mean, "exp_avg_sq": square}
    optimizer.step()
    states = [optimizer.state[each] for each in parameters]
    wanted = [loss, *parameters, *(s["exp_avg"] for s in states), *(s["exp_avg_sq"] for s in states)]
    assert len(wanted) == len(found)
    for one, right in zip(found, wanted):
        torch.testing.assert_close(one, right.detach(), rtol=1e-5, atol=1e-7)  # angles are float32 on one side
