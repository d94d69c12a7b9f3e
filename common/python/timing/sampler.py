"""Warm-up and blocks of samples, inside the worker: the parent chooses who comes when, this says how it is timed.

A block holds each variant twice, mirrored (a b c c b a), so that a drift that is linear over the block cancels in every
ratio; once where the host was late for the other on the device's clock. Device
samples follow each other without a gap and are read once at the end of the block. Behind a round's first block each
variant but the control is timed once by the host's clock too, which waits for the device each time; a long one in the
first rounds only.
"""

import math
import os
import statistics
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial

from common.python.base.reaper import children
from common.python.base.results import CONTROL, WHILE, ClockName, Proof, Sample
from common.python.proof.preparation import Preparation
from common.python.proof.trials import Trial, begin, blame, spoilt
from common.python.stats.intervals import settled
from common.python.timing.clock import Clock, GpuClock, Pending, Reading
from common.python.timing.cpu_pinning import others_ns
from common.python.workload import Output, Step

WINDOW = 5  # samples of each variant between two looks at whether the times have settled
SHORT_US = 50.0  # a shorter step is timed several at a time
LONG_US = 10_000.0  # a longer one is not warmed up where it has been called just before
LONG_ON_DEVICE_US = 1_000.0  # nor one that is longer than this on the device's clock: it runs once, in the first round
WALLED = 3  # rounds in which a step that long is timed by the host's clock too: enough for a median
MOST_STEPS = 64
Taken = tuple[str, Pending | Reading, bool]  # the variant, its sample, and whether on inputs that no call had seen
At = Callable[[str, str], None]  # hears which variant is at work, and on what
RETAKES = 2  # of a device sample that began before the host had enqueued it whole
MOST_DELAYS = 3.0  # a longer delay does not help a step whose launches overfill the queue (1,024) or wait for the GPU
SLACK_US = 20.0  # of the delay beyond the host's own time
RESTED_US = 200.0  # of delay, beyond which a longer one slows the kernel that follows no further
LEAD_US = 200.0  # before a block's first device sample, which has none in front of it to be enqueued behind
OTHERS = 0.1  # of a step's time: with more of a processor's from other threads it is not the work of one


def stay() -> None:
    """Time where the thread is."""


@dataclass(frozen=True)
class BlockTaken:
    """What one block gave: samples in order, wall companions of device samples, and the proofs among them."""

    samples: list[Sample]
    walls: list[Sample]
    late: int  # device samples that began before the host had enqueued them whole
    retaken: int  # others that did, and were taken again or left out
    proofs: dict[str, list[Proof]]
    proof_s: float  # spent on proving, which is no sampling time


