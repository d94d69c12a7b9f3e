"""Inputs are refilled in place, every variant gets what it may have, errors say whose they are and where."""

import random
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from small_workload import Prepares, honest, workload
from torch import Tensor

from common.python.base.results import BEFORE
from common.python.proof.comparison import Rejected
from common.python.proof.preparation import Preparation, Prepared, VariantError, clone, compilation, free
from common.python.proof.trials import prove
from common.python.workload import Draw, Inputs, Step

CPU, SIGN = torch.device("cpu"), -(1 << 63)


def output_of(prep: Preparation, name: str) -> Tensor:
    output = prep.variants[name].step()
    assert isinstance(output, Tensor)
    return output


def test_a_refill_overwrites_the_inputs_in_place_with_fresh_data_but_for_the_frozen(prepared: Prepares) -> None:
    prep = prepared(workload(), a=honest)
    tensors, before = list(prep.inputs.values()), clone(prep.inputs)
    addresses = [tensor.data_ptr() for tensor in tensors]
    prep.refill()
    assert [id(tensor) for tensor in prep.inputs.values()] == [id(tensor) for tensor in tensors]
    assert [tensor.data_ptr() for tensor in prep.inputs.values()] == addresses
    assert {key: torch.equal(prep.inputs[key], before[key]) for key in before} == {"x": False, "w": True}
    assert prep.variants["a"].inputs["x"] is prep.inputs["x"]


def test_what_a_variant_may_overwrite_keeps_the_strides_that_were_drawn(prepared: Prepares) -> None:
    problem = workload(
        inputs=lambda draw, n: {"x": draw.normal(n, 2 * n)[:, ::2], "w": draw.normal(n, n)}, mutates=["x"]
    )
    given = prepared(problem, a=honest).variants["a"].inputs["x"]
    assert given.stride() == (18, 2)


@pytest.mark.parametrize(
    ("change", "told"),
    [(Tensor.to_sparse, "'x' is torch.sparse_coo"), (lambda x: x[:1].expand(9, 9), "'x' overlaps itself")],
)
def test_an_input_that_cannot_be_overwritten_is_refused_by_name(
    prepared: Prepares, change: Callable[[Tensor], Tensor], told: str
) -> None:
    problem = workload(inputs=lambda draw, n: {"x": change(draw.normal(n, n)), "w": draw.normal(n, n)})
    with pytest.raises(VariantError, match=told):
        prepared(problem, a=honest)


def test_inputs_in_lists_and_dicts_are_refilled_too(prepared: Prepares) -> None:
    problem = workload(
        inputs=lambda draw, n: {"layers": [draw.normal(n), {"bias": draw.normal(n)}], "eps": 1e-6},
        reference=lambda layers, eps: layers[0] + layers[1]["bias"] + eps,
        frozen=[],
    )
    prep = prepared(problem, a=lambda layers, eps: lambda: layers[0] + layers[1]["bias"] + eps)
    before = clone(prep.inputs["layers"])
    prep.refill()
    assert not torch.equal(prep.inputs["layers"][0], before[0])
    assert not torch.equal(prep.inputs["layers"][1]["bias"], before[1]["bias"])
    assert torch.allclose(output_of(prep, "a").double(), prep.reference(prep.inputs)[0])


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (lambda draw, drawn: draw.normal(drawn), "input 'x' changes from torch.float32 (1,) to torch.float32 (2,)"),
        (
            lambda draw, drawn: draw.normal(3, dtype=[torch.float32, torch.float64][drawn - 1]),
            "input 'x' changes from torch.float32 (3,) to torch.float64 (3,)",
        ),
        (lambda draw, drawn: [draw.normal(3)] * drawn, "input 'x' has 2 parts in one draw and 1 in another"),
        (lambda draw, drawn: drawn, "input 'x' is 1 in one draw and 2 in another: only tensors and files may vary"),
        (lambda draw, drawn: draw.file(f"{drawn}", draw.normal(3)), "only tensors and files may vary"),
    ],
)
def test_inputs_that_change_their_form_between_draws_are_rejected(
    inputs: Callable[..., Any], message: str, prepared: Prepares
) -> None:
    drawn = iter(range(1, 100))
    problem = workload(
        inputs=lambda draw, n: {"x": inputs(draw, next(drawn))}, reference=lambda x: torch.zeros(1), frozen=[]
    )
    prep = prepared(problem, a=lambda x: lambda: torch.zeros(1))
    with pytest.raises(Rejected) as rejected:
        prep.refill()
    assert message in str(rejected.value)


