"""What a worker's bench does between rounds."""

import sys
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from common.python.bench import Bench

PAIR = '''"""A doubling whose step holds its input in a cycle, as compiled modules do."""

import weakref

from common.python.workload import Cost, Workload

made = []
workload = Workload(
    inputs=lambda draw, n: {"a": draw.normal(n)},
    reference=lambda a: a * 2,
    cost=lambda n: Cost(hbm_bytes=8 * n),
    sizes={"test": {"n": 7}, "cpu": {"n": 33}, "bench": {"n": 65}},
    tolerance=1e-6,
)


def prepare(a):
    cycle = {"own": a.clone()}
    cycle["self"] = cycle
    made.append(weakref.ref(cycle["own"]))

    def step():
        return a + cycle["own"]

    cycle["step"] = step
    return step
'''


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    (tmp_path / "doubling").mkdir()
    (tmp_path / "doubling" / "baseline_doubling.py").write_text(PAIR)
    monkeypatch.setattr(sys, "path", list(sys.path))
    bench = Bench(tmp_path, tmp_path, {"seed": 3, "reproducible": False}, lambda who, what: None)
    bench.load("doubling.baseline_doubling", {"a": "doubling.baseline_doubling"}, "cpu")
    yield bench
    for name in [name for name in sys.modules if name.startswith("doubling")]:
        del sys.modules[name]


def living() -> list[torch.Tensor]:
    made: list[weakref.ref[torch.Tensor]] = sys.modules["doubling.baseline_doubling"].made
    return [tensor for each in made if (tensor := each()) is not None]


def test_what_a_round_held_is_given_back_before_the_next_draws(bench: Bench) -> None:
    for size in ("test", "test", "cpu", "cpu", "cpu"):
        assert bench.prepare(["a"], size, [])["failures"] == {}
        assert len(living()) == 1, size
