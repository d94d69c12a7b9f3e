"""What these pairs promise and a CPU can show: no worker is left, and reads pass the cache."""

import ctypes
import gc
import importlib
import mmap
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_tree import until

from ch05.baseline_dataloader_workers import workload as dataloader_workers
from ch05.baseline_direct_read import open_direct
from ch05.baseline_direct_read import workload as direct_read
from ch05.baseline_weight_load import workload as weight_load
from ch05.optimized_dataloader_workers import prepare as with_workers
from common.python.base.reaper import children
from common.python.proof.preparation import Preparation
from common.python.workload import Draw, Prepare, Workload

CPU = torch.device("cpu")
READERS = ["baseline_direct_read", *(f"optimized_direct_read__{rung}" for rung in ("threads", "o_direct"))]
MAPPING = "peer_direct_read__mmap"


def drawn(workload: Workload, folder: Path, **size: Any) -> dict[str, Any]:
    return workload.inputs(Draw(CPU, 0, folder), **(size or workload.sizes["test"]))


def prepared(module: str) -> Prepare:
    found: Prepare = importlib.import_module(f"ch05.{module}").prepare
    return found


def test_the_workers_end_with_the_step_that_they_work_for(tmp_path: Path) -> None:
    before = children(os.getpid())
    step = with_workers(**drawn(dataloader_workers, tmp_path))
    step()
    assert len(children(os.getpid())) == len(before) + 4
    del step
    gc.collect()  # as the harness does between two rounds
    until(lambda: children(os.getpid()) == before, 5)


def cached_pages(path: Path) -> int:
    """How many of the file's pages are in the page cache, without fetching any."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        data, told = np.frombuffer(mapped, np.uint8), np.zeros(-(-len(mapped) // mmap.PAGESIZE), np.uint8)
        refused = ctypes.CDLL(None).mincore(
            ctypes.c_void_p(data.ctypes.data), ctypes.c_size_t(len(mapped)), ctypes.c_void_p(told.ctypes.data)
        )
        del data  # or the mapping could not be closed
    assert not refused
    return int((told & 1).sum())


def evict(inputs: dict[str, Any]) -> None:
    """Drop the file from the page cache with the harness's own function, if that drops the files of such inputs."""
    path = Path(inputs["path"])
    os.close(opened_or_skipped(path))
    preparation = Preparation(direct_read, {}, "test", CPU, path.parent, random.Random(0), everyone=[inputs])
    for _ in range(5):  # a page that the kernel is busy with is not dropped
        os.sync()
        preparation.evict_files()
        if not cached_pages(path):
            break


@pytest.mark.parametrize(("reader", "cached"), list(zip([*READERS, MAPPING], (True, True, False, True))))
def test_only_a_direct_read_leaves_the_page_cache_as_it_was(reader: str, cached: bool, tmp_path: Path) -> None:
    inputs = drawn(direct_read, tmp_path)
    step = prepared(reader)(**inputs)
    evict(inputs)
    out = step()
    assert (cached_pages(inputs["path"]) > 0) == cached
    assert torch.equal(out, direct_read.reference(**inputs))


@pytest.mark.parametrize(("workload", "evicted"), [(direct_read, True), (weight_load, False)])
def test_a_file_named_by_a_str_stays_in_the_page_cache(workload: Workload, evicted: bool, tmp_path: Path) -> None:
    inputs = drawn(workload, tmp_path)
    evict(inputs)
    assert (cached_pages(Path(inputs["path"])) == 0) == evicted


def opened_or_skipped(path: Path) -> int:
    try:
        return open_direct(path)
    except OSError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("missing", [1, 4099])
def test_a_file_that_is_too_short_is_an_error_and_no_old_bytes(reader: str, missing: int, tmp_path: Path) -> None:
    inputs = drawn(direct_read, tmp_path)
    os.close(opened_or_skipped(inputs["path"]))
    step = prepared(reader)(**inputs)
    step()
    os.truncate(inputs["path"], len(inputs["device"]) - missing)
    with pytest.raises(EOFError, match="expected"):
        step()


@pytest.mark.parametrize("reader", [*READERS, MAPPING])
@pytest.mark.parametrize("n", [1, 4096, (1 << 20) + 1])
def test_every_length_is_read_whole(reader: str, n: int, tmp_path: Path) -> None:
    inputs = drawn(direct_read, tmp_path, n=n)
    assert torch.equal(prepared(reader)(**inputs)(), direct_read.reference(**inputs))
