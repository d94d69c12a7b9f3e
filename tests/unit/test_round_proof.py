"""Where all samples of a round are proven, nobody gets by with less, and nobody is called for a proof alone."""

import math
import weakref
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from small_workload import Prepares, honest, preparer, workload
from torch import Tensor

from common.python.base.results import WHILE
from common.python.proof.preparation import Preparation, VariantError
from common.python.proof.round_proof import RoundProof, pose, worth_it
from common.python.workload import Prepare, Step


@pytest.fixture
def prepared(tmp_path: Path) -> Prepares:
    return preparer(tmp_path)


def sampled(prep: Preparation, times: int = 2) -> tuple[RoundProof, list[bool]]:
    """Each variant so many times in turn, as a sampler does it, and which of the samples were on new inputs."""
    asked, fresh = pose(prep), []
    asked.give()
    for _ in range(times):
        for name in prep.variants:
            asked.ready(name)
            asked.seen(name)()
            fresh.append(asked.look(name))
    return asked, fresh


def reason(prep: Preparation, times: int = 2) -> str:
    [proof] = sampled(prep, times)[0].finish(list(prep.variants))[next(iter(prep.variants))]
    return proof.reason or ""


def test_samples_are_the_proof_and_nothing_else_is_called(prepared: Prepares) -> None:
    calls: list[Tensor] = []

    def counted(x: Tensor, w: Tensor) -> Step:
        return lambda: calls.append(x.clone()) or x @ w  # type: ignore[func-returns-value]

    prep = prepared(workload(), a=counted, b=honest)
    before = prep.inputs["x"].clone()
    calls.clear()
    asked, fresh = sampled(prep, times=3)
    assert fresh == [True, True, False, False, False, False], "the first of each variant"
    found = asked.finish(["a", "b"])
    assert len(calls) == 3
    assert not torch.equal(calls[0], before)
    assert torch.equal(calls[0], calls[2])
    for [proof] in found.values():
        assert (proof.size, proof.when, proof.reason) == ("test", WHILE, None)
        assert 0 < (proof.error or 0) < 1e-6


def test_the_inputs_stay_until_the_first_sample_and_are_new_then(prepared: Prepares) -> None:
    prep = prepared(workload(), a=honest)
    before, place = prep.inputs["x"].clone(), prep.inputs["x"].data_ptr()
    asked = pose(prep)
    assert torch.equal(prep.inputs["x"], before), "warm-up follows, which no answer is asked of"
    asked.give()
    assert prep.inputs["x"].data_ptr() == place
    after = prep.inputs["x"].clone()
    assert not torch.equal(after, before)
    prep.inputs["x"].zero_()
    asked.give()
    assert not prep.inputs["x"].any(), "a second block of the round goes on with what is there"


def test_what_a_proof_has_left_is_poisoned_and_given_back(prepared: Prepares) -> None:
    prep = prepared(workload(), a=honest)
    left = torch.ones(9, 9)
    prep.variants["a"].output = [left]
    pose(prep).give()
    assert left.isnan().all()
    assert prep.variants["a"].output == []


def early(x: Tensor, w: Tensor) -> Step:
    out = x @ w
    return lambda: out.clone()


def half_written(x: Tensor, w: Tensor) -> Step:
    out = torch.zeros(9, 9)

    def step() -> Tensor:
        out[:8] = (x @ w)[:8]
        return out

    return step


def once_for_these_inputs(x: Tensor, w: Tensor) -> Step:
    seen, out = torch.zeros(9, 9), torch.zeros(9, 9)

    def step() -> Tensor:
        if not torch.equal(seen, x):
            seen.copy_(x)
            torch.mm(x, w, out=out)
        return out

    return step


def tired(x: Tensor, w: Tensor) -> Step:
    calls: list[int] = []
    return lambda: calls.append(1) or (x @ w if len(calls) < 4 else torch.zeros(9, 9))  # type: ignore[func-returns-value]


@pytest.mark.parametrize(
    ("cheat", "told"),
    [
        (early, "relative error"),
        (half_written, "relative error"),
        (once_for_these_inputs, "a second call on the same inputs did not do the work again: NaN"),
        (tired, "a second call on the same inputs did not do the work again: relative error 1.00e+00"),
        (lambda x, w: lambda: (x @ w).double(), "dtype float64, should be float32"),
        (lambda x, w: lambda: x.copy_(x), "shares memory with the input 'x'"),
        (lambda x, w: lambda: [x @ w], "output is a list"),
    ],
    ids=["early", "half written", "once", "tired", "dtype", "input", "list"],
)
def test_whoever_does_less_is_refused_and_others_are_not(prepared: Prepares, cheat: Prepare, told: str) -> None:
    prep = prepared(workload(), a=cheat, b=honest)
    prep.dtypes = [torch.float32]
    found = sampled(prep, times=3)[0].finish(["a", "b"])
    assert told in (found["a"][0].reason or "")
    assert found["b"][0].reason is None


