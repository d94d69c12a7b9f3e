"""Whether a variant took far longer on inputs that it had not seen: then it remembers answers, which is no work.

Whoever keeps answers by the content of the inputs gives right ones to every proof. Some samples, proven as they are
timed, are on inputs that are new; all others of a round are on the same, or on those that its preparation drew.
"""

from collections.abc import Sequence
from statistics import median

from common.python.base.results import Block, ClockName

# Times as long as the others' median, at least, and how many must be. Variants of 240 suite and 200 A/A sessions on two
# H100s (a9ce348, cfc0895), whose seeds tell which samples were on new inputs, reached 1.15 by the device in 840 cases.
# By their hosts, which others use, one sample reached 6.39 in 420 cases, and the shorter of two 1.84 in 120. So by a
# device that waited for its host: there a step that asks it for sizes reached 4.5 on an H200 (ch17:moe_grouped_gemm).
LONGER: dict[ClockName, tuple[float, int]] = {"device": (1.5, 1), "end_to_end": (5.0, 2)}


def remembered(blocks: Sequence[Block], variant: str, clock: ClockName) -> str | None:
    """The reason why its times do not count, if it did; by the shortest of such samples.

    Of device samples by those that the host was in time for, where there are such of both kinds, or else by those that
    it was late for. Where one kind is in time and the other late, the former are as long as their host at least.
    """
    samples = [s for block in blocks if block.discarded is None for s in block.samples if s.variant == variant]
    in_time, late = ([s for s in samples if s.late == asked] for asked in (False, True))
    told = next((alike for alike in (in_time, late) if len({s.fresh for s in alike}) == 2), samples)
    timed = [(s.fresh, us) for s in told if (us := s.device_us if clock == "device" else s.wall_us)]
    if told is samples and clock == "device":
        timed = [(s.fresh, s.device_us if s.late else max(s.device_us, s.host_us)) for s in told if s.device_us]
    new, seen = ([us for fresh, us in timed if fresh == asked] for asked in (True, False))
    longer, fewest = LONGER["device" if clock == "device" and told is in_time else "end_to_end"]
    if len(new) < fewest or not seen or min(new) < longer * median(seen):
        return None
    times = min(new) / median(seen)
    return f"it takes {times:.1f} times as long on inputs that it has not seen: it remembers answers"
