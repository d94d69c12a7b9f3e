"""Warm-up and blocks of samples, inside the worker: the parent says which variant comes when.

A block holds each variant twice, mirrored (a b c c b a), so that linear drift cancels in every ratio. On the device's
clock, samples follow each other without a gap and are read at the end of the block, and one that includes CPU launch
latency is left out if its variant has another. Behind a round's first block each variant but the control is timed once
end to end, which waits for the device.
"""

import math
import statistics
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from common.python.base.results import CONTROL, WHILE, ClockName, Proof, Sample
from common.python.proof.preparation import Preparation, settle
from common.python.proof.trials import Trial, begin
from common.python.timing.clock import Clock, Reading
from common.python.workload import Output, Step

SHORT_US = 50.0  # a shorter step is timed several at a time
LONG_US = 10_000.0  # a longer step is not warmed up where it has been called just before
LONG_ON_DEVICE_US = 1_000.0  # the same on the device's clock
WALLED = 3  # rounds in which a long step is timed end to end too: enough for a median
MOST_STEPS = 64  # in a sample
RETAKES = 2  # of a device sample that includes CPU launch latency
MOST_DELAYS = 3.0  # host times; a longer delay is no help where launches overfill the queue (1,024) or wait for the GPU
SLACK_US = 20.0  # of a delay beyond the host's own time
RESTED_US = 200.0  # a longer delay slows the kernel that follows no further
LEAD_US = 200.0  # of delay before a block's first device sample

Taken = tuple[str, Reading, bool]  # variant, sample, and whether it was on inputs that no call had seen


