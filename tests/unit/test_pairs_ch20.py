"""The case studies: weights on a grid of four bits, a token's step, and a training step, each against another way."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from interpreter import interpret
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.flop_counter import FlopCounterMode

from ch20 import (
    baseline_train_step_fp8,
    optimized_decode_8b__compile,
    optimized_decode_8b__int4,
    optimized_train_step_8b,
    optimized_train_step_8b__compile,
    optimized_train_step_fp8,
    peer_decode_8b__cublas,
)
from ch20.baseline_decode_8b import choose, generation
from ch20.baseline_decode_8b import workload as decode_8b
from ch20.baseline_train_step_8b import prepare as prepare_eager
from ch20.baseline_train_step_8b import workload as train_step_8b
from ch20.baseline_train_step_fp8 import workload as train_step_fp8
from ch20.optimized_decode_8b__int4 import int4_linear, packed
from ch20.optimized_train_step_8b__selective_checkpoint import prepare as prepare_selective
from common.models.caches import appending, continuing, new_cache
from common.models.codes import own
from common.models.decoder import Shape, block, turns
from common.models.int4 import codes_of, grouped, on_int4_grid, scales_of
from common.models.references import hidden_states
from common.models.training import adamw_options, loss_of
from common.python.proof.comparison import compare
from common.python.workload import Draw

CPU, ROOT = torch.device("cpu"), Path(__file__).resolve().parents[2]


def doubled(tree: Any) -> Any:
    wide = lambda leaf: leaf.double() if leaf.is_floating_point() else leaf  # noqa: E731
    return tree_map(lambda leaf: wide(leaf).clone() if isinstance(leaf, Tensor) else leaf, tree)


def copied(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, Tensor) else leaf


@pytest.mark.parametrize("columns", [96, 128, 131, 300])
def test_bf16_holds_a_matrix_of_the_grid_exactly_and_gives_back_its_scales(columns: int) -> None:
    drawn = torch.randn(37, columns, generator=torch.Generator().manual_seed(columns)).bfloat16()
    matrix = on_int4_grid(drawn)
    scales = scales_of(matrix)
    codes = codes_of(matrix, scales)
    assert matrix.dtype == torch.bfloat16
    assert torch.equal((codes.double() * scales.double()[..., None]).flatten(1)[:, :columns], matrix.double())
    assert torch.equal(scales, scales_of(drawn))
    assert torch.equal(on_int4_grid(matrix), matrix)
    assert set(codes.abs().amax(2).flatten().tolist()) == {7.0}
    assert (7 * scales >= grouped(drawn).float().abs().amax(2)).all()  # nothing is cut off
    assert (matrix - drawn).abs().amax() <= 0.51 * scales.amax()  # half a step, and drawn is rounded itself


class DividesAsCuda(TorchFunctionMode):
    """On a GPU torch divides by a number by multiplying with its reciprocal, which is rounded to float32."""

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        if function in (Tensor.div, Tensor.__truediv__) and isinstance(arguments[1], int):
            return arguments[0] * torch.tensor(1 / arguments[1]).item()
        return function(*arguments, **(options or {}))


def test_scales_are_found_again_where_division_is_off_by_a_rounding() -> None:
    """57,344 groups, in rows as long as the longest of the 8B: a lost scale makes weights several percent off."""
    drawn = torch.randn(512, 14336, generator=torch.Generator().manual_seed(0), dtype=torch.bfloat16)
    with DividesAsCuda():
        matrix = on_int4_grid(drawn)
        words, scales = packed(matrix)
    assert torch.equal(matrix, on_int4_grid(drawn))
    assert torch.equal(scales.float(), scales_of(drawn))
    x = torch.randn(1, 1, 14336, generator=torch.Generator().manual_seed(1))
    found, wanted = int4_linear(x, (words, scales)).double(), F.linear(x.double(), matrix.double())
    assert (found - wanted).norm() < 1e-5 * wanted.norm()


def test_a_word_holds_eight_integers_of_one_group() -> None:
    codes = torch.arange(256).view(2, 128) % 15 - 7
    codes[:, 0] = 7
    words, scales = packed(codes.float() * torch.tensor([[0.5], [2.0]]))
    assert torch.equal(scales, torch.tensor([[0.5], [2.0]]))
    for row, column in ((0, 0), (0, 17), (1, 1), (1, 127)):
        nibble = int(words[row, 0, column % 16]) >> 4 * (column // 16) & 15
        assert nibble - 8 == codes[row, column]


@pytest.mark.parametrize("columns", [96, 131, 256])
def test_the_products_of_one_row_are_those_of_linear(columns: int) -> None:
    generator = torch.Generator().manual_seed(columns)
    matrix = on_int4_grid(torch.randn(53, columns, generator=generator))
    x = torch.randn(1, 1, columns, generator=generator)
    wanted = F.linear(x.double(), matrix.double())
    torch.testing.assert_close(int4_linear(x, packed(matrix)).double(), wanted, rtol=1e-5, atol=1e-5)


def test_all_matrices_that_decoding_is_given_lie_on_the_grid(tmp_path: Path) -> None:
    weights = decode_8b.inputs(Draw(CPU, 0, tmp_path), **decode_8b.sizes["test"])["weights"]
    matrices = [m for layer in weights["layers"] for m in layer.values() if m.ndim == 2]
    assert len(matrices) == 8
    assert all(torch.equal(on_int4_grid(m), m) for m in (*matrices, weights["head"], weights["embedding"]))


def test_a_token_is_appended_to_one_layer_as_it_is_continued_in_all() -> None:
    shape, generator = Shape(1, 24, 6, 2, 37, 53), torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 1, heads, 4, generator=generator) for heads in (6, 2, 2))
    caches = [new_cache(shape, 1, 7, q) for _ in range(2)]
    for cache in caches:
        for store in (*cache.keys, *cache.values):
            store.copy_(torch.randn(store.shape, generator=torch.Generator().manual_seed(1)))
    position = torch.tensor([[4]])
    wanted = continuing(caches[0], position)(0, q, k, v)
    torch.testing.assert_close(appending(caches[1].keys[0], caches[1].values[0], position)(q, k, v), wanted)
    assert torch.equal(caches[0].keys[0], caches[1].keys[0])
    assert torch.equal(caches[0].values[0], caches[1].values[0])


def test_the_packed_network_generates_what_the_plain_one_does(tmp_path: Path) -> None:
    """The int4 rung uncompiled, against hidden states that the plain network finds token by token."""
    inputs = decode_8b.inputs(Draw(CPU, 3, tmp_path), **decode_8b.sizes["test"])
    weights, shape, sequence = inputs["weights"], inputs["shape"], inputs["first"][0]
    layers = [{n: packed(m) if m.ndim == 2 else m for n, m in layer.items()} for layer in weights["layers"]]
    narrow = {**weights, "layers": layers, "head": packed(weights["head"])}
    step = generation(narrow, shape, inputs["first"], inputs["new"], int4_linear).step
    wide = doubled(weights)
    for index in range(inputs["new"]):
        tokens, states = step()  # again, for a step must begin anew
        hidden = hidden_states(wide, shape, sequence)[-1]
        torch.testing.assert_close(states[0, index].double(), hidden, rtol=1e-4, atol=1e-4)
        sequence = torch.cat([sequence, (wide["head"] @ hidden).argmax()[None]])
    assert torch.equal(tokens[0], sequence[1:])
    assert torch.equal(decode_8b.reference(**inputs)[0], tokens)


INTERPRETED = """
import torch
from torch.nn import functional as F
from ch20.baseline_decode_8b import decode_block
from ch20.optimized_decode_8b import block, product
from common.models.caches import new_cache
from common.models.decoder import Shape, draw_weights, turns
from common.python.workload import Draw

