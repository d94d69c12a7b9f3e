"""What only a GPU can show: the clocks read known times, escaped work is caught, memory and its lack are seen."""

import re
import subprocess
from pathlib import Path
from statistics import median

import pytest
import torch
from small_tree import ROOT, Tree
from test_cheats import PROBLEMS, REFUSED
from torch import Tensor

from common.python.base.machine import machine
from common.python.base.results import PairResult
from common.python.base.toolkit import find_nvcc, nvcc_version
from common.python.profile.profiled_why import why
from common.python.proof.preparation import Prepared
from common.python.run.options import Options
from common.python.run.suite import open_suite
from common.python.timing.clock import Clock
from common.python.timing.telemetry import Monitor
from common.python.workload import Draw
from tools.selftest.tree import lay_cheats

MIB = 2**20
HUGE = """
    def prepare(a):
        held = torch.empty({gib} << 30, dtype=torch.uint8, device=a.device)

        def step():
            held[:1].zero_()
            return a * 2

        return step
"""


def run(root: Path, key: str, folder: Path, **options: int) -> PairResult:
    asked = Options([key], root=root, artifacts_dir=folder, seed=0, **options)  # type: ignore[arg-type]
    [result] = open_suite(asked, lambda phase, result: None).run().pairs
    return result


def test_host_inputs_are_pageable_memory_of_the_host_and_follow_the_seed(tmp_path: Path) -> None:
    def drawn(seed: int) -> torch.Tensor:
        return Draw(torch.device("cuda"), seed, tmp_path).host.normal(1000, 7)

    first = drawn(3)
    assert (first.device.type, first.is_pinned(), first.shape) == ("cpu", False, (1000, 7))
    assert torch.equal(first, drawn(3))
    assert not torch.equal(first, drawn(4))
    assert first.std() == pytest.approx(1.0, abs=0.05)


def asleep(clock: Clock, cycles: int) -> float:
    """What a kernel reads that waits for so many cycles of its multiprocessor, in microseconds."""

    def step() -> torch.Tensor:
        torch.cuda._sleep(cycles)
        return torch.empty(0)

    return median(clock.device(step, 1, delay_us=100).device_us() or 0 for _ in range(30))


@pytest.mark.parametrize("cycles", [60_000, 600_000, 6_000_000])
def test_a_kernel_of_known_length_reads_its_length_whatever_the_host_does(cycles: int) -> None:
    """By the GPU's clock as NVML tells it, and beyond what a kernel reads that has nothing to wait for."""
    clock = Clock(torch.device("cuda"))
    asleep(clock, 20_000_000)  # so that its clock has risen
    monitor = Monitor.open(str(torch.cuda.get_device_properties(0).uuid))
    assert monitor is not None
    reading, mhz = asleep(clock, cycles) - asleep(clock, 0), monitor.read(set()).sm_mhz
    assert mhz is not None
    assert reading == pytest.approx(cycles / mhz, rel=0.01)


def test_an_empty_step_reads_a_floor_of_a_few_microseconds() -> None:
    clock = Clock(torch.device("cuda"))
    readings = [clock.device(lambda: (), 1, delay_us=100).device_us() or 0 for _ in range(30)]
    assert 0 < median(readings) < 5


def test_a_delay_too_short_for_the_host_is_noticed() -> None:
    clock = Clock(torch.device("cuda"))
    x = torch.zeros(1, device="cuda")

    def step() -> torch.Tensor:
        for _ in range(200):
            x.add_(1)
        return x

    step()
    assert clock.device(step, 1, delay_us=1).late
    assert not clock.device(step, 1, delay_us=20_000).late


@pytest.mark.parametrize("name", REFUSED)
def test_every_cheat_is_refused_on_the_gpu_and_its_honest_twin_accepted(name: str, tmp_path: Path) -> None:
    lay_cheats(tmp_path / "cheats", PROBLEMS)
    result = run(tmp_path / "cheats", f"ch01:{name}", tmp_path, iterations=2, warmup=1)
    rows = {row.label: row for row in result.variants}
    cheat = rows["optimized"]
    assert cheat.status == "failed" or cheat.verdict == "invalid", f"not caught: {cheat}"
    assert cheat.reason
    if name != "loose_tolerance":  # a workload that is itself in error
        assert rows["honest"].status == "measured", rows["honest"].reason
        assert rows["honest"].verdict != "invalid", rows["honest"].reason


def test_variants_too_large_for_one_memory_run_in_turn(tmp_path: Path) -> None:
    gib = int(0.6 * torch.cuda.get_device_properties(0).total_memory / 2**30)
    Tree(tmp_path).pair("ch01:huge", HUGE.format(gib=gib), optimized=HUGE.format(gib=gib))
    result = run(tmp_path, "ch01:huge", tmp_path / "artifacts", iterations=6, warmup=1)
    assert result.status == "measured", result.reason
    assert any(re.search("do not fit in memory together", note) for note in result.notes)
    assert result.variants[1].why is not None
    assert result.variants[1].why.peak_bytes == pytest.approx(gib << 30, rel=0.01)


def test_a_step_whose_tensors_grow_reserves_more_than_it_uses(tmp_path: Path) -> None:
    """As the allocator counts it: what it gave out, or, in a process of its own, what it reserved."""

    def step() -> Tensor:
        for size in (30, 40, 50):  # each is freed before the next, which does not fit where it was
            torch.empty(size * MIB, dtype=torch.uint8, device="cuda")
        return torch.empty((), device="cuda")

    torch.cuda.empty_cache()
    peaks = []
    for isolated in (False, True):
        told = why(
            [Prepared("growing", step, {}, 0.0, 0.0)],
            torch.device("cuda"),
            tmp_path / "trace.json",
            print,
            isolated=isolated,
        )
        peaks.append((told["growing"].peak_bytes or 0.0) / MIB)
    assert 50 <= peaks[0] < 52
    assert 120 <= peaks[1] < 124


@pytest.mark.skipif(find_nvcc() is None or (nvcc_version() or "") < "13", reason="needs nvcc 13")
def test_the_probe_is_right_or_says_that_this_gpu_has_no_tcgen05(tmp_path: Path) -> None:
    sm = machine().gpus[0].sm
    target = "103a" if sm == 103 else "100a"
    probe, source = str(tmp_path / "probe"), str(ROOT / "tools/tcgen05_probe.cu")
    nvcc = [str(find_nvcc()), f"-arch=compute_{target}", f"-code=sm_{target}", "-o", probe, source]
    subprocess.run(nvcc, check=True)
    done = subprocess.run([probe], capture_output=True, text=True, check=False, timeout=60)
    if sm in (100, 103):
        assert (done.returncode, "0 of 8192 elements differ" in done.stdout) == (0, True), done.stdout
    else:
        assert done.returncode == 2
        assert f"is sm_{sm}, which has no tcgen05: it is for sm_100 and sm_103" in done.stdout