@dataclass
class Sampler:
    """Times the variants of one preparation on the workload's clock (on a CPU, on the only one there is)."""

    clock: Clock
    headline: ClockName
    delays: dict[str, float] = field(default_factory=dict)  # by variant, in us
    hosts: dict[str, float] = field(default_factory=dict)  # shortest host time of a step without a delay, in us
    in_time: dict[tuple[str, int], bool] = field(default_factory=dict)  # ever, by variant and steps in a sample
    long: dict[str, float] = field(default_factory=dict)  # times of long steps, in us
    retaken: int = 0  # in this block
    rounds: int = 0
    to_wall: Collection[str] = ()  # variants still to be timed end to end in this round

    def on_device(self) -> bool:
        return self.headline == "device" and self.clock.on_gpu

    def warm(self, prep: Preparation, names: list[str], limit_s: float, passes: int | None = None) -> int:
        """Run each variant once, then all in turn for `limit_s` seconds, or `passes` times. Returns steps per sample.

        With one rank and no `passes`, variants whose steps were long in an earlier round are not run.
        """
        started, self.rounds = time.perf_counter(), self.rounds + 1

        def late() -> bool:
            return prep.ranks.either(time.perf_counter() - started > limit_s)

        alone = prep.ranks.size == 1  # several would have to agree on what is long
        known = dict(self.long) if alone and passes is None else {}
        walled = known if self.rounds > WALLED else {}
        self.to_wall = {name for name in names if self.on_device() and name not in walled} - {CONTROL}
        shortest = min(known[name] if name in known else self._first_us(prep, name) for name in names)
        rest = [name for name in names if name not in self.long] if alone and passes is None else names
        passed = 0
        while rest and not (late() if passes is None else passed == passes):
            for name in rest:
                prep.at(name, "warm-up")
                shortest = min(shortest, self.step_us(prep, name))
            passed += 1
        if shortest >= SHORT_US or prep.workload.mutates:  # several steps would not match the reference of one
            return 1
        return min(MOST_STEPS, int(SHORT_US / max(shortest, 0.5)) + 1)

    def _first_us(self, prep: Preparation, name: str) -> float:
        prep.at(name, "warm-up")
        us = self._headline_us(self._wall(prep, name, 1))
        if us >= (LONG_ON_DEVICE_US if self.on_device() else LONG_US):
            self.long[name] = us
        return us

    def step_us(self, prep: Preparation, name: str, step: Step | None = None) -> float:
        """The time of one step on the workload's clock; a `step` that is given is called exactly once."""
        return self._headline_us(self._timed(prep, name, 1, step))

    def _headline_us(self, reading: Reading) -> float:
        return (reading.device_us() if self.on_device() else reading.wall_us) or 0.0

    def _timed(self, prep: Preparation, name: str, count: int, step: Step | None = None) -> Reading:
        """A sample on the workload's clock."""
        return (self._device if self.on_device() else self._wall)(prep, name, count, step)

    def _wall(self, prep: Preparation, name: str, count: int, step: Step | None = None) -> Reading:
        reading = self.clock.wall(step or prep.variants[name].step, count, prep.evict_files)
        self.delays[name] = max(self.delays.get(name, 0.0), 1.5 * reading.host_us + SLACK_US)
        self.hosts[name] = min(self.hosts.get(name, math.inf), reading.host_us / count)
        return reading

    def _device(self, prep: Preparation, name: str, count: int, step: Step | None = None) -> Reading:
        """One device sample, taken again where it includes CPU launch latency, if the host can be in time at all.

        No sample is chosen by its value. A step that is proven as it is timed is called just once, and ranks would each
        have to know of the others' delays.
        """
        key, once = (name, count), step is not None or prep.ranks.size > 1
        retakes = 0 if once or not self.in_time.get(key, True) else RETAKES
        for left in range(retakes, -1, -1):
            delay_us = self._delay_us(name, count)
            pending = self.clock.device(step or prep.variants[name].step, count, delay_us)
            if not pending.late:
                break
            host_us = min(pending.host_us, count * self.hosts.get(name, math.inf))  # a step that waits sits it out
            if delay_us < MOST_DELAYS * host_us:
                self.delays[name] = 1.5 * delay_us
            self.retaken += left > 0
        if not once:
            self.in_time[key] = not pending.late or self.in_time.get(key, False)
        return pending

    def _delay_us(self, name: str, count: int) -> float:
        """As long as the host needs for so many steps, and, up to RESTED_US, as long as any other variant's delay.

        A kernel is slower behind a longer delay: on an H200, attention of 115 us by 0.5% behind 150 us instead of 60.
        """
        needed = dict(self.delays)
        for one in needed.keys() & self.hosts.keys():
            needed[one] = max(needed[one], 1.5 * count * self.hosts[one] + SLACK_US)
        return max(needed[name], min(max(needed.values()), RESTED_US))

    def block(self, prep: Preparation, order: list[str], count: int, probes: Sequence[int]) -> dict[str, Any]:
        """Take samples in this order; those at the indices `probes`, each the first of its variant, are proven too.

        Fields of a `Block` of the results, the proofs by variant, and the seconds spent on them.
        """
        taken: list[Taken] = []
        proofs: dict[str, list[Proof]] = {}
        trial: Trial | None = None
        proof_s, self.retaken = 0.0, 0
        if self.on_device():
            self.clock.hold(LEAD_US)
        for index, name in enumerate(order):
            prep.at(name, "timing")
            if index not in probes:
                taken.append((name, self._timed(prep, name, count), False))
                continue
            settle(prep.device)
            started = time.perf_counter()
            if trial is None:  # for all of them, none of which is called until its probe
                trial = begin(prep, [order[probe] for probe in probes], WHILE)
            proofs[name] = [trial.of(name, partial(self._timed_output, prep, name, count, taken))]
            proof_s += time.perf_counter() - started
        if trial:
            trial.close()
        in_time = {name for name, reading, _ in taken if not reading.late}  # late ones of the others count
        kept = [one for one in taken if prep.ranks.size > 1 or not one[1].late or one[0] not in in_time]
        self.retaken += len(taken) - len(kept)
        samples = [_sample(name, reading, count, fresh) for name, reading, fresh in kept]
        # What the samples themselves took is no part of proving.
        proof_s -= sum(one.wall_us or one.device_us or 0.0 for one in samples if one.fresh) * count / 1e6
        to_wall, self.to_wall = [name for name in dict.fromkeys(order) if name in self.to_wall], ()
        walls = [_sample(name, self._wall(prep, name, count), count) for name in to_wall]
        fields = {"samples": samples, "walls": walls, "late": sum(one.late for one in samples), "retaken": self.retaken}
        return fields | {"proofs": proofs, "proof_s": proof_s}

    def _timed_output(self, prep: Preparation, name: str, count: int, taken: list[Taken], step: Step) -> Output:
        """Time this step of the variant, on inputs that no call has seen, and return its output."""
        outputs: list[Output] = []

        def keeping() -> Output:
            outputs.clear()  # freed before the next step, as in samples whose output is not kept
            outputs.append(step())
            return outputs[0]

        taken.append((name, self._timed(prep, name, count, keeping), True))
        return outputs[0]

    def floor_us(self) -> float:
        """The time of an empty step on the workload's clock."""
        take = partial(self.clock.device, delay_us=SLACK_US) if self.on_device() else self.clock.wall
        return statistics.median(self._headline_us(take(tuple, 1)) for _ in range(20))


def _sample(name: str, reading: Reading, count: int, fresh: bool = False) -> Sample:
    device_us = reading.device_us()
    return Sample(
        variant=name,
        fresh=fresh,
        device_us=None if device_us is None else device_us / count,
        wall_us=None if reading.wall_us is None else reading.wall_us / count,
        host_us=reading.host_us / count,
        late=reading.late,
    )
