"""Each way to look right without doing the work is seen, on the closures that will be timed."""

import itertools
import math
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from small_workload import Prepares, honest, preparer, workload
from torch import Tensor

from common.python.base.results import AFTER, BEFORE, WHILE
from common.python.proof import trials as proof
from common.python.proof.preparation import Preparation, VariantError
from common.python.proof.trials import prove, toothless
from common.python.workload import Output, Prepare, Step


def fail(error: Exception) -> Any:
    raise error


@pytest.fixture
def prepared(tmp_path: Path) -> Prepares:
    return preparer(tmp_path)


def reasons(prep: Preparation, names: list[str] | None = None, trials: int = 1) -> dict[str, str | None]:
    proofs = prove(prep, names or list(prep.variants), BEFORE, trials)
    return {name: found[-1].reason for name, found in proofs.items()}


def test_an_honest_variant_is_proven_in_every_trial_with_its_error(prepared: Prepares) -> None:
    proofs = prove(prepared(workload(), a=honest), ["a"], BEFORE, trials=3)["a"]
    assert [(proof.size, proof.when, proof.reason) for proof in proofs] == [("test", BEFORE, None)] * 3
    assert all(0 < (proof.error or 0) < 1e-6 for proof in proofs)


@pytest.mark.parametrize(
    ("enough_s", "trials"), [(None, 3), (7.0, 3), (4.0, 2), (0.0, 1)], ids=["no limit", "long", "two", "one"]
)
def test_once_enough_time_has_gone_no_trial_is_begun_but_one_there_is_always(
    prepared: Prepares, monkeypatch: pytest.MonkeyPatch, enough_s: float | None, trials: int
) -> None:
    """On a clock on which each trial of both takes three seconds, and looking at it a nanosecond."""
    seconds, looks = [0], itertools.count()
    prep = prepared(workload(), a=honest, b=honest)
    monkeypatch.setattr(proof, "now_s", lambda: seconds[0] + 1e-9 * next(looks))

    def call(step: Step) -> Output:
        seconds[0] += 3 if step is prep.variants["b"].step else 0
        return step()

    proofs = prove(prep, ["a", "b"], BEFORE, 3, call, enough_s=enough_s)
    assert [len(proofs[name]) for name in "ab"] == [trials, trials]


def test_a_variant_that_fails_is_not_tried_again(prepared: Prepares) -> None:
    prep = prepared(workload(), a=honest, b=lambda x, w: lambda: x + w)
    proofs = prove(prep, ["a", "b"], BEFORE, trials=3)
    assert [len(proofs[name]) for name in "ab"] == [3, 1]
    assert "relative error" in (proofs["b"][0].reason or "")


def test_what_is_computed_early_is_wrong(prepared: Prepares) -> None:
    def early(x: Tensor, w: Tensor) -> Step:
        out = x @ w
        return lambda: out

    def cached(x: Tensor, w: Tensor) -> Step:
        kept: list[Tensor] = []

        def step() -> Tensor:
            if not kept:
                kept.append(x @ w)
            return kept[0].clone()

        return step

    def digested(x: Tensor, w: Tensor) -> Step:
        transposed = w.T.contiguous()
        return lambda: x @ transposed.T

    found = reasons(prepared(workload(), early=early, cached=cached, digested=digested))
    assert found["digested"] is None
    assert "relative error" in (found["early"] or "")
    assert "relative error" in (found["cached"] or "")


def test_what_a_step_leaves_unwritten_is_poison_from_the_second_proof_on(prepared: Prepares) -> None:
    def lazy(x: Tensor, w: Tensor) -> Step:
        out, calls = torch.zeros(9, 9), []

        def step() -> Tensor:
            calls.append(1)
            return torch.matmul(x, w, out=out) if len(calls) < 4 else out

        return step

    proofs = prove(prepared(workload(), a=lazy), ["a"], BEFORE, trials=3)["a"]
    assert [proof.reason for proof in proofs] == [None, "NaN or infinity where the reference is finite, or the reverse"]
    assert proofs[1].error is None


def overwriting(x: Tensor, w: Tensor) -> Step:
    def step() -> Tensor:
        out = x @ w
        x.zero_()
        return out

    return step


def test_an_overwritten_input_is_seen_and_restored_for_the_other_variants(prepared: Prepares) -> None:
    prep = prepared(workload(), a=overwriting, b=honest)
    assert reasons(prep, ["a", "b"]) == {"a": "the step overwrote the input 'x', which is not in mutates", "b": None}


def test_a_later_step_that_overwrites_a_frozen_input_is_seen(prepared: Prepares) -> None:
    def step_on(x: Tensor, w: Tensor) -> Step:
        calls: list[int] = []

        def step() -> Tensor:
            out = x @ w
            calls.append(1)
            w[0, 0] += len(calls) > 1  # the first call is made while preparing, and looked at there
            return out

        return step

    prep = prepared(workload(), a=step_on, b=honest)
    assert reasons(prep, ["a", "b"]) == {"a": "the step overwrote the input 'w', which is not in mutates", "b": None}


