"""Host memory and disk are measured for real here, at sizes that take milliseconds."""

import errno
import fcntl
import os

import pytest

from common.python.peaks import host
from common.python.peaks.host import CHUNK, MIB, DiskFile, memory_ways
from common.python.peaks.sampling import best_way, host_timer


@pytest.mark.parametrize("name", host.BUFFERS)
def test_host_memory_is_measured_and_the_rate_is_one_that_memory_has(name: str) -> None:
    found = best_way(name, "B/s", memory_ways(name, 16 * MIB), host_timer(), 0.02)
    assert found.value is not None
    assert 0.2e9 < found.value < 5e12  # from a busy embedded board to a cache
    assert (found.low or 0) <= found.value <= (found.high or 0) <= (found.fastest or 0)
    assert "threads" in found.method


@pytest.mark.parametrize(
    ("cache", "memory_gib", "buffer"), [(100, 64, 400), (0, 64, 128), (800, 64, 1024), (100, 1, 64), (100, 0.01, 8)]
)
def test_a_buffer_is_four_times_the_caches_within_what_memory_allows(
    cache: int, memory_gib: float, buffer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "cache_bytes", lambda: cache * MIB)
    monkeypatch.setattr(host, "host_memory", lambda: int(memory_gib * 1024 * MIB))
    assert host.buffer_bytes() == buffer * MIB


@pytest.mark.parametrize("direct", [True, False])
def test_what_is_written_to_the_disk_is_read_back(direct: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "BATCHES", 2)
    disk = DiskFile(direct)
    written = [bytes(page) for page in disk.pages]
    disk.move(write=True)
    disk.move(write=True)  # the file's end: the next batch is the first one again
    for page in disk.pages:
        page[:] = bytes(CHUNK)
    disk.move(write=False)
    assert [bytes(page) for page in disk.pages] == written
    assert disk.direct == bool(fcntl.fcntl(disk.file, fcntl.F_GETFL) & os.O_DIRECT)
    assert ("O_DIRECT is refused" in disk.method) != disk.direct


def test_a_filesystem_that_refuses_direct_writes_is_noticed_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.pwritev

    def pwritev(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return write(descriptor, buffers, offset)

    monkeypatch.setattr(os, "pwritev", pwritev)
    disk = DiskFile()
    assert (disk.direct, "O_DIRECT is refused here" in disk.method) == (False, True)
    disk.move(write=True)
