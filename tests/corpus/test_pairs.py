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
import torch
from changed import PAIRS, PROVEN
from torch.utils._pytree import tree_leaves, tree_map

from common.python.base.results import Cost
from common.python.corpus.discovery import Pair, find_pairs
from common.python.workload import AnyOrder, Draw, Workload
from tools.testing.sanitize import kernels

ROOT = Path(__file__).resolve().parents[2]
CPU = torch.device("cpu")
BYTES = ("hbm", "pcie_bytes", "nvlink_bytes", "disk_bytes", "host_bytes")
RESOURCES = (*BYTES, "flops", "items", "launches")
# Doubling these makes the problem smaller.
FEWER = {("ch18:flex_document_mask", "documents"): "a token attends to a shorter document"}
# These need more bytes than their inputs and outputs hold.
AGAIN = {
    "ch08:unpack_3bit": "the reference's small integers are bytes here, and what is written is bf16",
    "ch01:goodput_loop": "what has crossed PCIe is written to memory and read again, for each of eight steps",
    "ch12:train_step_capture": "the optimizer reads what the backward pass has written",
    "ch15:beam_kv_reorder": "each step reads the cache",
    "ch15:continuous_batching": "each generated token reads the weights",
    "ch15:kv_cache": "each generated token reads the weights",
    "ch15:paged_kv": "each generated token reads the cache",
    "ch16:async_scheduling": "each generated token reads the weights",
    "ch16:chunked_prefill": "each step reads the weights",
    "ch20:serve_trace": "each pass reads the weights",
    "ch16:speculative_decoding": "each verification reads the weights",
}
each_pair = pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.key)


@pytest.fixture(scope="module")
def swept() -> list[str]:
    """What `verify` says of them, teeth included."""
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
def test_a_pair_with_another_file_is_not_the_one_that_passed(
    other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chapter, includes = tmp_path / "ch07", {"optimized_a.cu": '#include "near.cuh"', "near.cuh": '#include "deep.cuh"'}
    chapter.mkdir()
    for name, text in ({"baseline_a.py": "", "optimized_a.py": "", "deep.cuh": ""} | includes).items():
        (chapter / name).write_text(text)
    monkeypatch.setattr(changed, "HEADERS", [*chapter.glob("*.cuh")])
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
def test_twice_the_size_costs_no_less_and_at_most_eight_times_as_much(pair: Pair) -> None:
    workload = workload_of(pair)
    size = dict(workload.sizes["test"])
    once = needed(workload, size)
    for name, figure in size.items():
        if not isinstance(figure, int):
            continue
        twice = needed(workload, size | {name: 2 * figure})
        lowered = {resource for resource in RESOURCES if twice[resource] < once[resource]}
        assert bool(lowered) == ((pair.key, name) in FEWER), (name, lowered)
        assert {resource for resource in RESOURCES if twice[resource] > 8 * once[resource]} == set(), name


def held(value: Any) -> int:
    """Bytes of all tensors and files in it."""
    if isinstance(value, Path):
        return value.stat().st_size
    return sum(held(leaf) if isinstance(leaf, Path) else leaf.nbytes for leaf in tree_leaves(value) if sized(leaf))


def sized(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor | Path)


def widened(leaf: Any) -> Any:
    return leaf.double() if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf


def narrowed(leaf: Any) -> Any:
    leaf = leaf.rows if isinstance(leaf, AnyOrder) else leaf
    return leaf.float() if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf


@each_pair
def test_it_needs_no_more_bytes_than_its_inputs_and_outputs_hold(pair: Pair, tmp_path: Path) -> None:
    """A lower bound on traffic that is above them is none. The reference's float64 counts as float32."""
    workload = workload_of(pair)
    size = dict(workload.sizes["test"])
    ranks = range(workload.gpus)
    drawn = [workload.inputs(Draw(CPU, 1, tmp_path, rank, len(ranks)), **size) for rank in ranks]
    given = [{n: v if n in workload.as_drawn else tree_map(widened, v) for n, v in one.items()} for one in drawn]
    inputs = held(drawn[0])
    if len(ranks) == 1:
        answer = workload.reference(**given[0])
    else:
        answer = workload.reference(0, **{name: [one[name] for one in given] for name in given[0]})
    outputs = held(tree_map(narrowed, answer))
    needs = needed(workload, size)
    above = {resource: needs[resource] / (inputs + outputs) for resource in BYTES}
    assert (max(above.values()) > 1) == (pair.key in AGAIN), above


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
    written = {pair.key for path, pair in files.items() if path.exists() and kernels(path.read_text())}
    assert {key for key in written if f'    "{key}": ' not in table} == set()
