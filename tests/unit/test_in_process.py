"""`compare` proves and times two functions in this process as a worker would, and leaves the process as it was."""

import gc
import json
import math
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import benchmark_harness
from benchmark_harness import Compared, Cost, compare
from benchmark_harness.in_process import TOO_LARGE, UNGUARDED
from common.python.stats import timing_sanity

DOCS = Path(__file__).resolve().parents[2] / "docs"
PROBLEM: dict[str, Any] = {
    "inputs": lambda draw: {"a": draw.normal(4096)},
    "reference": lambda a: a * 2,
    "tolerance": 1e-6,
    "budget_s": 0.1,
    "seed": 7,
}


def double(a: Tensor) -> Tensor:
    """Doubles."""
    return a * 2


def compared(optimized: Any, **changed: Any) -> Compared:
    return compare(double, optimized, **PROBLEM | changed)


def test_both_are_proven_and_sampled_in_turns_with_a_control() -> None:
    before = ([*sys.path], {*sys.modules})
    found = compared(lambda a: a + a, name="sum of two", cost=Cost(host_bytes=8 * 4096))
    result = found.result
    assert (result.key, result.status, result.size) == ("python:sum_of_two", "measured", "bench")
    assert [row.sentence for row in result.variants] == ["Doubles.", "<lambda>"]
    for row in result.variants:
        assert {(proof.size, proof.reason) for proof in row.proofs} == {("test", None), ("bench", None)}
    frame = found.frame()
    assert [*frame] == ["round", "block", "variant", "us", "steps", "fresh", "discarded"]
    assert {*frame["variant"]} == {"baseline", "optimized", "control"}
    assert len(frame) == sum(len(block.samples) for block in result.blocks)
    for shown in (repr(found), found._repr_html_()):
        assert UNGUARDED[:60] in re.sub(r"<[^>]+>", "", shown)
        assert "python:sum_of_two" in shown
    assert found.verdict in ("faster", "same", "slower", "inconclusive", "too noisy")
    assert [*sys.path] == before[0]
    assert not any(name.startswith("python.") for name in {*sys.modules} - before[1])
    assert gc.get_freeze_count() == 0


def raises(a: Tensor) -> Tensor:
    raise RuntimeError("no luck")


def kept(a: Tensor, answers: list[Tensor] = []) -> Tensor:  # noqa: B006 (what it is about)
    answers.append(a * 2)
    return answers[0]


@pytest.mark.parametrize(
    ("optimized", "verdict", "reason"),
    [
        (lambda a: a * 2.01, "invalid", "wrong at test size"),
        (kept, "invalid", "wrong at test size"),
        (raises, "failed", "RuntimeError at test_in_process.py:"),
        (lambda a: sys.exit(3), "failed", "SystemExit"),
    ],
)
def test_what_a_function_does_wrong_is_in_the_result_and_has_no_speedup(
    optimized: Any, verdict: str, reason: str
) -> None:
    found = compared(optimized)
    assert (found.verdict, found.speedup) == (verdict, None)
    assert reason in repr(found)


def test_functions_that_do_not_fit_together_are_told_what_would_hold_them() -> None:
    def large(a: Tensor) -> Tensor:
        if len(a) > 64:
            raise torch.OutOfMemoryError("out of memory")
        return a * 2

    sizes = {"bench": {"n": 4096}, "test": {"n": 64}}
    found = compared(large, inputs=lambda draw, n: {"a": draw.normal(n)}, sizes=sizes)
    assert (found.verdict, found.result.reason) == ("failed", f"workload: {TOO_LARGE}")


def test_what_cannot_be_compared_is_refused_in_one_line() -> None:
    with pytest.raises(TypeError, match=r"inputs must be a function, .* draw: \{...\}; it is dict"):
        compared(double, inputs={"a": torch.ones(3)})
    with pytest.raises(TypeError, match=r"^optimized must be a function; it is int$"):
        compared(3)
    with pytest.raises(TypeError, match=r"^cost must be Cost\(...\) or a function .*; it is int$"):
        compared(double, cost=8)
    with pytest.raises(ValueError, match=r"^Workload.sizes has no 'bench'"):
        compared(double, sizes={"large": {}})
    assert "workload: inputs must return a dict of tensors by name, not a tuple" in str(
        compared(double, inputs=lambda draw: (draw.normal(3),))
    )
    with pytest.raises(ValueError, match=r"^tolerance: Input should be less than 1$"):
        compared(double, tolerance=2.0)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        benchmark_harness.nothing  # noqa: B018


def test_the_notebook_runs_and_shows_the_code_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cells = json.loads((DOCS / "own_code.ipynb").read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    (page,) = re.findall(r"```python\n(.*?)```", (DOCS / "own_code.md").read_text(), re.DOTALL)
    assert "\n\n\n".join(code[:2]) == page.strip().removesuffix("print(result)") + "result"
    names: dict[str, Any] = {}
    monkeypatch.setattr(timing_sanity, "SLOWER", math.inf)  # no trials, which take seconds
    for cell in code:
        exec(cell.replace("n = 1 << 22", "n = 1 << 12"), names)
    assert names["n"] == 1 << 12
    assert names["result"].result.status == "measured"
    assert names["wrong"].verdict == "invalid"