generator = torch.Generator().manual_seed(0)
for rows, columns in ((9, 511), (16, 512), (15, 1100)):
    x, matrix = (torch.randn(*size, columns, generator=generator) for size in ((1, 1), (rows,)))
    residual = torch.randn(1, 1, rows, generator=generator)
    torch.testing.assert_close(product(x, matrix, residual=residual), residual + x @ matrix.T, rtol=1e-4, atol=1e-4)

shape = Shape(1, 36, 6, 2, 37, 53)
layer = draw_weights(Draw(torch.device("cpu"), 0, None), shape, torch.float32)["layers"][0]
for position in (0, 16, 17, 34):
    position, x = torch.tensor([[position]]), torch.randn(1, 1, 36, generator=generator)
    caches = [new_cache(shape, 1, 35, x) for _ in range(2)]
    for ours, theirs in zip((*caches[0].keys, *caches[0].values), (*caches[1].keys, *caches[1].values)):
        theirs.copy_(ours.copy_(torch.randn(ours.shape, generator=generator)))
    found, wanted = (
        run(layer, shape, x, (*turns(shape, position, x.dtype), cache.keys[0], cache.values[0], position), F.linear)
        for run, cache in zip((block, decode_block), caches)
    )
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    for ours, theirs in ((caches[0].keys, caches[1].keys), (caches[0].values, caches[1].values)):
        torch.testing.assert_close(ours[0], theirs[0], rtol=1e-4, atol=1e-4)
