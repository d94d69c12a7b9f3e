"""Chapter 12's graphs do what the launches did that they replace: as many kernels, and a loop that is decided anew."""

import importlib
from pathlib import Path

import pytest
import torch
from torch import Tensor

from common.python.base.results import Why
from common.python.cuda import load_cuda
from common.python.profile.profiled_why import GRAPH_GAP, why
from common.python.proof.preparation import Prepared, clone, overwrite
from common.python.workload import Draw, Inputs, Workload

NO_PEAKS = "nothing is held against peaks here, so none are measured"
ROOT = Path(__file__).resolve().parents[2]
HOST = str(ROOT / "ch12" / "baseline_sinkhorn_while_node.py")
GRAPH = str(ROOT / "ch12" / "optimized_sinkhorn_while_node__each_iteration.py")


def workload_of(pair: str) -> Workload:
    workload: Workload = importlib.import_module(f"ch12.baseline_{pair}").workload
    return workload


def drawn(workload: Workload, seed: int, folder: Path) -> Inputs:
    return workload.inputs(Draw(torch.device("cuda"), seed, folder), **workload.sizes["test"])


def profiled(pair: str, capture: str, folder: Path) -> list[Why]:
    """What a warm step of the baseline and of `capture` did, from one profile."""
    inputs, files = drawn(workload_of(pair), 0, folder), [f"baseline_{pair}", f"optimized_{capture}"]
    variants = []
    for file in files:
        step = importlib.import_module(f"ch12.{file}").prepare(**clone(inputs))
        step()
        variants.append(Prepared(file, step, inputs, 0.0, 0.0))
    found = why(variants, torch.device("cuda"), folder / "trace.json", lambda who, what: None)
    return [found[file] for file in files]


@pytest.mark.parametrize(("capture", "least"), [("train_step_capture", 50), ("cg_solver_graph__five_kernels", 1002)])
def test_a_replay_runs_as_many_kernels_as_the_eager_step(capture: str, least: int, tmp_path: Path) -> None:
    eager, replayed = profiled(capture.split("__")[0], capture, tmp_path)
    assert eager.kernels is not None
    assert eager.kernels >= least
    assert replayed.kernels == eager.kernels
    assert (GRAPH_GAP in eager.metrics, GRAPH_GAP in replayed.metrics) == (False, True)


def test_the_while_node_makes_the_iterations_of_the_host_loop_for_each_refill(tmp_path: Path) -> None:
    workload = workload_of("sinkhorn_while_node")
    module = importlib.import_module("ch12.baseline_sinkhorn_while_node")
    inputs = drawn(workload, 0, tmp_path)
    plan, by_host, scratch, progress = outputs(inputs["distances"])
    numbers = *inputs["distances"].shape, module.EPSILON, module.GAP
    executable = torch.empty(1, dtype=torch.int64, pin_memory=True)
    load_cuda(GRAPH, "record")(*inputs.values(), plan, *scratch, progress[:1], *numbers, executable)
    counts = []
    for seed in range(1, 5):
        overwrite(inputs, drawn(workload, seed, tmp_path), "all")
        load_cuda(GRAPH, "replay")(int(executable))
        in_graph, plan_of_graph = int(progress[0]), plan.clone()
        load_cuda(HOST, "balance")(*inputs.values(), by_host, *scratch, progress, *numbers)
        assert in_graph == int(progress[0])
        assert torch.equal(plan_of_graph, by_host)
        counts.append(in_graph)
    load_cuda(GRAPH, "discard")(int(executable))
    assert len(set(counts)) > 1, counts
    assert min(counts) >= module.FEWEST
    assert max(counts) < 1000, "at the bound: the masses never fitted"


def outputs(distances: Tensor) -> tuple[Tensor, Tensor, list[Tensor], Tensor]:
    """Two plans, the scratch that both loops take, and the two ints that they count in."""
    rows, columns = distances.shape
    scratch = [torch.empty_like(distances), torch.empty_like(distances)]
    scratch += [distances.new_empty(length) for length in (rows, columns, rows)]
    plans = torch.empty_like(distances), torch.empty_like(distances)
    return *plans, scratch, torch.zeros(2, dtype=torch.int32, device=distances.device)


def test_the_host_loop_launches_three_kernels_an_iteration_and_reads_each_back(tmp_path: Path) -> None:
    workload = workload_of("sinkhorn_while_node")
    inputs = drawn(workload, 0, tmp_path)
    plan, _, scratch, progress = outputs(inputs["distances"])
    module = importlib.import_module("ch12.baseline_sinkhorn_while_node")
    balance = load_cuda(HOST, "balance")

    def step() -> Tensor:
        balance(*inputs.values(), plan, *scratch, progress, *inputs["distances"].shape, module.EPSILON, module.GAP)
        return plan

    step()
    prepared = Prepared("baseline", step, inputs, 0.0, 0.0)
    found = why([prepared], torch.device("cuda"), tmp_path / "trace.json", lambda who, what: None)["baseline"]
    iterations = int(progress[0])
    assert found.kernels == 2 + 3 * iterations
    assert found.copied_bytes == 8 * iterations
