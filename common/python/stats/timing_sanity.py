"""Times that cannot be those of the work: answers remembered, work beside the clock, a disturbed session.

Whether a variant remembers answers is decided by an experiment of its own: a slow sample alone accuses nobody. A trio
times one step, in random order, on inputs untouched since a call, on inputs overwritten with the same values, and on
inputs overwritten with new values of the same distribution. Honest code takes as long in each. A memory keyed by
address or version counter is fast in the first only, one keyed by content in the first two.

Processes take turns on a GPU, so another one's work looks like work beside the clock: where one was seen, such times
are too noisy for a ratio, and accuse nobody.
"""

import math
from collections.abc import Sequence
from statistics import median

from common.python.base.results import Block, PairResult, Trio, VariantResult
from common.python.stats.host_pace import is_crowded
from common.python.stats.intervals import control_ok
from common.python.stats.sampling_plan import FEWEST_ROUNDS

SLOWER = 0.1  # of a step's time: how much longer samples on new inputs must take for the variant to be tested
VOTE = 1.2  # a trio votes against the variant where new inputs take this many times as long as untouched ones
HONEST, MEMORY = 0.5, 0.9  # chances of such a vote; noise alone moves the two arms alike
CONVICT, ACQUIT = 9.2, -6.4  # log likelihood ratios of Wald's sequential test: wrong once in 10,000, once in 600 times
TURNS_US = 500.0  # of an empty step end to end: a slow host's takes 60 us, a turn of another process on the GPU 2 ms
LIMIT_PART = 0.25  # of a pair's time limit, for all of its variants together


def is_suspect(result: PairResult, name: str) -> bool:
    """Whether the variant's samples on new inputs took longer than its others by a tenth of a step."""
    blocks, clock = [block for block in result.blocks if block.discarded is None], result.clock or "device"
    fresh, seen = ([us for b in blocks for us in b.times(name, clock, fresh)] for fresh in (True, False))
    if not fresh or not seen:
        return False
    # Only the first of a sample's steps is on new inputs.
    return (median(fresh) - median(seen)) * blocks[-1].steps > SLOWER * median(seen)


def remembers(trios: Sequence[Trio]) -> bool | None:
    """The decision of Wald's sequential test on these trios, in their order; None if it has not decided."""
    evidence = 0.0
    for trio in trios:
        evidence += math.log(MEMORY / HONEST) if _against(trio) else math.log((1 - MEMORY) / (1 - HONEST))
        if evidence >= CONVICT or evidence <= ACQUIT:
            return evidence > 0
    return None


def _against(trio: Trio) -> bool:
    return trio.new_us >= VOTE * trio.untouched_us


def accusation(trios: Sequence[Trio]) -> str | None:
    """Why the variant's times do not count, with the key of its memory; None unless the test convicts it."""
    if not remembers(trios):
        return None
    untouched, same, new = (median(times) for times in zip(*((t.untouched_us, t.same_us, t.new_us) for t in trios)))
    by_content = same - untouched < new - same  # inputs written anew are also colder, so this asks which is nearer
    key = "the values of its inputs" if by_content else "where inputs lie or how often they were written"
    times, votes = new / max(untouched, 1e-3), sum(map(_against, trios))
    slower = f"it takes {times:.1f} times as long on inputs that it has not seen, in {votes} of {len(trios)} trials"
    return f"{slower}: it remembers answers by {key}"


def undecided(result: PairResult) -> list[str]:
    """A note for each variant that looked slower on new inputs and was neither convicted nor acquitted."""
    notes = []
    for row in result.variants:
        if row.status == "measured" and remembers(row.trios) is None and is_suspect(result, row.name):
            tried = f"{len(row.trios)} trials could not tell" if row.trios else "this could not be tested here"
            notes.append(f"{row.name} took longer on new inputs; whether it remembers answers: {tried}")
    return notes


# Work beside the clock, and disturbed sessions.

SLACK_US = 30.0  # launch and synchronisation latency that neither host nor device time covers
SHARE = 0.1  # of the device time that may end after the step's own stream
CLOCKS_FALL = 1.25  # how much longer a step may take where a card lowers its clocks
CLOCKS_DIFFER = 1.02  # between the GPU's own clock and the host's
BUSIER = 1.5  # profiled over timed device time, beyond which work escaped the clock


