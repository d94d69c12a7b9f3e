"""What messages between GPUs take, over their size: ranks send them, and the slowest rank's time counts.

The ranks are those of pairs on several GPUs: processes of torch's launcher, on NCCL, and without GPUs on gloo. A sample
is some messages of one size on end, begun by all ranks together. On GPUs it lies between two events of each rank's
stream, which a delay holds until the host has enqueued all of it: a small message then takes what the link and the
protocol take, and not what the host's calls do.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import _symmetric_memory as symmetric_memory

from common.python.peaks.sampling import Series, Unavailable, median_interval, summarise
from common.python.peaks.store import BETWEEN_GPUS, Curve, Peak, Point
from common.python.proof.preparation import free, settle
from common.python.proof.ranks import Ranks
from common.python.timing.clock import CpuClock, GpuClock
from common.python.timing.telemetry import Monitor
from common.python.workload import Step

SAMPLES = 25  # of each size; fixed, so that ranks agree, and odd, so that the median rate is that of the median time
SAMPLE_US, MOST_ON_END = 1000.0, 32  # 32 sums in place stay finite on up to 15 ranks
WARM = 3
HOSTS, SLACK_US = 3.0, 20.0  # of a delay: times what the host needs, and beyond


@dataclass(frozen=True)
class Message:
    """One of a kind and size. `renew` undoes what was sent; after it, one `send` must leave what is `right`."""

    send: Step
    renew: Callable[[], None]
    right: Callable[[], bool]


@dataclass(frozen=True)
class Link:
    """A kind of message, for which the memory of the largest is allocated."""

    method: str
    share: float  # bytes that a link must carry one way, for each byte of the message
    message: Callable[[int], Message]  # by its bytes


def all_reduce(ranks: Ranks, most: int, device: torch.device) -> Link:
    """Sums over all ranks: a rank must send 2 (n - 1)/n of its bytes, by which bus bandwidth is defined."""
    drawn, n = _alike(most, device), ranks.size
    sums = torch.empty_like(drawn)

    def message(size: int) -> Message:
        given, own = drawn[: size // 4], sums[: size // 4]

        def send() -> Tensor:
            dist.all_reduce(own)
            return own

        def renew() -> None:
            torch.mul(given, ranks.rank + 1, out=own)

        def right() -> bool:
            wanted = given * (n * (n + 1) / 2)
            return bool((own - wanted).norm() <= 1e-6 * wanted.norm())

        return Message(send, renew, right)

    library = f"NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}" if device.type == "cuda" else "gloo"
    return Link(f"{library}, sums of float32 on {n} ranks", 2 * (n - 1) / n, message)


def peer_copy(ranks: Ranks, most: int, device: torch.device) -> Link:
    """One way, from rank 0 into memory of rank 1; CPUs have no such memory, and send.

    Raises Unavailable where the GPU of rank 0 cannot reach that of rank 1.
    """
    drawn = _alike(most, device)
    if device.type == "cuda":
        if not torch.cuda.can_device_access_peer(0, 1):
            raise Unavailable("needs a second GPU that this one can reach")
        assert dist.group.WORLD is not None
        own = symmetric_memory.empty(drawn.shape, dtype=drawn.dtype, device=device)
        there = symmetric_memory.rendezvous(own, dist.group.WORLD).get_buffer(1, drawn.shape, drawn.dtype)
    else:
        own = there = torch.empty_like(drawn)

    def message(size: int) -> Message:
        given, received, place = drawn[: size // 4], own[: size // 4], there[: size // 4]

        def send() -> Tensor:
            if ranks.rank == 0 and device.type == "cuda":
                place.copy_(given)
            elif ranks.rank == 0:
                dist.send(given, 1)
            elif ranks.rank == 1 and device.type == "cpu":
                dist.recv(received, 0)
            return received

        def renew() -> None:
            received.zero_()

        return Message(send, renew, lambda: ranks.rank != 1 or torch.equal(received, given))

    way = "copy_ into symmetric memory" if device.type == "cuda" else "gloo send and receive"
    return Link(f"{way}, from rank 0 to rank 1", 1.0, message)


LINKS: dict[str, Callable[[Ranks, int, torch.device], Link]] = dict(zip(BETWEEN_GPUS, (peer_copy, all_reduce)))


def measure(name: str, sizes: Sequence[int], ranks: Ranks) -> tuple[Peak, Curve | None]:
    """The best that a link did and its curve over sizes in bytes, multiples of 4; all ranks call it, and get the same.

    Raises RuntimeError, on all ranks, where a message arrives wrong on any of them.
    """
    free()
    device = torch.device("cuda", ranks.local) if torch.cuda.is_available() else torch.device("cpu")
    try:
        link = LINKS[name](ranks, max(sizes), device)
    except Unavailable as error:
        return Peak(name=name, unit="B/s", reason=str(error)), None
    clock = GpuClock(ranks) if device.type == "cuda" else CpuClock(ranks)
    uuid = str(torch.cuda.get_device_properties(device).uuid) if device.type == "cuda" else ""
    monitor = Monitor.open(uuid) if uuid else None
    peaks, points = [], []
    for size in sizes:
        message = link.message(size)
        _prove(message, f"{name} of {size} bytes", ranks, device)
        times = ranks.slowest(_times(message, clock, ranks))
        low, high = median_interval(times)
        points.append(Point(bytes=size, seconds=median(times), low=low, high=high))
        series = Series(times, [monitor.read()] if monitor else [])
        method = f"{link.method}, {size / 2**20:g} MiB"
        peaks.append(summarise(name, "B/s", link.share * size, series, method, unsteady=0.0))
    curve = Curve(name=name, ranks=ranks.size, share=link.share, method=link.method, points=points)
    return max(peaks, key=lambda peak: peak.value or 0.0), curve


def _alike(most: int, device: torch.device) -> Tensor:
    """Noise that is the same on all ranks, so that each knows what must arrive."""
    return torch.randn(most // 4, generator=torch.Generator(device).manual_seed(0), device=device)


def _prove(message: Message, what: str, ranks: Ranks, device: torch.device) -> None:
    """Send one, which also lets NCCL connect what messages of this size need. Raises RuntimeError if it is wrong."""
    for step in (message.renew, message.send):
        step()
        settle(device)
        ranks.meet()
    if reason := ranks.agree(None if message.right() else f"{what} arrived wrong"):
        raise RuntimeError(reason)


def _times(message: Message, clock: GpuClock | CpuClock, ranks: Ranks) -> list[float]:
    """Seconds of one message, as this rank read them."""
    warm = clock.wall(message.send, WARM, message.renew)
    [slowest_us] = ranks.slowest([(warm.wall_us or 0.0) / WARM])
    count = max(1, min(MOST_ON_END, math.ceil(SAMPLE_US / slowest_us)))
    delay_us = HOSTS * count * warm.host_us / WARM + SLACK_US
    times = []
    for _ in range(SAMPLES):
        if isinstance(clock, GpuClock):
            ranks.meet()  # or a rank that is ahead would renew what another one is still sending
            message.renew()
            read = clock.device(message.send, count, delay_us).read().device_us
        else:
            read = clock.wall(message.send, count, message.renew).wall_us
        times.append((read or 0.0) / 1e6 / count)
    return times
