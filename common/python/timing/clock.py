"""The two clocks: time of the device's work alone, and time from the call until the device is idle again.

The device clock enqueues flush, delay, start event, steps, stop event with no synchronisation in between: a
synchronisation between flush and start would add the launch latency to every sample. The delay kernel holds the stream
until the host has enqueued everything, so that host time cannot enter. Readings are in microseconds and cover all
`count` steps.
"""

import contextlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from common.python.proof.originals import now_ns, watch
from common.python.proof.ranks import ALONE, Ranks
from common.python.workload import Step

LONGEST_DELAY_US = 50_000.0
MEETING_US = 100.0  # for the host to enqueue a collective
PACE_LOOPS = 2_000
DELAY_PROBE_CYCLES = 2_000_000  # about 1 ms: long enough that launch latency does not bias the clock rate


def pace_us() -> float:
    """Time of a fixed loop on the host, which grows while the core is slow or lends half of itself to others' work."""
    started = now_ns()
    for _ in range(PACE_LOOPS):
        pass
    return (now_ns() - started) / 1e3


def waited_us() -> float:
    """Time that the threads of this process, together, have waited for a core; 0 where the kernel does not say."""
    waited_ns = 0
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError, IndexError):  # one that has ended
            waited_ns += int((thread / "schedstat").read_text().split()[1])
    return waited_ns / 1e3


def is_alone() -> bool:
    """Whether no other thread of this machine wants a core now: threads that then wait, wait for their own kind."""
    return int(Path("/proc/loadavg").read_text().split()[3].split("/")[0]) <= 1


@dataclass(frozen=True)
class Reading:
    """One timing of `count` steps. `wall_us` is None where the device alone was timed."""

    host_us: float
    wall_us: float | None = None
    events: Sequence[torch.cuda.Event] = ()  # before and behind the steps; there are none on a CPU
    late: bool = False  # the device began before the host had enqueued everything: its time has the host's in it

    def device_us(self) -> float | None:
        """The device's time, once it is through with these steps; None on a CPU."""
        if not self.events:
            return None
        start, stop = self.events
        stop.synchronize()
        return start.elapsed_time(stop) * 1e3


class Clock:
    """The clocks of one device, on its current stream; a CPU has the host's alone. Ranks begin a sample together."""

    def __init__(self, device: torch.device, ranks: Ranks = ALONE) -> None:
        self.on_gpu, self._ranks = device.type == "cuda", ranks
        if self.on_gpu:
            l2_bytes = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
            self._cold = torch.zeros(2 * l2_bytes // 4, device="cuda")
            self._sum = torch.empty((), device="cuda")
            self._cycles_per_us = self._calibrate()

    @staticmethod
    def _calibrate() -> float:
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(1000)  # the first launch loads the kernel
        start.record()
        torch.cuda._sleep(DELAY_PROBE_CYCLES)
        stop.record()
        stop.synchronize()
        return DELAY_PROBE_CYCLES / (start.elapsed_time(stop) * 1e3)

    def flush(self) -> None:
        """Read twice the L2, so that a step finds nothing of its own in there, and nothing to write back.

        Writing would leave the cache full of lines that the step has to evict: on an H200 that added 7.6 us to a
        116 us read of 470 MB and 2.7 us to a 17.6 us copy.
        """
        torch.sum(self._cold, dim=0, out=self._sum)

    def hold(self, us: float) -> None:
        """Keep the stream for so long, in which the host gets ahead of it."""
        torch.cuda._sleep(int(min(us, LONGEST_DELAY_US) * self._cycles_per_us))

    def device(self, step: Step, count: int, delay_us: float) -> Reading:
        """Enqueue one device timing; read it after the block, so that samples follow without a gap."""
        self.flush()
        self.hold(delay_us + MEETING_US * (self._ranks.size > 1))
        self._ranks.enqueue_meeting()
        return self._read(step, count, wait=False)

    def wall(self, step: Step, count: int, before: Callable[[], None] = lambda: None) -> Reading:
        """Time from the call until the device is idle, with the device's own span of the same steps beside it.

        On a CPU there is nothing to wait for, and caches are as the step before left them.
        """
        before()
        if self.on_gpu:
            self.flush()
            torch.cuda.synchronize()
        self._ranks.meet()
        return self._read(step, count, wait=True)

    def _read(self, step: Step, count: int, wait: bool) -> Reading:
        events = tuple(torch.cuda.Event(enable_timing=True) for _ in range(2 * self.on_gpu))
        for start in events[:1]:
            start.record()
        called = now_ns()
        for _ in range(count):
            step()
        returned = idle = now_ns()
        for stop in events[1:]:
            stop.record()
        late = not wait and events[0].query()
        if wait and self.on_gpu:
            torch.cuda.synchronize()
            idle = now_ns()
        return Reading((returned - called) / 1e3, (idle - called) / 1e3 if wait else None, events, late)


watch(sys.modules[__name__], "now_ns")
watch(Clock, "device", "wall", "flush", "hold", "_read")
watch(Reading, "device_us")
