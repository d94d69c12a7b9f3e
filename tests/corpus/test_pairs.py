"""What holds for every pair, whatever it is about: its proof, its cost, its sizes.

A test of one pair stands elsewhere in this folder, and only where the proof cannot see the fault.
"""

import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import changed
import pytest
from changed import PAIRS, PROVEN, ROOT

from common.python.base.results import Cost
from common.python.corpus.discovery import Pair, find_pairs
from common.python.workload import Workload

RESOURCES = ("hbm", "pcie_bytes", "nvlink_bytes", "disk_bytes", "host_bytes", "flops", "items", "launches")
# Doubling these makes the problem smaller.
FEWER = {("ch18:flex_document_mask", "documents"): "a token attends to a shorter document"}
each_pair = pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.key)


@pytest.fixture(scope="module")
def swept() -> list[str]:
    """What `verify` says of them, of their costs and teeth too."""
    command = [sys.executable, "-m", "tools.cli.benchmark_cli", "verify", "--no-build", *(pair.key for pair in PROVEN)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout.splitlines()


def told_of(pair: Pair, said: str) -> bool:
    return re.match(rf"{pair.chapter}/[a-z]+_{pair.name}(__\w+)?\.(py|cu):", said) is not None


@pytest.mark.parametrize("pair", PROVEN, ids=lambda pair: pair.key)
def test_it_is_proven_at_test_size(pair: Pair, swept: list[str]) -> None:
    assert [line for line in swept if told_of(pair, line)] == []


def test_nothing_else_is_wrong_with_the_tree(swept: list[str]) -> None:
    found = [line for line in swept if re.match(r"[\w/]+\.\w+:\d+: ", line)]
    assert [line for line in found if not any(told_of(pair, line) for pair in PAIRS)] == []


@pytest.mark.parametrize("other", ["baseline_a.py", "optimized_a.cu", "peer_a__new.py", "near.cuh", "deep.cuh"])
def test_a_pair_with_another_file_is_not_the_one_that_passed(other: str, tmp_path: Path) -> None:
    chapter, includes = tmp_path / "ch07", {"optimized_a.cu": '#include "near.cuh"', "near.cuh": '#include "deep.cuh"'}
    chapter.mkdir()
    for name, text in ({"baseline_a.py": "", "optimized_a.py": "", "deep.cuh": ""} | includes).items():
        (chapter / name).write_text(text)
    before = [changed.digest(pair) for pair in find_pairs(tmp_path)]
    with (chapter / other).open("a") as file:
        file.write("\n")
    assert [changed.digest(pair) for pair in find_pairs(tmp_path)] != before


def workload_of(pair: Pair) -> Workload:
    found: Workload = importlib.import_module(f"{pair.chapter}.baseline_{pair.name}").workload
    return found


def needed(workload: Workload, size: dict[str, Any]) -> dict[str, float]:
    """By resource, over all phases of the cost."""
    cost: Any = workload.cost(**size)
    phases: list[Cost] = [cost] if isinstance(cost, Cost) else list(cost)
    return {resource: sum(getattr(phase, resource) for phase in phases) for resource in RESOURCES}


@each_pair
def test_twice_the_size_costs_no_less(pair: Pair) -> None:
    workload = workload_of(pair)
    size = dict(workload.sizes["test"])
    once = needed(workload, size)
    for name, figure in size.items():
        if not isinstance(figure, int):
            continue
        twice = needed(workload, size | {name: 2 * figure})
        lowered = {resource for resource in RESOURCES if twice[resource] < once[resource]}
        assert bool(lowered) == ((pair.key, name) in FEWER), (name, lowered)


@each_pair
def test_each_size_can_be_drawn_apart_from_the_others(pair: Pair) -> None:
    """All sizes name the same parameters, and the timed one is the larger problem."""
    sizes = workload_of(pair).sizes
    assert len({tuple(size) for size in sizes.values()}) == 1
    large, small = (needed(workload_of(pair), dict(sizes[name])) for name in ("bench", "test"))
    assert max(large[resource] - small[resource] for resource in RESOURCES) > 0


def test_every_pair_with_a_hand_written_kernel_has_odd_sizes() -> None:
    table = (ROOT / "tests" / "gpu" / "test_odd_sizes.py").read_text()
    files = {v.path.with_suffix(".cu"): pair for pair in PAIRS for v in pair.variants}
    written = {pair.key for path, pair in files.items() if path.exists() and "__global__" in path.read_text()}
    assert {key for key in written if f'    "{key}": ' not in table} == set()