def test_the_reference_gets_float64_copies_and_integers_and_what_is_as_drawn_as_they_are(prepared: Prepares) -> None:
    seen: dict[str, Any] = {}

    def reference(x: Tensor, rows: Tensor, w: dict[str, list[Tensor]]) -> Tensor:
        seen.update(x=x, rows=rows, w=w["layers"][0])
        return x[rows].mul_(w["layers"][0].double())

    problem = workload(
        inputs=lambda draw, n: {
            "x": draw.normal(n, n, dtype=torch.bfloat16),
            "rows": draw.permutation(n),
            "w": {"layers": [2.0 ** draw.integers(n, high=9)]},
        },
        reference=reference,
        tolerance=0.0,
        as_drawn=["w"],
    )
    prep = prepared(problem, a=lambda x, rows, w: lambda: x[rows] * w["layers"][0].bfloat16())
    (answer,) = prep.reference(prep.inputs)
    assert torch.equal(answer, output_of(prep, "a").double())
    assert (seen["x"].dtype, seen["rows"].dtype) == (torch.float64, torch.int64)
    assert all(seen[key].data_ptr() != prep.inputs[key].data_ptr() for key in ("x", "rows"))
    assert torch.equal(seen["x"], prep.inputs["x"].double())
    assert seen["w"] is prep.inputs["w"]["layers"][0]
    assert prove(prep, ["a"], BEFORE, trials=2)["a"][-1].reason is None


def test_an_error_deep_in_a_library_names_the_line_of_the_user_who_called_it() -> None:
    def shape_error() -> Tensor:
        return torch.nn.functional.layer_norm(torch.zeros(3), [4])

    with pytest.raises(RuntimeError) as error:
        shape_error()
    line = shape_error.__code__.co_firstlineno + 1
    assert str(VariantError("a", error.value)).startswith(f"RuntimeError at test_preparation.py:{line}: ")


@pytest.mark.parametrize(("part", "other"), [("inputs", "n"), ("reference", "x")])
def test_a_part_of_a_workload_that_takes_other_arguments_is_named(prepared: Prepares, part: str, other: str) -> None:
    told = rf"TypeError at test_preparation\.py:\d+: {part}\(\) got an unexpected keyword argument '{other}'"
    with pytest.raises(VariantError, match=told):
        prove(prepared(workload(**{part: lambda draw=0, w=0: {}}), a=honest), ["a"], BEFORE)


def test_a_refill_overwrites_files_under_the_same_path(prepared: Prepares, tmp_path: Path) -> None:
    def inputs(draw: Draw, n: int) -> Inputs:
        return {"path": draw.file("data/x.bin", draw.normal(n)), "w": draw.kept.get("w", draw.normal(n))}

    prep = prepared(workload(inputs=inputs), a=lambda path, w: lambda: torch.zeros(1))
    path, before = tmp_path / "data" / "x.bin", prep.inputs["path"].read_bytes()
    prep.refill()
    assert prep.inputs["path"] == path
    assert path.read_bytes() != before
    assert prep.files == [path]
    before = path.read_bytes()
    assert prep.inputs["w"].zero_() is prep.draw()[0]["w"], "what is frozen need not be drawn again"
    path.write_bytes(before)
    assert prep.overwrote("it") == "it overwrote the input 'w', which is frozen"
    assert (path.read_bytes(), prep.inputs["w"].all()) == (before, True), "restoring that draws files elsewhere"


def test_prepare_and_the_first_call_are_timed_apart(prepared: Prepares) -> None:
    def slow(x: Tensor, w: Tensor) -> Step:
        time.sleep(0.02)
        calls: list[int] = []

        def step() -> Tensor:
            time.sleep(0.0 if calls else 0.01)
            calls.append(1)
            return x @ w

        return step

    variant: Prepared = prepared(workload(), a=slow).variants["a"]
    assert 0.02 <= variant.prepare_s < 1.0
    assert 0.01 <= variant.first_call_s < 1.0


def test_freeing_gives_back_what_only_a_cycle_holds() -> None:
    cycle: dict[str, Any] = {"tensor": torch.zeros(3)}
    cycle["self"] = cycle
    tensor = weakref.ref(cycle["tensor"])
    del cycle
    free()
    assert tensor() is None


