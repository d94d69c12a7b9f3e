"""Bandwidth of host memory over all cores, and of the disk under the scratch folder with the page cache bypassed."""

import errno
import fcntl
import mmap
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from common.python.base.machine import host_memory, usable_cores
from common.python.peaks.sampling import Series, Way, summarise
from common.python.peaks.store import Peak

MIB = 2**20
CACHES = 4  # a buffer is this many times the last caches
SMALLEST, LARGEST = 128 * MIB, 1024 * MIB
PATTERN_BYTES = 8 * MIB  # repeated through a buffer: drawing all of it would take longer than measuring

CHUNK, BATCH = MIB, 32  # bytes of a request; requests in a sample
REQUESTS = 8  # at work at a time
DISK_BYTES = 512 * MIB
DISK_S = 1.0
FEWEST_BATCHES = 6  # of which a median has an interval
DEVICE_SHARE = 0.95  # of what was moved should be seen by the kernel on its way to or from a device


def cache_bytes(root: Path = Path("/")) -> int:
    """Bytes of the last level of cache, over all of this machine's; 0 where the kernel does not say."""
    found: dict[tuple[int, str], int] = {}
    for index in root.glob("sys/devices/system/cpu/cpu[0-9]*/cache/index[0-9]*"):
        files = [index / name for name in ("level", "shared_cpu_list", "size")]
        if all(file.is_file() for file in files):
            level, shared, size = (file.read_text().strip() for file in files)
            found[int(level), shared] = int(size.removesuffix("K")) * 1024
    last = max((level for level, _ in found), default=0)
    return sum(size for (level, _), size in found.items() if level == last)


