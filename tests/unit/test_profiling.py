"""One profile serves all variants, and each is told its own part of it."""

import json
from pathlib import Path

import pytest
import torch

from common.python.profile.profiled_why import GRAPH_GAP, _read, why
from common.python.proof.preparation import Prepared
from common.python.proof.ranks import Ranks
from common.python.workload import Step

CPU = torch.device("cpu")


def prepared(name: str, step: Step) -> Prepared:
    return Prepared(name, step, {}, 0.0, 0.0)


def test_each_variant_is_told_its_own_operators_and_whoever_is_at_work_is_said(tmp_path: Path) -> None:
    x = torch.ones(64, 64)
    said: list[tuple[str, str]] = []
    variants = [prepared("baseline_x", lambda: x.exp().sin()), prepared("optimized_x", lambda: x.cos())]
    found = why(variants, CPU, tmp_path / "folder" / "t.json", lambda who, what: said.append((who, what)))
    assert list(found) == ["baseline_x", "optimized_x"]
    assert (found["baseline_x"].operators, set(found["baseline_x"].top)) == (2, {"aten::exp", "aten::sin"})
    assert (found["optimized_x"].operators, found["optimized_x"].top) == (1, ["aten::cos"])
    assert said == [("baseline_x", "profile"), ("optimized_x", "profile")]
    assert json.loads((tmp_path / "folder" / "t.json").read_text())["traceEvents"]


def event(name: str, category: str, ts: float, dur: float, **args: int) -> dict[str, object]:
    return {"name": name, "cat": category, "ph": "X", "ts": ts, "dur": dur, "args": args}


def test_kernels_belong_to_the_step_that_was_waited_for_and_overlap_counts_once() -> None:
    events = [
        event("step and its work of a", "user_annotation", 100, 200),
        event("step of a", "user_annotation", 100, 20),
        event("cudaStreamSynchronize", "cuda_runtime", 110, 5),
        event("cudaDeviceSynchronize", "cuda_runtime", 121, 178),  # the harness's own
        event("add", "kernel", 150, 40, stream=7),
        event("add", "kernel", 170, 40, stream=8),
        event("Memcpy HtoD", "gpu_memcpy", 200, 30, bytes=4096, stream=8),
        event("step and its work of b", "user_annotation", 400, 100),
        event("step of b", "user_annotation", 400, 10),
        event("mul", "kernel", 450, 7),
    ]
    a, b = (_read(events, name, torch.device("cuda")) for name in ("a", "b"))
    assert (a.kernels, a.syncs, a.copied_bytes, a.busy_us) == (2, 1, 4096.0, pytest.approx(80.0))
    assert (a.stream_us, b.stream_us) == (pytest.approx(60.0), pytest.approx(7.0))
    assert a.top == ["add", "Memcpy HtoD"]
    assert (b.kernels, b.syncs, b.copied_bytes, b.busy_us) == (1, 0, 0.0, pytest.approx(7.0))


def test_graph_node_gap_is_a_mean_over_launches_and_absent_without_a_graph() -> None:
    events = [
        event("step and its work of graphs", "user_annotation", 0, 200),
        event("step of graphs", "user_annotation", 0, 20),
        event("cudaGraphLaunch", "cuda_runtime", 1, 2, correlation=5),
        event("cudaLaunchKernel", "cuda_runtime", 4, 2, correlation=6),
        event("cudaGraphLaunch", "cuda_runtime", 7, 2, correlation=7),
        event("cudaGraphLaunch", "cuda_runtime", 10, 2, correlation=8),
        event("Memset", "gpu_memset", 30, 2, stream=7, correlation=5),
        event("mul", "kernel", 33, 10, stream=7, correlation=5),  # 1 us after the memset
        event("add", "kernel", 35, 4, stream=8, correlation=5),  # within mul: 0
        event("Memcpy DtoD", "gpu_memcpy", 46, 2, stream=7, correlation=5),  # 3 us after mul
        event("eager", "kernel", 60, 5, stream=7, correlation=6),
        event("mul", "kernel", 80, 10, stream=7, correlation=7),
        event("add", "kernel", 96, 4, stream=7, correlation=7),  # 6 us after mul
        event("alone", "kernel", 120, 4, stream=7, correlation=8),
        event("step and its work of plain", "user_annotation", 300, 100),
        event("step of plain", "user_annotation", 300, 20),
        event("cudaLaunchKernel", "cuda_runtime", 301, 2, correlation=9),
        event("cudaGraphLaunch", "cuda_runtime", 304, 2, correlation=10),
        event("mul", "kernel", 330, 5, stream=7, correlation=9),
        event("alone", "kernel", 340, 5, stream=7, correlation=10),
    ]
    graphs, plain = (_read(events, name, torch.device("cuda")).metrics for name in ("graphs", "plain"))
    assert graphs == {GRAPH_GAP: pytest.approx((1 + 0 + 3 + 6) / 4)}
    assert plain == {}


def test_each_rank_reports_busy_time_and_exposed_communication() -> None:
    events = [
        event("step and its work of a", "user_annotation", 0, 100),
        event("step of a", "user_annotation", 0, 10),
        event("gemm", "kernel", 10, 20, stream=7),
        event("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "kernel", 20, 30, stream=8),  # from 30 to 50 beside nothing
        event("Memcpy PtoP (Device -> Device)", "gpu_memcpy", 60, 5, stream=9),
        event("wait_signal_kernel", "kernel", 70, 2, stream=7),
    ]
    told = [_read(events, "a", torch.device("cuda"), Ranks(rank, size)).metrics for rank, size in ((1, 2), (0, 1))]
    assert told == [{"rank 1 busy us": 47.0, "rank 1 exposed communication us": 27.0}, {}]