@dataclass
class Sampler:
    """Times the variants of one preparation on the workload's clock (on a CPU, on the only one there is).

    `seek` moves the thread to a core that keeps the host's pace.
    """

    clock: Clock
    headline: ClockName
    seek: Callable[[], None] = stay
    stays: bool = False  # on the core that it is on
    delays: dict[str, float] = field(default_factory=dict)
    hosts: dict[str, float] = field(default_factory=dict)  # shortest time of a step on the host with no delay before it
    in_time: dict[tuple[str, int], bool] = field(default_factory=dict)  # whether so many of its steps ever were
    long: dict[str, float] = field(default_factory=dict)  # steps that are, with the time that they first took
    retaken: int = 0
    proof_s: float = 0.0  # spent on proving in this block
    rounds: int = 0  # begun
    to_wall: Collection[str] = ()  # variants whose device samples are still to have walls beside them in this round

    def on_device(self) -> bool:
        return self.headline == "device" and isinstance(self.clock, GpuClock)

    def find_core(self) -> None:
        """Move to a quiet core, where samples are on the host's clock and each step is the work of this thread alone.

        A thread of a pool wakes up where it last ran, and if this one has moved there meanwhile, it waits: on an H200's
        host 21 of 196 samples of a copy by all cores took 20 to 34 ms for 2.3, and 6 of 230, where it stayed, 16 to 25.
        And where each variant has a process of its own, one would be moved and another not.
        """
        if not self.on_device() and not self.stays:
            self.seek()

    def warm(self, prep: Preparation, names: list[str], limit_s: float, at: At, passes: int | None = None) -> int:
        """Run the variants in turn until all have settled or the limit passes; give the steps per sample.

        Each runs once even where the limit is 0 s, as in later rounds, in which only memory is new. Not so a step that
        was seen to be long when it was proven, or in an earlier round: its first sample would hardly tell. On the
        device's clock, whose delays ask for the host's part, it runs once in the first. `passes`, where it is given,
        fixes how often each runs instead.
        """
        started, self.rounds = time.perf_counter(), self.rounds + 1
        if not self.on_device():  # whose delays are known by the first call
            if not self.hosts:  # the first time; later rounds have what this one has
                self.stays = len(prep.variants) == 1 or bool(children(os.getpid()))
            called_us = {name: variant.called_s * 1e6 for name, variant in prep.variants.items()}
            self.long |= {name: us for name, us in called_us.items() if LONG_US <= us < math.inf} | self.long
        known = dict(self.long) if passes is None and prep.ranks.size == 1 else {}
        walled = known if self.rounds > WALLED else {}  # often enough
        self.to_wall = {name for name in names if self.on_device() and name not in walled} - {CONTROL}
        first = {name: [known[name]] for name in names if name in known}
        for name in [name for name in names if name not in known]:
            at(name, "warm-up")
            reading = self._wall(prep, name, 1)
            first[name] = [(reading.device_us if self.on_device() else reading.wall_us) or 0.0]
            if first[name][0] >= (LONG_ON_DEVICE_US if self.on_device() else LONG_US):
                self.long[name] = first[name][0]
        if passes is not None:
            taken = {name: [self.step_us(prep, name) for _ in range(passes)] for name in names}
            return self._steps(prep, {name: taken[name] or first[name] for name in names})
        once = known or (self.on_device() and prep.ranks.size == 1)
        rest = [name for name in names if name not in self.long] if once else names
        if prep.ranks.either(not rest or time.perf_counter() - started > limit_s):
            return self._steps(prep, first)
        earlier: dict[str, list[float]] = {}
        while True:
            times: dict[str, list[float]] = {name: [] for name in rest}
            for _ in range(WINDOW):
                for name in rest:
                    at(name, "warm-up")
                    times[name].append(self.step_us(prep, name))
                if prep.ranks.either(time.perf_counter() - started > limit_s):
                    return self._steps(prep, times)
            steady = bool(earlier) and all(settled(earlier[name], times[name]) for name in rest)
            if not prep.ranks.either(not steady):
                return self._steps(prep, times)
            earlier = times

    def _steps(self, prep: Preparation, times: dict[str, list[float]]) -> int:
        shortest = min(statistics.median(values) for values in times.values() if values)
        if shortest >= SHORT_US or prep.workload.mutates:  # several steps on end would not match the reference of one
            return 1
        return min(MOST_STEPS, int(SHORT_US / max(shortest, 0.5)) + 1)

    def step_us(self, prep: Preparation, name: str, step: Step | None = None) -> float:
        """One step on the clock that counts; a `step` that is given is called once, however late the host is."""
        reading = self._timed(prep, name, 1, step)
        reading = reading.read() if isinstance(reading, Pending) else reading
        return (reading.device_us if self.on_device() else reading.wall_us) or 0.0

    def _wall(self, prep: Preparation, name: str, count: int, step: Step | None = None) -> Reading:
        self.find_core()
        others = others_ns()
        reading = self.clock.wall(step or prep.variants[name].step, count, prep.evict_files)
        self.stays = self.stays or others_ns() - others > OTHERS * 1e3 * (reading.wall_us or 0.0)
        self.delays[name] = max(self.delays.get(name, 0.0), 1.5 * reading.host_us + SLACK_US)
        self.hosts[name] = min(self.hosts.get(name, math.inf), reading.host_us / count)
        return reading

    def _device(self, prep: Preparation, name: str, count: int, step: Step | None = None) -> Pending:
        """One device sample; where the host can be in time, one for which it was late is taken again, RETAKES times.

        The first one is, once, to see whether it can. Lateness is the host's, no sample is chosen by its value; but a
        step that waits for the GPU in some of its calls alone would lose those. More steps in a sample may overfill the
        queue where fewer did not. A step that is proven as it is timed is called just once, and ranks would each have
        to know of the other's delay.
        """
        key, once = (name, count), step is not None or prep.ranks.size > 1
        again = 0 if once else 1 if key not in self.in_time else RETAKES * self.in_time[key]
        pending = self._enqueue(prep, name, count, step)
        while pending.late and again:
            pending, again, self.retaken = self._enqueue(prep, name, count, step), again - 1, self.retaken + 1
        if not pending.late:
            self.in_time[key] = True
        elif not once:
            self.in_time.setdefault(key, False)
        return pending

    def _enqueue(self, prep: Preparation, name: str, count: int, step: Step | None) -> Pending:
        assert isinstance(self.clock, GpuClock)
        delay_us = self._delay_us(name, count)
        pending = self.clock.device(step or prep.variants[name].step, count, delay_us)
        host_us = min(pending.host_us, count * self.hosts.get(name, math.inf))  # a step that waits sits out the delay
        if pending.late and delay_us < MOST_DELAYS * host_us:
            self.delays[name] = 1.5 * delay_us
        return pending

    def _delay_us(self, name: str, count: int) -> float:
        """As long as the host needs for so many steps, and as long as for any other variant's, up to RESTED_US.

        A hiccup of the host makes a variant's delay longer for a whole session, and a kernel is slower behind a longer
        one: on an H200, attention of 115 us by 0.3% behind 90 us instead of 60, by 0.5% behind 150, by 0.4% behind 300.
        """
        needed = dict(self.delays)
        for one in needed.keys() & self.hosts.keys():
            needed[one] = max(needed[one], 1.5 * count * self.hosts[one] + SLACK_US)
        return max(needed[name], min(max(needed.values()), RESTED_US))

    def block(
        self,
        prep: Preparation,
        order: list[str],
        count: int,
        probes: list[int],
        at: At,
    ) -> BlockTaken:
        """Take samples in this order; those at the indices `probes`, each the first of its variant, are proven too."""
        taken: list[Taken] = []
        proofs: dict[str, list[Proof]] = {}
        trial: Trial | None = None
        meanwhile, self.retaken, self.proof_s = None, 0, 0.0
        if self.on_device() and isinstance(self.clock, GpuClock):
            self.clock.hold(LEAD_US)
        for index, name in enumerate(order):
            at(name, "timing")
            if index not in probes:
                taken.append((name, self._timed(prep, name, count), False))
            else:
                self.clock.settle()
                started = time.perf_counter()
                if trial is None:  # of all: until its turn, none of them is called
                    meanwhile = spoilt(prep)
                    trial = begin(prep, [order[probe] for probe in probes], WHILE)
                proofs[name] = [trial.of(name, partial(self._spied, prep, name, count, taken))]
                self.proof_s += time.perf_counter() - started
        blame(meanwhile, proofs)
        kept = taken if prep.ranks.size > 1 else _in_time(taken)
        self.retaken += len(taken) - len(kept)
        readings = [(name, item.read() if isinstance(item, Pending) else item, fresh) for name, item, fresh in kept]
        if proofs:  # the samples themselves are not what proving took
            self.proof_s -= sum(read.wall_us or read.device_us or 0.0 for _, read, fresh in readings if fresh) / 1e6
        samples = [_sample(name, reading, count, fresh) for name, reading, fresh in readings]
        alone, self.to_wall = [name for name in dict.fromkeys(order) if name in self.to_wall], ()
        walls = [_sample(name, self._wall(prep, name, count), count) for name in alone]
        return BlockTaken(samples, walls, sum(one.late for one in samples), self.retaken, proofs, self.proof_s)

    def _spied(self, prep: Preparation, name: str, count: int, taken: list[Taken], step: Step) -> Output:
        """Time this step of the variant, for the first time on its inputs, and give what it returned."""
        outputs: list[Output] = []

        def spied() -> Output:
            outputs.clear()  # given back before the next step, as where nobody looks at the output
            outputs.append(step())
            return outputs[0]

        taken.append((name, self._timed(prep, name, count, spied), True))
        return outputs[0]

    def _timed(self, prep: Preparation, name: str, count: int, step: Step | None = None) -> Pending | Reading:
        """A sample on the clock that counts."""
        return (self._device if self.on_device() else self._wall)(prep, name, count, step)

    def floor_us(self) -> float:
        """What an empty step, whose output is never looked at, reads on the headline clock."""
        if self.on_device():
            assert isinstance(self.clock, GpuClock)
            return statistics.median(self.clock.device(tuple, 1, SLACK_US).read().device_us or 0.0 for _ in range(20))
        return statistics.median(self.clock.wall(tuple, 1, lambda: None).wall_us or 0.0 for _ in range(20))


def _in_time(taken: list[Taken]) -> list[Taken]:
    """Without the device samples for which the host was late, where the variant has another for which it was not."""
    good = {name for name, item, _ in taken if isinstance(item, Pending) and not item.late}
    return [one for one in taken if not (isinstance(one[1], Pending) and one[1].late and one[0] in good)]


def _sample(name: str, reading: Reading, count: int, fresh: bool = False) -> Sample:
    return Sample(
        variant=name,
        fresh=fresh,
        device_us=None if reading.device_us is None else reading.device_us / count,
        wall_us=None if reading.wall_us is None else reading.wall_us / count,
        host_us=reading.host_us / count,
        late=reading.late,
    )