def test_the_largest_error_is_told(prepared: Prepares) -> None:
    noise = iter([0.0, 1e-7, 3e-6, 1e-7])
    prep = prepared(workload(), a=lambda x, w: lambda: (x @ w) * (1 + next(noise)))
    [proof] = sampled(prep, times=3)[0].finish(["a"])["a"]
    assert proof.reason is None
    assert proof.error == pytest.approx(3e-6, rel=0.2)


def test_of_several_faults_the_first_is_told(prepared: Prepares) -> None:
    outputs = [torch.zeros(9, 9), torch.zeros(9, 9), torch.zeros(9), torch.zeros(9, 9)]
    prep = prepared(workload(), a=lambda x, w: lambda: outputs.pop())
    assert reason(prep, times=3) == "shape (9,), should be (9, 9)"


def test_state_that_a_step_returns_is_restored_before_each_sample(prepared: Prepares) -> None:
    """A training step returns its weights, inputs that it may write: poisoned, they are to be whole again."""
    problem = workload(reference=lambda x, w: x + w, mutates=["x"])
    prep = prepared(problem, a=lambda x, w: lambda: x.add_(w))
    assert reason(prep, times=3) == ""


def test_an_input_that_a_step_overwrites_while_timed_is_the_pairs_fault(prepared: Prepares) -> None:
    calls: list[int] = []

    def careless(key: str) -> Prepare:
        def prepare(x: Tensor, w: Tensor) -> Step:
            def step() -> Tensor:
                out = x @ w
                calls.append(1)
                if len(calls) > 1:
                    {"x": x, "w": w}[key][0] += 1
                return out

            return step

        return prepare

    for key, told in (("x", "overwrote the input 'x'"), ("w", "overwrote the input 'w', which is frozen")):
        calls.clear()
        prep = prepared(workload(), a=careless(key))
        with pytest.raises(VariantError, match=told) as raised:
            sampled(prep, times=1)[0].finish(["a"])
        assert raised.value.who == "workload"


def test_a_setting_that_a_step_changes_while_timed_is_its_own_fault(prepared: Prepares) -> None:
    calls: list[int] = []

    def changing(x: Tensor, w: Tensor) -> Step:
        return lambda: (calls.append(1), len(calls) > 1 and torch.set_default_dtype(torch.float64), x @ w)[2]

    prep = prepared(workload(), a=changing)
    assert "the step left" in reason(prep)
    assert torch.get_default_dtype() is torch.float32


def test_an_output_is_given_back_before_the_next_step_works(prepared: Prepares) -> None:
    given: list[weakref.ref[Tensor]] = []
    held: list[bool] = []

    def step_of(x: Tensor, w: Tensor) -> Step:
        def step() -> Tensor:
            held.extend(before() is not None for before in given[-1:])
            out = x @ w
            given.append(weakref.ref(out))
            return out

        return step

    prep = prepared(workload(), a=step_of)
    assert reason(prep, times=3) == ""
    assert held == [False, False, False]


def test_it_is_worth_it_where_a_step_is_long_and_what_it_returns_is_given_back_in_no_time(prepared: Prepares) -> None:
    prep = prepared(workload(), a=honest, b=honest)
    for name, called_s in (("a", 0.001), ("b", 0.02)):
        prep.variants[name].output, prep.variants[name].called_s = [torch.empty(9, 9)], called_s
    assert worth_it(prep, ["a", "b"])
    assert not worth_it(prep, ["a"]), "none is long"
    prep.variants["a"].called_s = math.inf
    assert not worth_it(prep, ["a"]), "none was proven"
    assert not worth_it(replace(prep, files=[Path("drawn")]), ["a", "b"])
    prep.variants["a"].output = [torch.empty(1 << 18)]
    assert not worth_it(prep, ["a", "b"]), "a MiB, and 324 bytes"
    prep.variants["b"].output = []
    assert worth_it(prep, ["a", "b"])
    prep.ranks = SimpleNamespace(size=2)  # type: ignore[assignment]
    assert not worth_it(prep, ["a", "b"])
