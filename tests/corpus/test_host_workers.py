"""Chapter 3's settings, asked of the kernel: threads and cores of the worker processes, and pages of the table."""

import gc
import importlib
import json
import mmap
import multiprocessing
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from ch03.baseline_huge_page_gather import on_pages
from common.python.base.machine import usable_cores
from common.python.workload import Draw, Metered

MIB = 2**20
MODE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
PARALLEL = {"clips": 1, "frames": 64, "length": 1024, "bands": 3}  # work enough for every thread to be started


@pytest.fixture
def no_worker_stays() -> Iterator[None]:
    yield
    for worker in multiprocessing.active_children():
        worker.kill()
        worker.join()


def prepared(name: str, scratch: Path) -> tuple[Metered, list[BaseProcess]]:
    """What a variant gives, its step called once, and its worker processes."""
    module = importlib.import_module(f"ch03.{name}")
    made: Metered = module.prepare(**module.workload.inputs(Draw(torch.device("cpu"), 1, scratch), **PARALLEL))
    made.step()
    return made, multiprocessing.active_children()


def threads(worker: BaseProcess) -> list[int]:
    return [int(entry.name) for entry in Path(f"/proc/{worker.pid}/task").iterdir()]


def tell_threads(names: list[str], scratch: Path) -> None:
    """Print how many threads the workers of each variant have, and torch here."""
    found = {}
    for name in names:
        made, workers = prepared(name, scratch)
        found[name] = [len(threads(worker)) for worker in workers]
        del made
        for worker in workers:
            worker.kill()
            worker.join()
    print(json.dumps([found, torch.get_num_threads()]))


def test_each_of_eight_workers_has_the_threads_that_its_file_says(tmp_path: Path) -> None:
    """Asked of a process of its own: what other tests have started or set here would be counted.

    torch's own number is no machine's share there, not even one core's, and few enough that MKL starts all of them.
    """
    share = max(usable_cores() // 8, 1)
    wanted: dict[str, int | None] = {
        "baseline_worker_thread_budget": None,
        "optimized_worker_thread_budget": 1,
        "optimized_worker_thread_budget__openmp_bind": share,
        "optimized_worker_thread_budget__share": share,
    }
    here = Path(__file__)
    code = f"from pathlib import Path; import {here.stem} as t; t.tell_threads({list(wanted)}, Path({str(tmp_path)!r}))"
    settings = {"PYTHONPATH": f"{here.parent}:{here.parents[2]}", "OMP_NUM_THREADS": "11", "MKL_DYNAMIC": "FALSE"}
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | settings)
    assert told.returncode == 0, told.stderr
    found, own = json.loads(told.stdout.splitlines()[-1])
    for name, each in wanted.items():  # the first thread waits for the others
        assert found[name] == 8 * [1 + (own if each is None else each)], name


@pytest.mark.usefixtures("no_worker_stays")
def test_bound_workers_keep_to_their_own_cores(tmp_path: Path) -> None:
    made, workers = prepared("optimized_worker_thread_budget", tmp_path)
    here = os.sched_getaffinity(0)
    share = max(usable_cores() // 8, 1)
    places = []
    for worker in sorted(workers, key=lambda each: each.pid or 0):
        masks = {frozenset(os.sched_getaffinity(thread)) for thread in threads(worker) if thread != worker.pid}
        assert len(masks) == 1
        places.append(masks.pop())
    assert all(len(place) == share and place <= here for place in places)
    assert set().union(*places[: len(here) // share]) == here or len(here) > 8 * share
    del made


@pytest.mark.usefixtures("no_worker_stays")
def test_a_dead_worker_ends_the_step_with_an_error_and_none_outlives_the_step(tmp_path: Path) -> None:
    made, workers = prepared("baseline_worker_thread_budget", tmp_path)
    os.kill(workers[3].pid or 0, signal.SIGKILL)
    workers[3].join()
    with pytest.raises((EOFError, OSError)):
        made.step()
    del made
    gc.collect()
    for worker in workers:
        worker.join(5.0)
    assert [worker.exitcode is not None for worker in workers] == 8 * [True]


def huge_bytes(address: int) -> int:
    """Of the mapping that holds this address, what the kernel keeps in huge pages."""
    for mapping in re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text()):
        first, last = (int(bound, 16) for bound in mapping.split(" ")[0].split("-"))
        if first <= address < last:
            return int(re.findall(r"AnonHugePages:\s+(\d+) kB", mapping)[0]) * 1024
    raise AssertionError(f"no mapping holds {address:#x}")


@pytest.mark.skipif("[never]" in MODE.read_text(), reason="this kernel gives no huge pages")
def test_the_table_is_copied_to_the_pages_that_are_asked_for() -> None:
    table = torch.arange(16 * MIB, dtype=torch.float32).view(-1, 64)
    copies = {advice: on_pages(table, advice) for advice in (mmap.MADV_HUGEPAGE, mmap.MADV_NOHUGEPAGE)}
    assert all(torch.equal(copy, table) for copy in copies.values())
    huge = {advice: huge_bytes(copy.data_ptr() + copy.nbytes // 2) for advice, copy in copies.items()}
    assert huge[mmap.MADV_HUGEPAGE] >= table.nbytes - 2 * 2 * MIB
    assert huge[mmap.MADV_NOHUGEPAGE] == 0


@pytest.mark.parametrize("length", [3, 7, 7 * 16, 1000])
def test_a_slot_of_the_staging_ring_is_filled_again_only_when_its_copy_is_over(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module("ch03.optimized_staging_threads")
    told: list[list[str]] = []

    class Noting:
        def __init__(self) -> None:
            self.calls: list[str] = []
            told.append(self.calls)

        def record(self) -> None:
            self.calls.append("sent")

        def synchronize(self) -> None:
            self.calls.append("awaited")

    monkeypatch.setattr(module, "CHUNK", 7)
    monkeypatch.setattr(torch, "get_device_module", lambda device: SimpleNamespace(Event=Noting))
    host, device = torch.arange(float(length)), torch.zeros(length)
    step = module.prepare(host, device)
    assert torch.equal(step(), host)
    step()
    chunks = -(-length // 7)
    assert [len(calls) for calls in told] == [4 * len(range(slot, chunks, 16)) for slot in range(16)]
    assert all(calls == ["awaited", "sent"] * (len(calls) // 2) for calls in told)
