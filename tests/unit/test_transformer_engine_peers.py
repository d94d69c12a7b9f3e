"""The peers of chapter 19 that call Transformer Engine, on a stand-in that casts as its recipe says, without a GPU.

The stand-in has the names and arguments of version 2.17 as far as the peers use them. It shows that they ask for what
the workloads want; that the library understands them so, a GPU must show.
"""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from ch19.baseline_fp8_cast_transpose import codes
from ch19.baseline_fp8_cast_transpose import workload as cast_transpose
from ch19.baseline_fp8_linear_training import workload as layer
from common.python.proof.comparison import Comparison, compare, leaves
from common.python.workload import Draw, Inputs, Metered, Workload


class Format(Enum):
    E4M3 = (torch.float8_e4m3fn, torch.float8_e4m3fn)  # of activations and weights, and of gradients
    HYBRID = (torch.float8_e4m3fn, torch.float8_e5m2)


@dataclass(frozen=True)
class QParams:
    power_2_scale: bool = False


@dataclass(frozen=True)
class MMParams:
    use_split_accumulator: bool = True


@dataclass
class Float8CurrentScaling:
    fp8_format: Format = Format.HYBRID
    fp8_gemm_fprop: MMParams = MMParams(use_split_accumulator=False)
    # no fields, as in the library: its constructor does not take them
    fp8_quant_fwd_inp = fp8_quant_fwd_weight = fp8_quant_bwd_grad = QParams()


def rounded(x: Tensor, dtype: torch.dtype, how: QParams) -> Tensor:
    """What is left of x after a cast with one scale for all of it."""
    scale = torch.finfo(dtype).max / x.abs().max().double()
    scale = scale.log2().floor().exp2() if how.power_2_scale else scale
    return (x.double() * scale).to(dtype).double() / scale


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, recipe: Float8CurrentScaling) -> Tensor:
        ctx.recipe, (dtype, _) = recipe, recipe.fp8_format.value
        ctx.cast = rounded(x, dtype, recipe.fp8_quant_fwd_inp), rounded(weight, dtype, recipe.fp8_quant_fwd_weight)
        return (ctx.cast[0] @ ctx.cast[1].T).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor, None]:  # type: ignore[override]
        (x, weight), recipe = ctx.cast, ctx.recipe
        cast = rounded(slope, recipe.fp8_format.value[1], recipe.fp8_quant_bwd_grad)
        return (cast @ weight).to(slope.dtype), (cast.T @ x).to(slope.dtype), None


class Linear(torch.nn.Module):
    recipe: Float8CurrentScaling | None = None  # of the autocast around the call

    def __init__(self, width: int, wide: int, *, bias: bool, params_dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(wide, width, dtype=params_dtype, device=device))

    def forward(self, x: Tensor) -> Tensor:
        assert Linear.recipe is not None, "called outside of autocast"
        assert Linear.recipe.fp8_gemm_fprop.use_split_accumulator
        return Product.apply(x, self.weight, Linear.recipe)


@contextmanager
def autocast(*, enabled: bool, recipe: Float8CurrentScaling) -> Iterator[None]:
    Linear.recipe = recipe if enabled else None
    yield
    Linear.recipe = None


class Float8Quantizer:
    def __init__(self, scale: Tensor, amax: Tensor, fp8_dtype: object, *, rowwise: bool, columnwise: bool) -> None:
        assert (fp8_dtype, rowwise, columnwise, amax.shape) == ("e4m3", True, True, (1,))
        self.scale, self.amax = scale, amax

    def make_empty(self, shape: tuple[int, int], *, dtype: torch.dtype, device: torch.device) -> SimpleNamespace:
        made = torch.empty(shape, dtype=torch.uint8), torch.empty(shape[::-1], dtype=torch.uint8)
        return SimpleNamespace(get_data_tensors=lambda: made)

    def update_quantized(self, x: Tensor, into: SimpleNamespace) -> None:
        cast, (along, across) = codes(x, self.scale).view(torch.uint8), into.get_data_tensors()
        along.copy_(cast)
        across.copy_(cast.T)
        self.amax.copy_(torch.maximum(self.amax, x.abs().max().float()))  # never lower than it was


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the stand-in where the library would be, for this test alone."""
    recipe = {"Float8CurrentScaling": Float8CurrentScaling, "Format": Format, "MMParams": MMParams, "QParams": QParams}
    names: dict[str, dict[str, Any]] = {
        "transformer_engine": {},
        "transformer_engine.common": {},
        "transformer_engine.common.recipe": recipe,
        "transformer_engine.pytorch": {"Linear": Linear, "autocast": autocast, "Float8Quantizer": Float8Quantizer},
        "transformer_engine_torch": {"DType": SimpleNamespace(kFloat8E4M3="e4m3")},
    }
    for name, held in names.items():
        module = ModuleType(name)
        vars(module).update(held)
        monkeypatch.setitem(sys.modules, name, module)
    for pair in ("fp8_linear_training", "fp8_cast_transpose"):
        monkeypatch.delitem(sys.modules, f"ch19.peer_{pair}__te", raising=False)


def drawn(workload: Workload, folder: Path, seed: int) -> Inputs:
    return workload.inputs(Draw(torch.device("cpu"), seed, folder), **workload.sizes["test"])


def found(pair: str, workload: Workload, folder: Path, peer: ModuleType | None = None) -> list[Comparison]:
    """Two steps of one preparation, its inputs overwritten in between, each held against the reference."""
    peer = peer or importlib.import_module(f"ch19.peer_{pair}__te")
    inputs, told = drawn(workload, folder, 0), []
    made = peer.prepare(**inputs)
    for seed in (1, 2):
        for name, fresh in drawn(workload, folder, seed).items():
            inputs[name].copy_(fresh)
        output = leaves((made.step if isinstance(made, Metered) else made)())
        expected = leaves(workload.reference(**{name: value.double() for name, value in inputs.items()}))
        told.append(compare(output, expected, [out.dtype for out in output], workload.tolerance))
        for out in output:
            out.fill_(99)
    return told


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(("pair", "workload"), [("fp8_linear_training", layer), ("fp8_cast_transpose", cast_transpose)])
def test_a_peer_answers_its_workload_and_keeps_nothing_of_an_earlier_step(
    pair: str, workload: Workload, tmp_path: Path
) -> None:
    assert [one.reason for one in found(pair, workload, tmp_path)] == [None, None]


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("fault", "refused"), [({"fp8_format": Format.HYBRID}, "output 1"), ({"fp8_quant_fwd_inp": QParams()}, "output 0")]
)
def test_with_a_default_of_the_library_the_layer_would_be_refused(
    fault: dict[str, Any], refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = importlib.import_module("ch19.peer_fp8_linear_training__te")
    recipe = peer.exact_recipe()
    vars(recipe).update(fault)
    monkeypatch.setattr(peer, "exact_recipe", lambda: recipe)
    for one in found("fp8_linear_training", layer, tmp_path, peer):
        assert (one.reason or "").startswith(refused), one
