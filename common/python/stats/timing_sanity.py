"""Why times are not those of the work: it was spared, or went on beside the clock, or another process had the GPU.

Work of another process looks as if it were a variant's own, for processes take turns on a GPU: where it was seen, no
variant is blamed.
"""

from statistics import median

from common.python.base.results import NOT_ALONE, PairResult, VariantResult
from common.python.stats.intervals import escaped_us
from common.python.stats.memoized_answers import remembered

SLACK_US = 30.0  # launch and synchronisation latency that neither host nor device time covers
SHARE = 0.1  # of the device time, that may end after the step's own stream
CLOCKS_FALL = 1.25  # how much longer a step may take where a card lowers its clocks, as spans of its stream must show
BUSIER = 1.5  # times as long by the profile as by the clock, where the rest has escaped it


def untrue(row: VariantResult, result: PairResult) -> str | None:
    """Why the variant's times are not those of its work, if they are not."""
    reason = remembered(result.blocks, row.name, result.clock or "device") or _escaped(row, result)
    return NOT_ALONE if reason and NOT_ALONE in result.notes else reason


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
