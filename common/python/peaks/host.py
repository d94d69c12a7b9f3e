"""Bandwidth of host memory over all cores, and of the disk under the scratch folder with the page cache bypassed."""

import errno
import fcntl
import mmap
import os
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from common.python.base.machine import host_memory, usable_cores
from common.python.peaks.sampling import Step, Unavailable, Way
from common.python.requirements import reads_directly

MIB = 2**20
CACHES = 4  # a buffer is this many times the last caches
SMALLEST, LARGEST = 128 * MIB, 1024 * MIB
PATTERN_BYTES = 8 * MIB  # repeated through a buffer: drawing all of it would take longer than measuring

CHUNK, BATCH = MIB, 32  # bytes of a request; requests in a sample
REQUESTS = 8  # running at a time
BATCHES = 16  # in the file: 512 MiB
BUFFERS = {"host_read": 1, "host_copy": 2, "host_triad": 3}  # that each reads or writes


def cache_bytes() -> int:
    """Bytes of the last level of cache, over all of this machine's; 0 where the kernel does not say."""
    found = defaultdict[int, dict[str, int]](dict)  # by level and the cores that share it
    for index in Path("/sys/devices/system/cpu").glob("cpu[0-9]*/cache/index[0-9]*"):
        files = [index / name for name in ("level", "shared_cpu_list", "size")]
        if all(file.is_file() for file in files):
            level, shared, size = (file.read_text().strip() for file in files)
            found[int(level)][shared] = int(size.removesuffix("K")) * 1024
    return sum(found[max(found)].values()) if found else 0


def buffer_bytes() -> int:
    wanted = min(max(CACHES * cache_bytes(), SMALLEST), LARGEST)
    return max(min(wanted, host_memory() // 16) // PATTERN_BYTES, 1) * PATTERN_BYTES


def memory_ways(name: str) -> Iterator[Way]:
    """Ways to read, copy or combine buffers; a copy counts its bytes twice, a triad three times."""
    nbytes = buffer_bytes()
    x, y, out = (noise(nbytes) if index < BUFFERS[name] else torch.empty(0) for index in range(3))
    threads, work = f"{torch.get_num_threads()} threads", BUFFERS[name] * nbytes
    if name == "host_read":
        yield Way(f"torch.sum, {threads}", work, lambda: torch.sum(x))
    elif name == "host_triad":
        yield Way(f"torch.add, out = x + 3 y, {threads}", work, lambda: torch.add(x, y, alpha=3.0, out=out))
    else:
        yield Way(f"torch copy_, {threads}", work, lambda: y.copy_(x))
        yield Way(f"memcpy, {usable_cores()} threads", work, parallel_copy(y, x))


def noise(nbytes: int) -> Tensor:
    """Floats that are not alike, first written by all threads, so that each finds its share on its own NUMA node."""
    pattern = torch.randn(PATTERN_BYTES // 4)
    buffer = torch.empty(nbytes // 4)
    buffer.view(-1, len(pattern)).copy_(pattern)
    return buffer


def parallel_copy(target: Tensor, source: Tensor) -> Step:
    """A step that copies with one memcpy a core, which, unlike a loop, need not read what it is about to overwrite."""
    cores = usable_cores()
    pool = ThreadPoolExecutor(cores)
    targets, sources = (np.array_split(buffer.numpy(), cores) for buffer in (target, source))
    return lambda: list(pool.map(np.copyto, targets, sources))


def disk_write_ways() -> Iterator[Way]:
    disk = DiskFile()
    yield Way(disk.method, BATCH * CHUNK, lambda: disk.move(write=True))


def disk_read_ways() -> Iterator[Way]:
    disk = DiskFile()
    for _ in range(BATCHES):
        disk.move(write=True)
    yield Way(disk.method, BATCH * CHUNK, lambda: disk.move(write=False))


class DiskFile:
    """A file without a name in the scratch folder, moved in batches past the page cache."""

    method = f"{BATCH} requests of 1 MiB, {REQUESTS} at a time, O_DIRECT"

    def __init__(self) -> None:
        """Raises Unavailable where the folder is on no disk, OSError where it cannot be written or is full."""
        if not reads_directly(folder := Path(tempfile.gettempdir())):
            raise Unavailable(f"needs a scratch folder on a disk that takes O_DIRECT, {folder} is none: set TMPDIR")
        self.file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (it ends with this object)
        self.file.truncate(BATCHES * BATCH * CHUNK)
        fcntl.fcntl(self.file, fcntl.F_SETFL, os.O_DIRECT)
        memory = memoryview(mmap.mmap(-1, BATCH * CHUNK))  # at the start of a page, as O_DIRECT wants it
        memory[:] = os.urandom(BATCH * CHUNK)  # which no drive can compress
        self.pages = [memory[i * CHUNK :][:CHUNK] for i in range(BATCH)]
        self.pool, self.next = ThreadPoolExecutor(REQUESTS), 0

    def move(self, write: bool) -> None:
        """Write or read the next batch, REQUESTS chunks at a time; after the last comes the first again."""
        descriptor, start = self.file.fileno(), self.next * BATCH * CHUNK
        self.next = (self.next + 1) % BATCHES
        move = os.pwritev if write else os.preadv
        done = list(self.pool.map(lambda i: move(descriptor, [self.pages[i]], start + i * CHUNK), range(BATCH)))
        if sum(done) != BATCH * CHUNK:
            raise OSError(errno.EIO, f"moved {sum(done)} of {BATCH * CHUNK} bytes")
