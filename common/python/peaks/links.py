"""What lies between host and GPU: PCIe, launches, and the dispatch of torch.compile."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from common.python.peaks.sampling import Series, Step, Timer, Unavailable, Way, summarise
from common.python.peaks.store import Peak

PCIE_BYTES = 256 * 2**20
CALLS = 1000  # in a sample of launches, and nodes in a graph
COMPILED_SAMPLES = 24
WARM_CALLS = 20


def host_buffer(pinned: bool) -> Tensor:
    """Random bytes in host memory, drawn on the GPU because a CPU takes a second for them."""
    host = torch.empty(PCIE_BYTES, dtype=torch.uint8, pin_memory=pinned)
    return host.copy_(device_buffer())


def device_buffer() -> Tensor:
    return torch.randint(0, 256, (PCIE_BYTES,), dtype=torch.uint8, device="cuda")


def pcie_ways(to_gpu: bool, pinned: bool) -> Iterator[Way]:
    host, device = host_buffer(pinned), device_buffer()
    kind = "page-locked" if pinned else "pageable"
    source, target = (host, device) if to_gpu else (device, host)
    way = f"copy_ of 256 MiB, {kind} host memory"
    yield Way(way, PCIE_BYTES, lambda: target.copy_(source, non_blocking=pinned))


def pcie_both_ways() -> Iterator[Way]:
    hosts, devices = [host_buffer(True) for _ in range(2)], [device_buffer() for _ in range(2)]
    up, down = torch.cuda.Stream(), torch.cuda.Stream()

    def step() -> None:
        current = torch.cuda.current_stream()
        for stream, target, source in ((up, devices[0], hosts[0]), (down, hosts[1], devices[1])):
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                target.copy_(source, non_blocking=True)
        current.wait_stream(up)
        current.wait_stream(down)

    yield Way("copy_ of 256 MiB each way on two streams, both counted", 2 * PCIE_BYTES, step)


def launch_ways() -> Iterator[Way]:
    x = torch.zeros(1, device="cuda")

    def step() -> None:
        for _ in range(CALLS):
            x.add_(1.0)

    yield Way(f"{CALLS} one-element add_ on end, until the GPU is done", CALLS, step)


def graph_ways() -> Iterator[Way]:
    x = torch.zeros(1, device="cuda")
    x.add_(1.0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            x.add_(1.0)
    yield Way(f"a chain of {CALLS} one-element add_ in one CUDA graph", CALLS, graph.replay)


def compile_peak(name: str, timer: Timer) -> Peak:
    """What a call of a compiled function costs beyond the same call uncompiled: guards and dispatch.

    Backend `eager` runs the very same operator, so that the difference holds nothing else.
    """

    def plain(x: Tensor) -> Tensor:
        return x + 1.0

    x = torch.zeros(1, device="cuda")
    compiled = torch.compile(plain, backend="eager")
    for _ in range(WARM_CALLS):
        compiled(x)
    differences, states = [], []
    for _ in range(COMPILED_SAMPLES):  # in turns, so that a drift of the host's clock is in both
        ours, theirs = (timer(_calls(call, x), 0.0, 1) for call in (compiled, plain))
        differences.append(ours.times[0] - theirs.times[0])
        states += theirs.states
    if min(differences) <= 0:
        raise Unavailable("calls vary by more than compilation adds to them")
    method = f"{CALLS} calls of a compiled one-operator function (backend eager) less those of the function itself"
    return summarise(name, "s", CALLS, Series(differences, states), method)


def _calls(call: Callable[[Tensor], Tensor], x: Tensor) -> Step:
    def step() -> None:
        for _ in range(CALLS):
            call(x)

    return step