def test_a_frozen_input_that_is_overwritten_while_it_is_timed_alone_is_told_and_restored(prepared: Prepares) -> None:
    prep = prepared(workload(), a=honest, b=honest)
    held = prep.inputs["w"].clone()
    prep.inputs["w"].zero_()  # what a step did that none of the proofs saw
    with pytest.raises(VariantError, match="a step, while timed, overwrote the input 'w', which is frozen"):
        prove(prep, ["a", "b"], "after timing")
    assert torch.equal(prep.inputs["w"], held)
    assert reasons(prep, ["a", "b"]) == {"a": None, "b": None}


def wrong_and_overwriting(x: Tensor, w: Tensor) -> Step:
    return lambda: x.zero_() @ w


def raising_and_overwriting(x: Tensor, w: Tensor) -> Step:
    calls: list[int] = []

    def step() -> Tensor:
        x.zero_()
        calls.append(1)
        return x @ w if len(calls) == 1 else fail(ValueError())

    return step


def overwriting_both(x: Tensor, w: Tensor) -> Step:
    def step() -> Tensor:
        out = x @ w
        x.zero_()
        w.zero_()
        return out

    return step


def returning_its_input(x: Tensor, w: Tensor) -> Step:
    return lambda: x.copy_(x @ w)


@pytest.mark.parametrize("bad", [wrong_and_overwriting, raising_and_overwriting, overwriting_both, returning_its_input])
def test_a_variant_that_is_wrong_and_overwrites_an_input_harms_no_other(bad: Prepare, prepared: Prepares) -> None:
    assert reasons(prepared(workload(frozen=[]), a=bad, b=honest), ["a", "b"])["b"] is None


def test_an_output_that_shares_memory_with_an_input_is_refused(prepared: Prepares) -> None:
    problem = workload(reference=lambda x, w: x[1:].T)
    prep = prepared(problem, view=lambda x, w: lambda: x[1:].T, copy=lambda x, w: lambda: x[1:].T.contiguous())
    assert reasons(prep, ["view", "copy"]) == {
        "view": "the output shares memory with the input 'x'",
        "copy": None,
    }


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


@pytest.mark.parametrize(("comparing_s", "waits_s"), [(0.0, 0.01), (0.004, 0.006), (0.02, 0.0)])
def test_a_late_write_has_its_time_from_the_moment_at_which_the_step_returned(
    comparing_s: float, waits_s: float, prepared: Prepares, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, waited, compares = [0], list[float](), proof.compare

    def slow(*given: Any) -> Any:
        now[0] += round(comparing_s * 1e9)
        return compares(*given)

    prep = prepared(workload(), a=honest)
    monkeypatch.setattr(proof, "now_s", lambda: now[0] / 1e9)
    monkeypatch.setattr(proof, "compare", slow)
    monkeypatch.setattr(proof, "time", SimpleNamespace(sleep=waited.append))
    assert reasons(prep) == {"a": None}
    assert waited == [pytest.approx(waits_s)]


def test_what_is_not_a_tensor_in_memory_is_refused(prepared: Prepares) -> None:
    assert reasons(prepared(workload(), a=lambda x, w: lambda: None)) == {
        "a": "output is a NoneType, not a tensor or a tuple of tensors"
    }


def test_the_dtypes_of_the_first_right_answer_are_everybodys(prepared: Prepares) -> None:
    prep = prepared(workload(), a=honest, b=lambda x, w: lambda: x.double() @ w.double())
    assert reasons(prep, ["a", "b"]) == {"a": None, "b": "dtype float64, should be float32"}
    assert prep.dtypes == [torch.float32]


def test_a_wrong_answer_sets_no_dtypes(prepared: Prepares) -> None:
    prep = prepared(workload(), a=lambda x, w: lambda: (x + w).half())
    reasons(prep)
    assert prep.dtypes == []


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("first line\nsecond line"), "ValueError at test_proof.py:N: first line"),
        (AssertionError(), "AssertionError at test_proof.py:N: no message"),
        (torch.OutOfMemoryError("too much"), "OutOfMemoryError at test_proof.py:N: too much"),
    ],
)
def test_an_error_in_a_step_is_the_reason_of_the_proof(error: Exception, message: str, prepared: Prepares) -> None:
    calls: list[int] = []

    def failing(x: Tensor, w: Tensor) -> Step:
        def step() -> Tensor:
            calls.append(1)
            return x @ w if len(calls) < 2 else fail(error)

        return step

    line = fail.__code__.co_firstlineno + 1
    assert reasons(prepared(workload(), a=failing)) == {"a": message.replace("N", str(line))}


def test_the_teeth_are_tried_on_the_workloads_own_answers(prepared: Prepares) -> None:
    sound, loose = prepared(workload(), a=honest), prepared(workload(tolerance=0.5), a=honest)
    reasons(sound)
    reasons(loose)
    assert toothless(sound) == []
    assert "5% scale" in toothless(loose)


def test_a_workload_whose_answer_ignores_its_inputs_accepts_a_stale_output(prepared: Prepares) -> None:
    problem = workload(reference=lambda x, w: 100 + x, tolerance=0.04)
    prep = prepared(problem, a=lambda x, w: lambda: 100 + x)
    reasons(prep)
    assert "stale output" in toothless(prep)


