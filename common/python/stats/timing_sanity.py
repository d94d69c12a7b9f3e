"""Why times are not those of the work: it was spared, or went on beside the clock, or another process had the GPU.

Work of another process looks as if it were a variant's own, for processes take turns on a GPU: where it was seen, no
variant is blamed for work beside the clock.
"""

from statistics import median

from common.python.base.results import NOT_ALONE, Block, PairResult, VariantResult
from common.python.stats.intervals import control_ok, escaped_us
from common.python.stats.memoization_check import accusation
from common.python.stats.sampling_plan import FEWEST_ROUNDS

WIDEST = 3.0  # times its lower end, that an interval's upper may be, for a ratio to be shown
SLACK_US = 30.0  # launch and synchronisation latency that neither host nor device time covers
SHARE = 0.1  # of the device time, that may end after the step's own stream
CLOCKS_FALL = 1.25  # how much longer a step may take where a card lowers its clocks, as spans of its stream must show
CLOCKS_DIFFER = 1.02  # a GPU counts its time on a clock of its own
BUSIER = 1.5  # times as long by the profile as by the clock, where the rest has escaped it


def untrue(row: VariantResult, result: PairResult) -> str | None:
    """Why the variant's times are not those of its work, if they are not."""
    if reason := accusation(row.trios):  # others' work is in all arms of a trio
        return reason
    reason = _escaped(row, result)
    return NOT_ALONE if reason and NOT_ALONE in result.notes else reason


def beyond_wall(block: Block, wall_s: float) -> str | None:
    """Why these times cannot be: the parent waited `wall_s` for the whole block, and they add up to more."""
    longest = [max(s.device_us or 0.0, s.wall_us or 0.0) for s in [*block.samples, *block.walls]]
    told_s = sum(longest) * block.steps / 1e6
    if all(time >= 0.0 for time in longest) and told_s <= wall_s * CLOCKS_DIFFER:
        return None
    return f"the worker told of {told_s:.3g} s of samples in a block that took {wall_s:.3g} s by the parent's clock"


def _escaped(row: VariantResult, result: PairResult) -> str | None:
    """How long its work went on when the clock had stopped, where that is too long."""
    if result.clock != "device" or row.device is None:
        return None
    device = row.device.median
    walls = [s for block in result.blocks for s in block.walls if s.variant == row.name and s.wall_us is not None]
    if walls:
        taken = [s.device_us or 0.0 for block in result.blocks for s in block.samples if s.variant == row.name]
        slowest = [min(max([device, *taken, s.device_us or 0.0]), CLOCKS_FALL * device) for s in walls]
        beyond = median(escaped_us(span, s.wall_us or 0.0, s.host_us) for span, s in zip(slowest, walls))
        if beyond > SLACK_US + SHARE * device:
            return f"{beyond:.0f} us of work went on after the step's own stream was done: it escaped the clock"
    busy = row.why.busy_us if row.why else None
    if busy is not None and any(block.gpus for block in result.blocks):
        # in a profile no delay hides the hosts, and several ranks are busy with waiting for each other's
        device = max([device, median(s.wall_us or 0.0 for s in walls)] if walls else [device])
    if busy is not None and busy > BUSIER * device + SLACK_US:
        return f"the device worked {busy:.0f} us for a step that reads {device:.0f} us: work escaped the clock"
    return None


def too_noisy(row: VariantResult, result: PairResult) -> str | None:
    """Why no ratio of this row can be shown, though its times may be right: what disturbed the session, as seen."""
    control, gain = result.control, row.speedup if result.goal != "memory" else None
    if control is not None and not control_ok(control):
        told = f"the control, baseline against itself, reads [{control.low:.3f}, {control.high:.3f}]"
    elif gain is not None and gain.rounds >= FEWEST_ROUNDS and gain.high > WIDEST * gain.low:
        told = f"its speedup is anywhere from {gain.low:.3g} to {gain.high:.3g}"
    else:
        return None
    others = max((t.other_processes or 0 for block in result.blocks if (t := block.telemetry)), default=0)
    on_host = "" if result.load is None else f", at a load of {result.load:.1f}"
    return f"{told}: something disturbs this session{on_host}" + f", {others} others on the GPU" * (others > 0)
