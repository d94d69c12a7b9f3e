"""Host memory and disk are measured for real here, at sizes that take milliseconds."""

import errno
import fcntl
import mmap
import os
from pathlib import Path

import pytest

from common.python.peaks import host as peaks_host
from common.python.peaks.host import (
    MIB,
    device_bytes,
    disk_peak,
    host_ways,
    open_past_cache,
)
from common.python.peaks.sampling import best_way, host_timer

IO = Path("/proc/self/io")
SMALL = 192 * MIB  # six samples of the disk


@pytest.mark.parametrize("name", ["host_read", "host_copy", "host_triad"])
def test_host_memory_is_measured_and_the_rate_is_one_that_memory_has(name: str) -> None:
    found = best_way(name, "B/s", host_ways(name, 16 * MIB), host_timer(), 0.02)
    assert found.value is not None
    assert 0.2e9 < found.value < 5e12  # from a busy embedded board to a cache
    assert (found.low or 0) <= found.value <= (found.high or 0) <= (found.fastest or 0)
    assert "threads" in found.method


def test_what_is_counted_is_what_is_moved() -> None:
    work = {name: {way.work for way in host_ways(name, 8 * MIB)} for name in ("host_read", "host_copy", "host_triad")}
    assert work == {"host_read": {8 * MIB}, "host_copy": {16 * MIB}, "host_triad": {24 * MIB}}


@pytest.mark.parametrize(
    ("cache", "memory_gib", "buffer"), [(100, 64, 400), (0, 64, 128), (800, 64, 1024), (100, 1, 64), (100, 0.01, 8)]
)
def test_a_buffer_is_four_times_the_caches_within_what_memory_allows(
    cache: int, memory_gib: float, buffer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peaks_host, "cache_bytes", lambda: cache * MIB)
    monkeypatch.setattr(peaks_host, "host_memory", lambda: int(memory_gib * 1024 * MIB))
    assert peaks_host.buffer_bytes() == buffer * MIB


def cache(root: Path, cpu: int, index: int, level: int, shared: str, size: str) -> None:
    folder = root / f"sys/devices/system/cpu/cpu{cpu}/cache/index{index}"
    folder.mkdir(parents=True)
    for name, text in (("level", str(level)), ("shared_cpu_list", shared), ("size", size)):
        (folder / name).write_text(text + "\n")


def direct(descriptor: int) -> bool:
    return bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT)


@pytest.fixture
def refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Filesystems that take O_DIRECT when it is set and refuse it when a file is written."""
    write = os.pwritev

    def pwritev(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        if direct(descriptor):
            raise OSError(errno.EINVAL, "Invalid argument")
        return write(descriptor, buffers, offset)

    monkeypatch.setattr(os, "pwritev", pwritev)


def test_files_are_opened_past_the_page_cache_where_that_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    descriptor, past = open_past_cache(str(path))
    assert past == direct(descriptor)
    os.close(descriptor)
    descriptor, past = open_past_cache(str(path), direct=False)
    assert (past, direct(descriptor)) == (False, False)
    os.close(descriptor)


def test_a_filesystem_that_refuses_direct_writes_is_noticed_and_said(refuses: None, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    descriptor, past = open_past_cache(str(path))
    assert (past, direct(descriptor)) == (False, False)
    os.close(descriptor)
    assert "O_DIRECT is refused here" in disk_peak("disk_write", tmp_path, SMALL, 0.01).method


def can_tell(folder: Path) -> bool:
    """Whether this kernel counts what is written past the page cache here: not in memory that poses as a disk."""
    path = folder / "probe"
    path.touch()
    if not IO.exists():
        return False
    before = IO.read_text()
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_DIRECT)
        os.pwritev(descriptor, [mmap.mmap(-1, MIB)], 0)
        os.close(descriptor)
    except OSError:
        return False
    finally:
        path.unlink()
    return written(IO.read_text()) - written(before) == MIB


def written(counters: str) -> int:
    return int(next(line for line in counters.splitlines() if line.startswith("write_bytes")).split()[1])


@pytest.mark.parametrize(("name", "counter"), [("disk_write", "write_bytes"), ("disk_read", "read_bytes")])
def test_the_disk_is_measured_and_the_kernel_saw_every_byte_reach_a_device(
    name: str, counter: str, tmp_path: Path
) -> None:
    before = device_bytes()
    found = disk_peak(name, tmp_path, SMALL, 0.01)
    after = device_bytes()
    assert found.value is not None
    assert 1e6 < found.value < 1e12
    assert found.samples == 6
    assert [file.name for file in tmp_path.iterdir()] == []
    if before is None or after is None or not can_tell(tmp_path):
        pytest.skip("this kernel or filesystem does not let the claim be checked")
    assert after[counter] - before[counter] >= SMALL
    assert "O_DIRECT" in found.method
    assert "so memory or a cache answered" not in found.method


def test_a_folder_that_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        disk_peak("disk_write", tmp_path / "nowhere", SMALL, 0.01)
