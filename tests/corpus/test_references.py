"""References against torch's own way to the same answer: a wrong one would agree with variants that copy it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves, tree_map

from ch09.baseline_add_rmsnorm import EPSILON as NORM_EPSILON
from ch09.baseline_add_rmsnorm import workload as add_rmsnorm
from ch09.baseline_linear_cross_entropy import workload as linear_cross_entropy
from ch12.baseline_cg_solver_graph import TAU
from ch12.baseline_cg_solver_graph import workload as cg_solver_graph
from ch12.baseline_sinkhorn_while_node import EPSILON
from ch12.baseline_sinkhorn_while_node import workload as sinkhorn_while_node
from ch15.baseline_kv_handoff_overlap import workload as kv_handoff_overlap
from ch17.baseline_moe_grouped_gemm import workload as grouped_gemm
from ch18.baseline_flash_forward import workload as flash_forward
from ch18.baseline_flex_document_mask import workload as flex_document_mask
from ch18.baseline_split_kv_decode import workload as split_kv_decode
from ch20.baseline_tp_decode_70b import workload as tp_decode_70b
from ch20.baseline_train_step_8b import workload as train_step_8b
from common.models.decoder import EPSILON as DECODER_EPSILON
from common.models.decoder import Shape, block
from common.models.training import adamw_options, loss_of
from common.python.proof.comparison import leaves
from common.python.workload import Draw, Workload


def drawn(workload: Workload, folder: Path, seed: int = 0, size: str = "test") -> dict[str, Tensor]:
    inputs = workload.inputs(Draw(torch.device("cpu"), seed, folder), **workload.sizes[size])
    return {key: value.double() if value.is_floating_point() else value for key, value in inputs.items()}


def drawn_by_rank(workload: Workload, folder: Path, ranks: int, **size: int) -> dict[str, list[Any]]:
    draws = [Draw(torch.device("cpu"), 0, folder, rank, ranks) for rank in range(ranks)]
    inputs = [tree_map(Tensor.double, workload.inputs(draw, **workload.sizes["test"] | size)) for draw in draws]
    return {key: [one[key] for one in inputs] for key in inputs[0]}


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


def test_layers_whose_keys_are_handed_over_are_those_of_torch(tmp_path: Path) -> None:
    given = drawn_by_rank(kv_handoff_overlap, tmp_path, ranks=2)
    (_, found), x = kv_handoff_overlap.reference(1, **given), given["x"][1].flatten(2)
    width, options = x.shape[2], {"batch_first": True, "norm_first": True, "bias": False, "dtype": x.dtype}
    mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=x.dtype)
    for weights in given["layers"][1]:
        layer = nn.TransformerEncoderLayer(width, 3, 4 * width, 0.0, F.gelu, **options)
        matrices = [parameter for parameter in layer.parameters() if parameter.ndim == 2]
        for parameter, name in zip(matrices, ("qkv", "out", "up", "down")):
            parameter.data = weights[name].T
        x = layer(x, mask)
    torch.testing.assert_close(found, x.detach())


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_ranks_shares_of_a_decoder_are_the_whole_decoder(ranks: int, tmp_path: Path) -> None:
    dim, width, hidden = 16, 3 * 16 * ranks, 37 * ranks  # a rank has three heads
    given = drawn_by_rank(tp_decode_70b, tmp_path, ranks, width=width)
    shape, gains = Shape(2, width, 3 * ranks, ranks, hidden, 0), given["gains"][0]
    angles, x = given["angles"][0][:, None], given["x"][0][:, None]
    for layer, shares in enumerate(zip(*given["layers"])):
        qkv, gate_up = [w["qkv"].split((3 * dim, dim, dim)) for w in shares], [w["gate_up"].chunk(2) for w in shares]
        whole = {name: torch.cat(sum(zip(*parts), ())) for name, parts in (("qkv", qkv), ("gate_up", gate_up))}
        whole |= {name: torch.cat([w[name] for w in shares], 1) for name in ("out", "down")}
        whole |= {"attention_norm": gains[2 * layer], "mlp_norm": gains[2 * layer + 1]}
        earlier = torch.cat([cache[layer] for cache in given["caches"]], 2)[..., :-1, :]

        def attend(q: Tensor, k: Tensor, v: Tensor, earlier: Tensor = earlier) -> Tensor:
            seen = torch.cat([earlier, torch.stack([k, v]).transpose(2, 3)], 3)
            return F.scaled_dot_product_attention(q.transpose(1, 2), *seen, enable_gqa=True).transpose(1, 2)

        x = block(whole, shape, x, angles.cos(), angles.sin(), attend)
    wanted = F.rms_norm(x[:, 0], (width,), gains[-1], DECODER_EPSILON)
    torch.testing.assert_close(tp_decode_70b.reference(0, **given), wanted)