def test_a_proof_goes_through_the_call_that_is_given(prepared: Prepares) -> None:
    called: list[Step] = []

    def call(step: Step) -> Output:
        called.append(step)
        return step()

    prep = prepared(workload(), a=honest)
    proofs = prove(prep, ["a"], "while timing", call=call)["a"]
    assert called == [prep.variants["a"].step]
    assert (proofs[0].when, proofs[0].reason) == ("while timing", None)


@pytest.mark.parametrize(("when", "calls"), [(BEFORE, 2), (AFTER, 2), (WHILE, 1)])
def test_what_is_proven_while_it_is_timed_is_called_once_and_else_twice(
    prepared: Prepares, when: str, calls: int
) -> None:
    called = list[int]()

    def counting(x: Tensor, w: Tensor) -> Step:
        def step() -> Tensor:
            called.append(1)
            return x @ w

        return step

    prep = prepared(workload(), a=counting)
    called.clear()
    assert prove(prep, ["a"], when)["a"][0].reason is None
    assert len(called) == calls


def test_a_proof_tells_how_long_a_call_takes_without_what_goes_around_it(
    prepared: Prepares, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The least of the second calls, which nothing but the work before them can hold up."""
    now, calls = [100.0], iter(list[float]())

    def passing(x: Tensor, w: Tensor) -> Step:
        def step() -> Tensor:
            now[0] += next(calls, 9.0)
            return x @ w

        return step

    prep = prepared(workload(), a=passing, b=honest)
    compares, poisons = proof.compare, proof.poison

    def slow(works: Any) -> Any:
        def work(*given: Any) -> Any:
            now[0] += 5.0
            return works(*given)

        return work

    monkeypatch.setattr(proof, "now_s", lambda: now[0])
    monkeypatch.setattr(proof, "compare", slow(compares))
    monkeypatch.setattr(proof, "poison", slow(poisons))
    assert prep.variants["a"].called_s == math.inf
    calls = iter([9.0, 0.5, 9.0, 0.3, 9.0, 0.4])
    prove(prep, ["a"], AFTER, trials=3)
    assert prep.variants["a"].called_s == pytest.approx(0.3)
    assert prep.variants["b"].called_s == math.inf, "it was not proven"


def remembering(x: Tensor, w: Tensor) -> Step:
    """Skips the work where the inputs are those of the call before."""
    kept: list[Tensor] = []
    out = torch.empty(9, 9)

    def step() -> Tensor:
        if not kept or not torch.equal(kept[-1], x):
            kept.append(x.clone())
            torch.matmul(x, w, out=out)
        return out

    return step


def test_a_step_that_skips_the_work_on_inputs_it_has_seen_is_caught(prepared: Prepares) -> None:
    reason = reasons(prepared(workload(), a=remembering))["a"] or ""
    assert reason == (
        "a second call on the same inputs did not do the work again: "
        "NaN or infinity where the reference is finite, or the reverse"
    )


def test_a_step_may_write_and_return_what_is_its_own(prepared: Prepares) -> None:
    problem = workload(
        inputs=lambda draw, n: {"token": draw.normal(n), "cache": draw.normal(n, n)},
        reference=lambda token, cache: cache + token,
        frozen=[],
        mutates=["cache"],
    )
    prep = prepared(problem, a=lambda token, cache: lambda: cache.add_(token))
    assert reasons(prep, trials=3) == {"a": None}


def test_several_outputs_are_proven_together(prepared: Prepares) -> None:
    problem = workload(reference=lambda x, w: (x @ w, x.argmax(1), x > 0), tolerance=1e-5)
    right = prepared(problem, a=lambda x, w: lambda: (x @ w, x.argmax(1), x > 0))
    wrong = prepared(problem, a=lambda x, w: lambda: (x @ w, x.argmax(1), x <= 0))
    assert reasons(right, trials=3) == {"a": None}
    assert (reasons(wrong)["a"] or "").startswith("output 2: ")


def test_right_answers_are_not_left_in_freed_memory(prepared: Prepares, monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[Tensor] = []
    same = proof._same

    def kept(a: list[Tensor], b: list[Tensor]) -> bool:
        copies.extend([*a, *b])
        return same(a, b)

    monkeypatch.setattr(proof, "_same", kept)
    prove(prepared(workload(), a=honest), ["a"], BEFORE)
    second, first = copies[:2]
    assert second is not first
    assert second.isnan().all()
    assert first.isnan().all()


def test_an_output_without_elements_can_be_right(prepared: Prepares) -> None:
    problem = workload(reference=lambda x, w: x[:0])
    assert reasons(prepared(problem, a=lambda x, w: lambda: x[:0].clone())) == {"a": None}


def test_whoever_is_at_work_is_said_before_the_work(prepared: Prepares) -> None:
    said: list[tuple[str, str]] = []
    prove(prepared(workload(), a=honest, b=honest), ["a", "b"], BEFORE, at=lambda *work: said.append(work))
    assert said == [("workload", "reference"), ("a", "proof before timing"), ("b", "proof before timing")]