"""


def test_the_block_of_five_kernels_is_the_plain_one_where_tiles_just_fit_and_just_do_not() -> None:
    interpret(INTERPRETED)


def train_inputs(folder: Path, seed: int = 0) -> dict[str, Any]:
    return train_step_8b.inputs(Draw(CPU, seed, folder), **train_step_8b.sizes["test"])


COPIED = """
import torch
from ch20.baseline_decode_8b import choose, decode_block
from common.models.codes import own
from common.python.proof.compile_facts import watched

copies = [own(code, owner) for owner in "ab" for code in (decode_block, choose)]
assert len({id(code.__code__) for code in (*copies, decode_block, choose)}) == 6
assert [own(code, "a") for code in (decode_block, choose)] == copies[:2]  # in every round the same

last, x = {"norm": torch.ones(4), "head": torch.randn(7, 4)}, torch.randn(1, 1, 4)
for owner, wanted in (("a", 1), ("b", 1), ("a", None)):
    with watched(told := {}):
        found = torch.compile(own(choose, owner), backend="eager")(last, x, torch.nn.functional.linear)
    assert told.get("graphs") == wanted, told
    assert torch.equal(found[0], choose(last, x, torch.nn.functional.linear)[0])
"""


def test_each_variant_is_told_what_was_compiled_for_it_and_only_the_first_time() -> None:
    """Under one code object, what the second compiles is found, and counted as nothing."""
    command = [sys.executable, "-c", COPIED]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_each_variant_compiles_has_code_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = [block.__code__, choose.__code__]
    monkeypatch.setattr(torch, "compile", lambda function, **options: codes.append(function.__code__) or function)
    fp8 = baseline_train_step_fp8, optimized_train_step_fp8
    for module in (optimized_train_step_8b, optimized_train_step_8b__compile, *fp8):
        monkeypatch.setattr(module, "training", lambda *given, **options: lambda: ())
        module.prepare(*6 * [None])
    for decoding in (optimized_decode_8b__compile, optimized_decode_8b__int4, peer_decode_8b__cublas):
        decoding.compiled(choose)
    assert len(codes) == len(set(map(id, codes))) == 2 + 7  # copies are equal


def test_code_of_ones_own_keeps_defaults_and_closure() -> None:
    far = 3

    def add(x: int, y: int = 1, *, z: int = 2) -> tuple[int, ...]:
        return x, y, z, far

    assert own(add, "a")(0) == (0, 1, 2, 3)


def test_the_plain_training_step_is_autograd_and_torchs_adamw(tmp_path: Path) -> None:
    inputs = train_inputs(tmp_path)
    plain = train_step_8b.reference(**doubled(inputs))
    leaves = tree_map(lambda leaf: leaf.requires_grad_(), doubled(inputs["weights"]))
    loss = loss_of(leaves, inputs["shape"], inputs["tokens"], block)
    loss.backward()
    p = tree_leaves(leaves)
    options = adamw_options(inputs["shape"])
    betas = options.pop("beta1"), options.pop("beta2")
    optimizer = torch.optim.AdamW(p, betas=betas, **options)
    moments = (tree_leaves(doubled(inputs[name])) for name in ("means", "squares"))
    for leaf, m, v in zip(p, *moments):
        before = {"step": torch.tensor(float(inputs["count"]) - 1), "exp_avg": m, "exp_avg_sq": v}
        optimizer.state[leaf] = before
    optimizer.step()
    state = [optimizer.state[leaf] for leaf in p]
    wanted = [loss, *p, *(s["exp_avg"] for s in state), *(s["exp_avg_sq"] for s in state)]
    assert len(wanted) == len(plain)
    for found, right in zip(plain, wanted):
        torch.testing.assert_close(found, right.detach(), rtol=1e-5, atol=1e-7)  # angles are float32 on one side


def test_a_gradient_a_tenth_off_or_a_matrix_left_as_it_was_is_refused(tmp_path: Path) -> None:
    """Of every tensor, at test size; at the size that is timed, the embedding's gradient is too thin to show."""
    inputs = train_inputs(tmp_path)
    answer = train_step_8b.reference(**doubled(inputs))[1:]
    p, m = (tree_leaves(inputs[name]) for name in ("weights", "means"))
    for old_p, old_m, new_p, new_m in zip(p, m, answer, answer[len(p) :]):
        if new_p.ndim == 2 and new_p is not answer[0]:  # of the embedding, few rows are met in a batch
            assert (new_p - old_p).norm() > train_step_8b.tolerance * new_p.norm()
        tenth = 0.1 * (new_m - 0.9 * old_m)  # what a gradient adds to the mean, a tenth of that
        for wrong in (new_m + tenth, new_m - tenth):
            assert compare([wrong], [new_m], [wrong.dtype], train_step_8b.tolerance).reason