@pytest.mark.parametrize("seed", range(4))  # either may come first
@pytest.mark.parametrize("told", ["no luck", "overwrote the input 'w', which is frozen"])
@pytest.mark.parametrize(
    "change", [Tensor.zero_, lambda w: w[5, 6].bitwise_xor_(1), lambda w: w[5, 6:8].bitwise_xor_(SIGN)]
)
def test_a_frozen_input_that_prepare_overwrote_is_restored_for_the_others(
    seed: int, told: str, change: Callable[[Tensor], Tensor], tmp_path: Path
) -> None:
    def overwriting(x: Tensor, w: Tensor) -> Step:
        change(w.view(torch.int64))
        if told == "no luck":
            raise ValueError(told)
        return lambda: torch.zeros(9, 9)

    problem = workload(inputs=lambda draw, n: {key: draw.normal(n, n, dtype=torch.float64) for key in "xw"})
    prep = Preparation(problem, {"n": 9}, "test", CPU, tmp_path / "rank0", random.Random(seed))
    failures = prep.prepare_all({"a": overwriting, "b": honest})
    assert [(name, told in str(error)) for name, error in failures.items()] == [("a", True)]
    assert torch.equal(prep.inputs["w"], prep.draw(str(tmp_path))[0]["w"])


def test_frozen_inputs_that_cannot_be_drawn_again_are_lost_and_who_overwrote_them_is_named(tmp_path: Path) -> None:
    problem = workload(inputs=lambda draw, n: {"x": draw.normal(n, n), "w": torch.rand(n, n)})
    prep = Preparation(problem, {"n": 9}, "test", CPU, tmp_path, random.Random(5))
    with pytest.raises(VariantError, match=r"overwrote the input 'w'; .* it is lost") as told:
        prep.prepare_all({"a": lambda x, w: w.zero_})
    assert told.value.who == "a"


def test_a_lack_of_memory_for_a_frozen_input_is_told_of_who_overwrote_it(tmp_path: Path) -> None:
    def inputs(draw: Draw, n: int) -> Inputs:
        if prep.everyone:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return {"x": draw.normal(n, n), "w": draw.normal(n, n)}

    prep = Preparation(workload(inputs=inputs), {"n": 9}, "test", CPU, tmp_path, random.Random(5))
    told = r"^input 'w' was overwritten and cannot be drawn again: OutOfMemoryError at .*: CUDA out of memory"
    with pytest.raises(VariantError, match=told) as raised:
        prep.prepare_all({"a": lambda x, w: w.zero_})
    assert raised.value.who == "a"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda w: setattr(w, "data", w.double()), "from torch.float64 .* to torch.float32"),  # of equal values
        (lambda w: torch.utils.swap_tensors(w, w.to("meta")), "from meta to cpu"),
    ],
)
def test_a_variant_that_changes_what_a_frozen_input_is_is_blamed(
    change: Callable[[Tensor], None], reason: str, tmp_path: Path
) -> None:
    def prepare(x: Tensor, w: Tensor) -> Step:
        change(w)
        return lambda: torch.zeros(9, 9)

    prep = Preparation(workload(), {"n": 9}, "test", CPU, tmp_path, random.Random(5))
    with pytest.raises(VariantError, match=f"input 'w' changes {reason}") as told:
        prep.prepare_all({"a": prepare})
    assert told.value.who == "a"


def test_a_variant_that_loses_the_device_ends_the_round_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel's fault is an error of whatever asks the device next, of the variant that comes after it too."""
    lost: list[str] = []

    def faulty(x: Tensor, w: Tensor) -> Step:
        lost.append("an illegal memory access")
        return honest(x, w)

    def settle(device: torch.device) -> None:
        if lost:
            raise RuntimeError(lost[0])

    monkeypatch.setattr("common.python.proof.preparation.settle", settle)
    prep = Preparation(workload(frozen=[]), {"n": 9}, "test", CPU, tmp_path, random.Random(5))
    with pytest.raises(VariantError, match="an illegal memory access") as told:
        prep.prepare_all({"b": faulty, "c": faulty, "d": faulty})
    assert (len(lost), told.value.who in "bcd") == (1, True)


def broken(x: Tensor) -> Tensor:
    doubled = x * 2
    if doubled.sum() > 0:  # the graph breaks: the host must know
        doubled = doubled + 1
    return doubled.cos()


def test_graphs_and_breaks_inside_are_counted_and_earlier_ones_are_not() -> None:
    torch.compile(broken, backend="eager")(torch.ones(4))
    torch._dynamo.reset()
    with compilation() as told:
        torch.compile(broken, backend="eager")(torch.ones(4))
    assert (told["graphs"], told["graph breaks"], told["graphs from the cache"]) == (2, 1, 0)
    assert 0 < told["compilation s"] < 60
    with compilation() as again:
        torch.compile(broken, backend="eager")(torch.ones(4))
    assert again == {}, "what was compiled already is not told again"
