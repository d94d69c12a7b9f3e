"""What these pairs promise and a CPU can show: fresh files reach workers, none is left, reads pass the cache."""

import ctypes
import errno
import gc
import importlib
import mmap
import os
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

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


def drawn(workload: Workload, folder: Path, seed: int = 0, **size: Any) -> dict[str, Any]:
    return workload.inputs(Draw(CPU, seed, folder), **(size or workload.sizes["test"]))


def prepared(module: str) -> Prepare:
    found: Prepare = importlib.import_module(f"ch05.{module}").prepare
    return found


def test_workers_that_persist_read_the_files_anew_in_each_step(tmp_path: Path) -> None:
    inputs = drawn(dataloader_workers, tmp_path)
    step = with_workers(**inputs)
    for seed in (0, 1, 2):
        fresh = drawn(dataloader_workers, tmp_path, seed=seed)
        for name in ("table", "gains", "head"):
            inputs[name].copy_(fresh[name])
        torch.testing.assert_close(step(), dataloader_workers.reference(**inputs))


def test_the_workers_end_with_the_step_that_they_work_for(tmp_path: Path) -> None:
    before = children(os.getpid())
    step = with_workers(**drawn(dataloader_workers, tmp_path))
    step()
    assert len(children(os.getpid())) == len(before) + 4
    del step
    gc.collect()  # as the harness does between two rounds
    until = time.monotonic() + 5
    while children(os.getpid()) != before and time.monotonic() < until:
        time.sleep(0.01)
    assert children(os.getpid()) == before


def in_page_cache(path: Path) -> bool:
    """Whether the file's first page is; to be asked once, as an answer of no has the kernel fetch it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.preadv(descriptor, [bytearray(4096)], 0, os.RWF_NOWAIT) > 0
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        pytest.skip(f"{path.parent} has no disk behind it, or does not tell what is cached of it: {error}")
    finally:
        os.close(descriptor)


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
    assert in_page_cache(inputs["path"]) == cached
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