def test_eight_bits_are_accepted_with_three_of_mantissa_and_refused_with_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    inputs = train_step_fp8.inputs(Draw(CPU, 0, tmp_path), **train_step_fp8.sizes["test"])
    right = list(train_step_fp8.reference(**doubled(inputs)))
    reasons = []
    for codes in (torch.float8_e4m3fn, torch.float8_e5m2):
        monkeypatch.setattr(optimized_train_step_fp8, "CODES", codes)
        out = list(optimized_train_step_fp8.prepare(**tree_map(copied, inputs)).step())
        reasons.append(compare(out, right, [leaf.dtype for leaf in out], train_step_fp8.tolerance).reason)
    assert [reason is None for reason in reasons] == [True, False], reasons


def test_products_of_what_eight_bits_hold_are_exact_in_all_three_directions() -> None:
    """Of e4m3 numbers times a power of two a cast loses nothing, so what is left is the rounding of the output."""
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int, power: int) -> Tensor:
        noise = torch.randn(shape, generator=generator).mul_(16.0).to(torch.float8_e4m3fn)
        return noise.bfloat16() * 2.0**power

    x, weight, slope = drawn(3, 32, 48, power=-9), drawn(112, 48, power=3), drawn(3, 32, 112, power=0)
    leaves = x.clone().requires_grad_(), weight.clone().requires_grad_()
    out = optimized_train_step_fp8.fp8_linear(*leaves)
    found = out, *torch.autograd.grad(out, leaves, slope)
    x, weight, slope = x.double(), weight.double(), slope.double()
    for got, wanted in zip(found, (x @ weight.T, slope @ weight, slope.flatten(0, 1).T @ x.flatten(0, 1))):
        assert (got.double() - wanted).norm() < 3e-3 * wanted.norm()


class SeesMagnitudes(TorchFunctionMode):
    """Notes the type in which each largest magnitude is found."""

    def __init__(self) -> None:
        super().__init__()
        self.dtypes: list[torch.dtype] = []

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        if function is Tensor.amax:
            self.dtypes.append(arguments[0].dtype)
        return function(*arguments, **(options or {}))


def test_the_magnitude_behind_a_scale_is_never_rounded() -> None:
    """In bf16 it is, but only in the kernels that load it: of 400 steps on an H200, 13 most likely had two scales."""
    with SeesMagnitudes() as seen:
        optimized_train_step_fp8.cast(torch.ones(16, 32, dtype=torch.bfloat16))
    assert seen.dtypes == [torch.float32]


def test_what_eight_bits_cost_is_told_of_the_gradients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two roundings of e4m3 are 3.7% off a product, and a gradient has many products behind it."""
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    inputs = train_step_fp8.inputs(Draw(CPU, 0, tmp_path), **train_step_fp8.sizes["test"])
    told = optimized_train_step_fp8.prepare(**inputs).metrics()
    assert 0.037 < told["gradient's error, median"] < told["gradient's error, worst"] < 0.2


def test_products_run_twice_under_full_checkpoints_and_once_where_they_are_kept(tmp_path: Path) -> None:
    """The products of a model are 6 FLOPs a weight and token; the second forward of the blocks is 2 more of theirs."""
    inputs, counts = train_inputs(tmp_path), []
    shape, tokens = inputs["shape"], inputs["tokens"][:, 1:].numel()
    for prepare in (prepare_selective, prepare_eager):
        step = prepare(**inputs)
        with FlopCounterMode(display=False) as counter:
            step()
        counts.append(counter.get_flop_counts()["Global"][torch.ops.aten.mm])
    model = 6 * tokens * shape.read_weights
    last = 2 * tokens * shape.layers * shape.width * shape.hidden  # nobody's backward asks for a block's own output
    assert counts == [model, model + 2 * tokens * shape.layers * shape.layer_weights - last]


def test_turns_of_one_row_serve_every_row() -> None:
    shape = Shape(1, 24, 6, 2, 37, 53)
    many = turns(shape, torch.arange(5).expand(3, -1), torch.float32)
    for one, each in zip(turns(shape, torch.arange(5)[None], torch.float32), many):
        assert torch.equal(one.expand_as(each), each)
