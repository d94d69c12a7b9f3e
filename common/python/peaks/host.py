"""Host memory over all cores, the disk under the scratch folder past the page cache, and what lies between host and
GPU: PCIe, launches, and the dispatch of torch.compile.
"""

import errno
import fcntl
import mmap
import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from common.python.base.machine import host_memory, usable_cores
from common.python.peaks.sampling import Series, Step, Timer, Unavailable, Way, summarise
from common.python.peaks.store import Peak
from common.python.requirements import reads_directly

MIB = 2**20
BUFFER_BYTES = 1024 * MIB  # well past the last caches of any host, where its memory allows
PATTERN_BYTES = 8 * MIB  # repeated through a buffer: drawing all of it would take longer than measuring
BUFFERS = {"host_read": 1, "host_copy": 2, "host_triad": 3}  # that each reads or writes

CHUNK, BATCH = MIB, 32  # bytes of a request; requests in a sample
REQUESTS = 8  # running at a time
BATCHES = 16  # in the file: 512 MiB

PCIE_BYTES = 256 * MIB
CALLS = 1000  # in a sample of launches, and nodes in a graph
COMPILED_SAMPLES = 24


def buffer_bytes() -> int:
    return max(min(BUFFER_BYTES, host_memory() // 16) // PATTERN_BYTES, 1) * PATTERN_BYTES


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


def disk_ways(write: bool) -> Iterator[Way]:
    disk = DiskFile()
    for _ in range(0 if write else BATCHES):  # what is read must have been written
        disk.move(write=True)
    yield Way(disk.method, BATCH * CHUNK, lambda: disk.move(write))


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


def pcie_buffers(pinned: bool) -> tuple[Tensor, Tensor]:
    """The same random bytes in host memory and on the GPU, where drawing them is quick: a CPU takes a second."""
    device = torch.randint(0, 256, (PCIE_BYTES,), dtype=torch.uint8, device="cuda")
    return torch.empty(PCIE_BYTES, dtype=torch.uint8, pin_memory=pinned).copy_(device), device


def pcie_ways(to_gpu: bool, pinned: bool) -> Iterator[Way]:
    host, device = pcie_buffers(pinned)
    kind = "page-locked" if pinned else "pageable"
    source, target = (host, device) if to_gpu else (device, host)
    method = f"copy_ of 256 MiB, {kind} host memory"
    yield Way(method, PCIE_BYTES, lambda: target.copy_(source, non_blocking=pinned))


def pcie_both_ways() -> Iterator[Way]:
    (source_up, target_up), (target_down, source_down) = pcie_buffers(True), pcie_buffers(True)
    up, down = torch.cuda.Stream(), torch.cuda.Stream()

    def step() -> None:
        current = torch.cuda.current_stream()
        for stream, target, source in ((up, target_up, source_up), (down, target_down, source_down)):
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                target.copy_(source, non_blocking=True)
        current.wait_stream(up)
        current.wait_stream(down)

    yield Way("copy_ of 256 MiB each way on two streams, both counted", 2 * PCIE_BYTES, step)


def repeated(call: Step) -> Step:
    def step() -> None:
        for _ in range(CALLS):
            call()

    return step


def launch_ways() -> Iterator[Way]:
    add = partial(torch.zeros(1, device="cuda").add_, 1.0)
    yield Way(f"{CALLS} one-element add_ on end, until the GPU is done", CALLS, repeated(add))


def graph_ways() -> Iterator[Way]:
    step = repeated(partial(torch.zeros(1, device="cuda").add_, 1.0))
    step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    yield Way(f"a chain of {CALLS} one-element add_ in one CUDA graph", CALLS, graph.replay)


def compile_peak(name: str, timer: Timer) -> Peak:
    """What a call of a compiled function costs beyond the same call uncompiled: guards and dispatch."""

    def plain(x: Tensor) -> Tensor:
        return x + 1.0

    x = torch.zeros(1, device="cuda")
    compiled = torch.compile(plain, backend="eager")  # which runs the very same operator
    steps = [repeated(partial(call, x)) for call in (compiled, plain)]
    differences, states = [], []
    for _ in range(COMPILED_SAMPLES):  # in turns, so that a drift of the host's clock is in both
        ours, theirs = (timer(step, 0.0, 1) for step in steps)
        differences.append(ours.times[0] - theirs.times[0])
        states += theirs.states
    if min(differences) <= 0:
        raise Unavailable("calls vary by more than compilation adds to them")
    method = f"{CALLS} calls of a compiled one-operator function (backend eager) less those of the function itself"
    return summarise(name, "s", CALLS, Series(differences, states), method)
