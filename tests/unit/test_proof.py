"""Each way to look right without doing the work is seen, on the closures that will be timed."""

import math
import threading
import weakref
from itertools import cycle
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from small_workload import Prepares, each_call, honest, workload
from torch import Tensor

from common.python.base.results import BEFORE
from common.python.proof import trials as proof
from common.python.proof.preparation import Preparation, VariantError
from common.python.proof.trials import prove, toothless
from common.python.workload import Step


def reasons(prep: Preparation, names: list[str] | None = None, trials: int = 1) -> dict[str, str | None]:
    proofs = prove(prep, names or list(prep.variants), BEFORE, trials)
    return {name: found[-1].reason for name, found in proofs.items()}


def test_an_honest_variant_is_proven_in_every_trial_and_one_that_fails_is_not_tried_again(prepared: Prepares) -> None:
    answers = list[Any]()

    def reference(x: Tensor, w: Tensor) -> Tensor:
        assert not any(answer() is not None for answer in answers), "the last answer is freed before the next is made"
        answers.append(weakref.ref((answer := x @ w).untyped_storage()))
        return answer

    prep = prepared(workload(reference=reference), a=honest, b=lambda x, w: lambda: x + w)
    proofs = prove(prep, ["a", "b"], BEFORE, trials=3)
    assert [len(proofs[name]) for name in "ab"] == [3, 1]
    assert all((proof.size, proof.when, proof.reason) == ("test", BEFORE, None) for proof in proofs["a"])
    assert all(0 < (proof.error or 0) < 1e-6 for proof in proofs["a"])
    assert "relative error" in (proofs["b"][0].reason or "")


def test_an_input_that_holds_nan_counts_as_overwritten_only_where_it_was(prepared: Prepares) -> None:
    holed = torch.eye(9).masked_fill(torch.eye(9) == 1, math.nan)
    problem = workload(
        inputs=lambda draw, n: {"x": draw.normal(n, n) + holed, "w": draw.normal(n, n)},
        reference=lambda x, w: x.nan_to_num() @ w,
    )
    prep = prepared(problem, a=lambda x, w: lambda: x.nan_to_num() @ w, b=lambda x, w: lambda: x.nan_to_num_() @ w)
    assert reasons(prep) == {"a": None, "b": "the step overwrote the input 'x', which is not in mutates"}


def test_a_later_step_that_overwrites_a_frozen_input_is_seen(prepared: Prepares) -> None:
    def overwriting(call: int, x: Tensor, w: Tensor) -> Tensor:
        out = x @ w
        w[0, 0] += call > 1  # preparing looks at the first call
        return out

    prep = prepared(workload(), a=each_call(overwriting), b=honest)
    assert reasons(prep, ["a", "b"]) == {"a": "the step overwrote the input 'w', which is not in mutates", "b": None}


def test_a_frozen_input_that_is_overwritten_while_it_is_timed_alone_is_told_and_restored(prepared: Prepares) -> None:
    prep = prepared(workload(), a=honest, b=honest)
    held = prep.inputs["w"].clone()
    prep.inputs["w"].zero_()  # what a step did that none of the proofs saw
    with pytest.raises(VariantError, match="a step, while timed, overwrote the input 'w', which is frozen"):
        prove(prep, ["a", "b"], "after timing")
    assert torch.equal(prep.inputs["w"], held)
    assert reasons(prep, ["a", "b"]) == {"a": None, "b": None}


def test_a_frozen_input_that_changes_while_the_reference_is_computed_is_no_variants_fault(prepared: Prepares) -> None:
    prep = prepared(workload(as_drawn=["w"], reference=lambda x, w: x @ w.zero_().double()), a=honest)
    with pytest.raises(VariantError, match="the reference, or a thread beside it, overwrote the input 'w'"):
        prove(prep, ["a"], BEFORE)


def raising_and_overwriting(call: int, x: Tensor, w: Tensor) -> Tensor:
    x.zero_()
    assert call == 1
    return x @ w


@pytest.mark.parametrize(
    "bad", [raising_and_overwriting, lambda call, x, w: (x @ w, x.zero_(), w.zero_())[0]], ids=["raising", "both"]
)
def test_a_variant_that_is_wrong_and_overwrites_an_input_harms_no_other(bad: Any, prepared: Prepares) -> None:
    assert reasons(prepared(workload(frozen=[]), a=each_call(bad), b=honest), ["a", "b"])["b"] is None


def test_a_thread_that_writes_after_the_step_has_returned_is_caught(
    prepared: Prepares, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    waited: list[float] = []

    def late(x: Tensor, w: Tensor) -> Step:
        out = torch.empty(9, 9)

        def step() -> Tensor:
            torch.matmul(x, w, out=out)
            threads.append(threading.Thread(target=lambda: out.add_(1.0)))
            return out

        return step

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if threads[-1].ident is None:
            threads[-1].start()
            threads[-1].join()

    prep = prepared(workload(), a=late, b=honest)
    monkeypatch.setattr(proof, "time", SimpleNamespace(sleep=sleep))
    assert reasons(prep, ["a", "b"]) == {
        "a": "the output was still being written after the step had returned",
        "b": None,
    }
    assert len(waited) == 2
    assert all(0.0 < seconds <= proof.STALE_WRITE_S for seconds in waited), "what comparing has taken counts"
    prove(prep, ["a", "b"], "while timing")
    assert len(waited) == 2, "nobody waits while timing"


@pytest.mark.parametrize(("scales", "accepted"), [((5, 5.01, 5, 7), []), ((5, 5.01), ["stale output"])])
def test_answers_that_are_alike_in_one_draw_of_several_accuse_no_tolerance(
    scales: tuple[float, ...], accepted: list[str], prepared: Prepares
) -> None:
    drawn, x = cycle(scales), torch.linspace(-1, 1, 81).view(9, 9)
    problem = workload(inputs=lambda draw, n: {"x": next(drawn) * x, "w": torch.eye(n)}, tolerance=0.02)
    prep = prepared(problem, a=honest)
    prep.dtypes[:] = [torch.float32]
    assert toothless(prep) == accepted


def test_an_output_without_elements_can_be_right(prepared: Prepares) -> None:
    problem = workload(reference=lambda x, w: x[:0])
    assert reasons(prepared(problem, a=lambda x, w: lambda: x[:0].clone())) == {"a": None}


@pytest.mark.parametrize(("enough_s", "trials"), [(None, 3), (60.0, 3), (0.0, 1)])
def test_no_trial_is_begun_after_enough_time_but_one_is_always(
    prepared: Prepares, enough_s: float | None, trials: int
) -> None:
    proofs = prove(prepared(workload(), a=honest, b=honest), ["a", "b"], BEFORE, 3, enough_s=enough_s)
    assert [len(proofs[name]) for name in "ab"] == [trials, trials]
