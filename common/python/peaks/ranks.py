"""What messages between GPUs take, over their size: ranks send them, and the slowest rank's time counts.

The ranks are those of pairs on several GPUs: processes of torch's launcher, on NCCL, and without GPUs on gloo. A sample
is some messages of one size on end, begun by all ranks together. On GPUs it lies between two events of each rank's
stream, which a delay holds until the host has enqueued all of it: a small message then takes what the link and the
protocol take, and not what the host's calls do.
"""

import math
from collections.abc import Sequence
from statistics import median

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import _symmetric_memory as symmetric_memory

from common.python.peaks.sampling import Series, Unavailable, median_interval, summarise
from common.python.peaks.store import Curve, Peak, Point
from common.python.proof.preparation import settle
from common.python.proof.ranks import Ranks
from common.python.timing.clock import Clock
from common.python.timing.telemetry import Monitor

SAMPLES = 25  # of each size; fixed, so that ranks agree, and odd, so that the median rate is that of the median time
SAMPLE_US, MOST_ON_END = 1000.0, 32  # 32 sums in place stay finite on up to 15 ranks
WARM = 3
HOSTS, SLACK_US = 3.0, 20.0  # of a delay: times what the host needs, and beyond


class AllReduce:
    """Sums over all ranks: a rank must send 2 (n - 1)/n of its bytes, by which bus bandwidth is defined."""

    def __init__(self, ranks: Ranks, most: int, device: torch.device) -> None:
        """Allocate the memory of the largest message, of so many bytes."""
        self.ranks, self.drawn = ranks, _alike(most, device)
        self.sums = torch.empty_like(self.drawn)
        self.share = 2 * (ranks.size - 1) / ranks.size  # bytes that a link must carry one way, for each of the message
        library = f"NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}" if device.type == "cuda" else "gloo"
        self.method = f"{library}, sums of float32 on {ranks.size} ranks"

    def resize(self, size: int) -> None:
        """Messages have so many bytes from here on."""
        self.given, self.own = self.drawn[: size // 4], self.sums[: size // 4]

    def renew(self) -> None:
        """Undo what was sent. After it, one `send` must leave what is `right`."""
        torch.mul(self.given, self.ranks.rank + 1, out=self.own)

    def send(self) -> Tensor:
        dist.all_reduce(self.own)
        return self.own

    def right(self) -> bool:
        wanted = self.given * (self.ranks.size * (self.ranks.size + 1) / 2)
        return bool((self.own - wanted).norm() <= 1e-6 * wanted.norm())


class PeerCopy:
    """One way, from rank 0 into memory of rank 1."""

    share, method = 1.0, "copy_ into symmetric memory, from rank 0 to rank 1"

    def __init__(self, ranks: Ranks, most: int, device: torch.device) -> None:
        """Raises Unavailable where the GPU of rank 0 cannot reach that of rank 1."""
        if device.type != "cuda" or not torch.cuda.can_device_access_peer(0, 1):
            raise Unavailable("needs a second GPU that this one can reach")
        assert dist.group.WORLD is not None
        self.rank, self.drawn = ranks.rank, _alike(most, device)
        shape, dtype = self.drawn.shape, self.drawn.dtype
        self.mine = symmetric_memory.empty(shape, dtype=dtype, device=device)
        self.there = symmetric_memory.rendezvous(self.mine, dist.group.WORLD).get_buffer(1, shape, dtype)

    def resize(self, size: int) -> None:
        self.given, self.own, self.target = (whole[: size // 4] for whole in (self.drawn, self.mine, self.there))

    def renew(self) -> None:
        self.own.zero_()

    def send(self) -> Tensor:
        if self.rank == 0:
            self.target.copy_(self.given)
        return self.own

    def right(self) -> bool:
        return self.rank != 1 or torch.equal(self.own, self.given)


Link = AllReduce | PeerCopy
LINKS: dict[str, type[Link]] = {"nvlink_copy": PeerCopy, "all_reduce": AllReduce}


def measure(name: str, sizes: Sequence[int], ranks: Ranks) -> tuple[Peak, Curve]:
    """The best that a link did and its curve over sizes in bytes, multiples of 4; all ranks call it, and get the same.

    Raises Unavailable for a link that is not here, RuntimeError, on all ranks, where a message arrives wrong on any.
    """
    device = torch.device("cuda", ranks.local) if torch.cuda.is_available() else torch.device("cpu")
    link = LINKS[name](ranks, max(sizes), device)
    clock = Clock(device, ranks)
    monitor = Monitor.open(str(torch.cuda.get_device_properties(device).uuid)) if clock.on_gpu else None
    peaks, points = [], []
    for size in sizes:
        link.resize(size)
        _prove(link, f"{name} of {size} bytes", ranks, device)
        times = ranks.slowest(_times(link, clock, ranks))
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


def _prove(link: Link, what: str, ranks: Ranks, device: torch.device) -> None:
    """Send one, which also lets NCCL connect what messages of this size need. Raises RuntimeError if it is wrong."""
    for step in (link.renew, link.send):
        step()
        settle(device)
        ranks.meet()
    if reason := ranks.agree(None if link.right() else f"{what} arrived wrong"):
        raise RuntimeError(reason)


def _times(link: Link, clock: Clock, ranks: Ranks) -> list[float]:
    """Seconds of one message, as this rank read them."""
    warm = clock.wall(link.send, WARM, link.renew)
    [slowest_us] = ranks.slowest([(warm.wall_us or 0.0) / WARM])
    count = max(1, min(MOST_ON_END, math.ceil(SAMPLE_US / slowest_us)))
    delay_us = HOSTS * count * warm.host_us / WARM + SLACK_US
    times = []
    for _ in range(SAMPLES):
        if clock.on_gpu:
            ranks.meet()  # or a rank that is ahead would renew what another one is still sending
            link.renew()
            read = clock.device(link.send, count, delay_us).device_us()
        else:
            read = clock.wall(link.send, count, link.renew).wall_us
        times.append((read or 0.0) / 1e6 / count)
    return times