def untrue(row: VariantResult, result: PairResult) -> str | None:
    """Why the variant's times are not those of its work; None if nothing speaks against them."""
    if reason := accusation(row.trios):  # others' work is in all arms of a trio
        return reason
    return None if _others(result) else _escaped(row, result)


def _escaped(row: VariantResult, result: PairResult) -> str | None:
    """Why the device's clock does not tell of all that the step does."""
    return (_outlasts_stream(row, result) or _busier_than_timed(row, result)) if result.clock == "device" else None


def _others(result: PairResult) -> int:
    """The most other processes that NVML saw on the GPU."""
    return max((t.other_processes or 0 for block in result.blocks if (t := block.telemetry)), default=0)


def beyond_wall(block: Block, wall_s: float) -> str | None:
    """Why a block's times cannot be: they add up to more than the `wall_s` that the parent waited for it."""
    longest = [max(s.device_us or 0.0, s.wall_us or 0.0) for s in [*block.samples, *block.walls]]
    told_s = sum(longest) * block.steps / 1e6
    if all(time >= 0.0 for time in longest) and told_s <= wall_s * CLOCKS_DIFFER:
        return None
    return f"the worker told of {told_s:.3g} s of samples in a block that took {wall_s:.3g} s by the parent's clock"


def _outlasts_stream(row: VariantResult, result: PairResult) -> str | None:
    """Whether, in all of three or more end-to-end samples, work went on after the device clock had stopped.

    One may be late because the host had other work.
    """
    walls = [s for block in result.blocks for s in block.walls if s.variant == row.name and s.wall_us is not None]
    if row.device is None or len(walls) < FEWEST_ROUNDS:
        return None
    device = row.device.median
    taken = [s.device_us or 0.0 for block in result.blocks for s in block.samples if s.variant == row.name]
    slowest = [min(max([device, *taken, s.device_us or 0.0]), CLOCKS_FALL * device) for s in walls]
    beyond = min(max(0.0, (s.wall_us or 0.0) - s.host_us - span) for span, s in zip(slowest, walls))
    if beyond <= SLACK_US + SHARE * device:
        return None
    return f"{beyond:.0f} us of work went on after the step's own stream was done: it escaped the clock"


def _busier_than_timed(row: VariantResult, result: PairResult) -> str | None:
    """Whether the profile shows much more device time than the device clock.

    Where a profiler slows launches down, kernels of several streams no longer overlap: the busiest stream counts.
    """
    if row.why is None or row.device is None:
        return None
    busy = row.why.busy_us if row.why.stream_us is None else row.why.stream_us
    if busy is None:
        return None
    device = row.device.median
    if row.wall and any(block.gpus for block in result.blocks):  # in a profile, ranks are busy waiting for each other
        device = max(device, row.wall.median)
    if busy <= BUSIER * device + SLACK_US:
        return None
    return f"the device worked {busy:.0f} us for a step that reads {device:.0f} us: work escaped the clock"


def too_noisy(row: VariantResult, result: PairResult) -> str | None:
    """Why no ratio of this row can be shown, though its times may be right, and what may have disturbed it."""
    control, others = result.control, _others(result)
    if control is not None and not control_ok(control):
        told = f"the control, baseline against itself, reads [{control.low:.3f}, {control.high:.3f}]"
    elif others and (reason := _escaped(row, result)):
        told = f"{reason}, unless it was that of another process"
    elif others and result.clock != "device" and (result.floor_us or 0.0) > TURNS_US:
        told = f"an empty step reads {result.floor_us:.0f} us, as where processes take turns"
    elif result.goal != "memory" and (crowded := sum(is_crowded(b) and not b.discarded for b in result.blocks)):
        told = f"in {crowded} of {len(result.blocks)} blocks the worker waited for a core over half of the time"
    else:
        return None
    on_host = "" if result.load is None else f", at a load of {result.load:.1f}"
    on_gpu = f", {others} others on the GPU" if others else ""
    return told + on_host + on_gpu
