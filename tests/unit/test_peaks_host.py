"""Host memory and disk are measured for real here, at sizes that take milliseconds."""

import fcntl
import os
import tempfile
from pathlib import Path

import pytest

from common.python.peaks import host
from common.python.peaks.host import CHUNK, MIB, DiskFile, memory_ways
from common.python.peaks.sampling import Unavailable, best_way, host_timer
from common.python.requirements import reads_directly


@pytest.mark.parametrize("name", host.BUFFERS)
def test_host_memory_is_measured_at_a_rate_that_memory_has(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "buffer_bytes", lambda: 16 * MIB)
    found = best_way(name, "B/s", memory_ways(name), host_timer(), 0.02)
    assert 0.2e9 < found.value < 5e12  # from a busy embedded board to a cache
    assert (found.low or 0) <= found.value <= (found.high or 0) <= (found.fastest or 0)
    assert "threads" in found.method


@pytest.mark.parametrize(("memory_gib", "buffer"), [(64, 1024), (1, 64), (0.01, 8)])
def test_a_buffer_is_what_memory_allows(memory_gib: float, buffer: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "host_memory", lambda: int(memory_gib * 1024 * MIB))
    assert host.buffer_bytes() == buffer * MIB


@pytest.mark.skipif(not reads_directly(Path(tempfile.gettempdir())), reason="the scratch folder takes no O_DIRECT")
def test_what_is_written_to_the_disk_is_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "BATCHES", 2)
    disk = DiskFile()
    written = [bytes(page) for page in disk.pages]
    disk.move(write=True)
    disk.move(write=True)  # the file's end: the next batch is the first one again
    for page in disk.pages:
        page[:] = bytes(CHUNK)
    disk.move(write=False)
    assert [bytes(page) for page in disk.pages] == written
    assert fcntl.fcntl(disk.file, fcntl.F_GETFL) & os.O_DIRECT


def test_where_the_scratch_folder_is_on_no_disk_there_is_no_peak_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "reads_directly", lambda folder: False)
    with pytest.raises(Unavailable, match="is none: set TMPDIR"):
        DiskFile()