def buffer_bytes() -> int:
    wanted = min(max(CACHES * cache_bytes(), SMALLEST), LARGEST)
    return max(min(wanted, host_memory() // 16) // PATTERN_BYTES, 1) * PATTERN_BYTES


def host_ways(name: str, nbytes: int) -> Iterator[Way]:
    """Ways to read, copy or combine buffers of `nbytes`; a copy counts its bytes twice, a triad three times."""
    count = {"host_read": 1, "host_copy": 2, "host_triad": 3}[name]
    x, y, out = (noise(nbytes) if index < count else torch.empty(0) for index in range(3))
    threads = f"{torch.get_num_threads()} threads"
    if name == "host_read":
        yield Way(f"torch.sum, {threads}", nbytes, lambda: lambda: torch.sum(x))
    elif name == "host_triad":
        way = f"torch.add, out = x + 3 y, {threads}"
        yield Way(way, 3 * nbytes, lambda: lambda: torch.add(x, y, alpha=3.0, out=out))
    else:
        yield Way(f"torch copy_, {threads}", 2 * nbytes, lambda: lambda: y.copy_(x))
        yield Way(f"memcpy, {usable_cores()} threads", 2 * nbytes, lambda: parallel_copy(y, x))


def noise(nbytes: int) -> Tensor:
    """Floats that are not alike, first written by all threads, so that each finds its share on its own NUMA node."""
    pattern = torch.randn(min(PATTERN_BYTES, nbytes) // 4)
    buffer = torch.empty(nbytes // 4)
    buffer.view(-1, len(pattern)).copy_(pattern)
    return buffer


def parallel_copy(target: Tensor, source: Tensor) -> Callable[[], None]:
    """A step that copies with one memcpy a core, which, unlike a loop, need not read what it is about to overwrite."""
    cores = usable_cores()
    pool = ThreadPoolExecutor(cores)
    shares = list(zip(np.array_split(target.numpy(), cores), np.array_split(source.numpy(), cores)))

    def step() -> None:
        list(pool.map(lambda share: np.copyto(*share), shares))

    return step


@dataclass(frozen=True)
class DiskFile:
    """An open file that is moved in chunks of aligned memory, past the page cache where its filesystem allows that."""

    descriptor: int
    direct: bool
    pool: ThreadPoolExecutor
    buffers: Sequence[mmap.mmap]

    def batch(self, index: int, write: bool) -> None:
        """Write or read batch `index`: BATCH chunks, REQUESTS of them at a time."""
        start = index * BATCH * CHUNK
        move = os.pwritev if write else os.preadv
        done = list(self.pool.map(lambda i: move(self.descriptor, [self.buffers[i]], start + i * CHUNK), range(BATCH)))
        if sum(done) != BATCH * CHUNK:
            raise OSError(errno.EIO, f"moved {sum(done)} of {BATCH * CHUNK} bytes")
        if write and not self.direct:
            os.fdatasync(self.descriptor)

    def evict(self, index: int) -> None:
        """Drop a batch from the page cache; there is nothing of it in there if the file is direct."""
        if not self.direct:
            os.posix_fadvise(self.descriptor, index * BATCH * CHUNK, BATCH * CHUNK, os.POSIX_FADV_DONTNEED)


def disk_peak(name: str, scratch: Path, total: int = DISK_BYTES, seconds: float = DISK_S, direct: bool = True) -> Peak:
    """The rate of `disk_write` or `disk_read` in the folder `scratch`, of up to `total` bytes.

    Raises OSError where the folder cannot be written or is full.
    """
    with tempfile.NamedTemporaryFile(dir=scratch, prefix="peak-") as file, ThreadPoolExecutor(REQUESTS) as pool:
        file.truncate(total)
        descriptor, is_direct = open_past_cache(file.name, direct)
        try:
            disk = DiskFile(descriptor, is_direct, pool, [_noisy_page() for _ in range(BATCH)])
            moved_before = device_bytes()
            wrote = _batches(disk, range(total // (BATCH * CHUNK)), seconds, write=True)
            if name == "disk_read":
                moved_before = device_bytes()
                times = _batches(disk, range(len(wrote)), seconds, write=False)
            else:
                times = wrote
            os.fsync(descriptor)
            share = _device_share(moved_before, device_bytes(), len(times) * BATCH * CHUNK, name)
        finally:
            os.close(descriptor)
    method = f"{BATCH} requests of 1 MiB, {REQUESTS} at a time, " + (
        "O_DIRECT" if is_direct else "page cache dropped by fadvise before each sample: O_DIRECT is refused here"
    )
    if share is not None and share < DEVICE_SHARE:
        method += f"; the kernel saw {share:.0%} of it reach a device, so memory or a cache answered"
    # Every batch counts: there is no power cap to wait for, and slow disks give few.
    return summarise(name, "B/s", BATCH * CHUNK, Series(times), method, unsteady=0.0)


def open_past_cache(path: str, direct: bool = True) -> tuple[int, bool]:
    """A descriptor for reading and writing, and whether it bypasses the page cache.

    Some filesystems refuse O_DIRECT when a file is opened, and some only when it is written.
    """
    descriptor = os.open(path, os.O_RDWR)
    if direct:
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETFL, os.O_DIRECT)
            os.pwritev(descriptor, [_noisy_page()], 0)
        except OSError as error:
            if error.errno != errno.EINVAL:
                os.close(descriptor)
                raise
            fcntl.fcntl(descriptor, fcntl.F_SETFL, 0)
            direct = False
    return descriptor, direct


def _noisy_page() -> mmap.mmap:
    """A chunk of memory on a page of its own, as O_DIRECT wants it, with bytes that no drive can compress."""
    page = mmap.mmap(-1, CHUNK)
    page.write(os.urandom(CHUNK))
    return page


def _batches(disk: DiskFile, indices: range, seconds: float, write: bool) -> list[float]:
    """Seconds of each batch, until the time or the file is used up, but of at least FEWEST_BATCHES."""
    times: list[float] = []
    for index in indices:
        if not write:
            disk.evict(index)
        started = time.perf_counter()
        disk.batch(index, write)
        times.append(time.perf_counter() - started)
        if len(times) >= FEWEST_BATCHES and sum(times) >= seconds:
            break
    return times


def device_bytes() -> dict[str, int] | None:
    """What the kernel counts of this process's traffic with storage, page cache apart; None where it does not tell."""
    counters = Path("/proc/self/io")
    if not counters.exists():
        return None
    lines = (line.split(": ") for line in counters.read_text().splitlines())
    return {name: int(count) for name, count in lines}


def _device_share(before: dict[str, int] | None, after: dict[str, int] | None, moved: int, name: str) -> float | None:
    counter = "read_bytes" if name == "disk_read" else "write_bytes"
    return None if before is None or after is None else (after[counter] - before[counter]) / moved
