"""Experiments 1 and 2, whose answers are known: a variant against itself; a kernel that waits a known time, an empty
step, and slowdowns that were planted.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from common.python.base.journal import write
from common.python.stats.verdict import times
from tools.selftest.promises import Promise, promised_share, standing
from tools.selftest.sessions import Bench, Outcome, coverage, in_turn, lay_runnable, record
from tools.selftest.tree import LEVER, PLANTED, SHORT, SPIN, lay_lanes, subjects

MOST_FALSE = 0.05
AA_COMPARISONS = 400  # that the promise is about: 200 sessions
SPIN_US = 1000.0  # as in pairs/ch01/baseline_spin.py
DELAYS_US = [0, 20, 200]
POWER = {0.005: 0.10, 0.01: 0.60, 0.02: 0.95, 0.05: 0.99}  # to find each share that is planted
READS_RIGHT = 0.01
SAMPLES = 64  # of each variant in a session with planted slowdowns: eight rounds of four blocks
EVENT_US = 0.5  # CUDA says that the times between its events are good to about this


def against_itself(bench: Bench, scratch: Path) -> list[Promise]:
    """Sessions of every pair in turn, each with two comparisons, where every difference that is found is false."""
    ready = lay_runnable(bench, scratch, subjects(bench.gpu), [0.0, 0.0])
    turns = in_turn(bench, "aa", ready, bench.form.aa_sessions)
    return no_difference([one for _, laid in turns for one in record(bench, laid, bench.folder / "aa")[0]])


def known_truth(bench: Bench, scratch: Path) -> list[Promise]:
    """The spin kernel and the empty step first: planted slowdowns take what time is left. A CPU has the empty step."""
    if not bench.gpu:  # what else is known waits inside a kernel
        return [empty(*_empty_step(bench, scratch))]
    said = [_spin_kernel(bench, scratch), empty(*_empty_step(bench, scratch))]
    shares = [*POWER, *[max(POWER)] * (bench.form.planted_copies - 1), LEVER]
    ready = lay_runnable(bench, scratch, [PLANTED], shares)
    turns = in_turn(bench, "truth: planted slowdowns", ready, bench.form.planted_sessions)
    found = [one for _, laid in turns for one in record(bench, laid, bench.folder / "truth", SAMPLES)[0]]
    return [*said, *planted(found)]


def _spin_kernel(bench: Bench, scratch: Path) -> Promise:
    """By what the device's clock reads of a kernel that waits a known time, after 0, 20 and 200 us of host time."""
    bench.say("truth: the spin kernel after 0, 20 and 200 us of host time")
    laid = lay_lanes(scratch, SPIN, DELAYS_US)
    found, result = record(bench, laid, bench.folder / "truth")
    reads = {delay: times(result.blocks, lane.below, "device") for delay, lane in zip(DELAYS_US, laid.lanes)}
    promise = spin({f"{delay} us before the launch": read for delay, read in reads.items() if read})
    promise.note = found[0].failed
    return promise


def _empty_step(bench: Bench, scratch: Path) -> tuple[float, list[float]]:
    """What the harness prints as the time of an empty step, and what one reads in blocks. Raises WorkerError."""
    bench.say("truth: an empty step")
    short = lay_lanes(scratch, SHORT, [0]).pair.variants[0]
    read = bench.call(scratch, "empty_step", baseline=short.module)
    write(bench.folder / "truth" / "empty_step.json", json.dumps(read))
    return read["floor_us"], read["empty_us"]


def no_difference(found: Sequence[Outcome]) -> list[Promise]:
    """False differences and coverage, of variants against themselves."""
    what = "A/A sessions: a verdict other than same or inconclusive"
    false = sum(one.verdict not in ("same", "inconclusive") for one in found)
    return [
        promised_share("aa", what, false, len(found), MOST_FALSE, at_most=True, trials=AA_COMPARISONS),
        coverage("aa", "A/A sessions", found, trials=AA_COMPARISONS),
    ]


def spin(reads: Mapping[str, Sequence[float]]) -> Promise:
    """A known time reads right: the worst of the readings decides, and none may be off by over 1%."""
    errors = {label: median(read_us) / SPIN_US - 1 for label, read_us in reads.items()}
    return Promise(
        experiment="truth",
        promise=f"a spin of {SPIN_US:.0f} us reads right, whatever the host does before the launch",
        bound=f"within {READS_RIGHT:.0%}",
        measured=", ".join(f"{error:+.2%} at {label}" for label, error in errors.items()),
        standing=standing(
            tried=bool(errors),
            kept=len(errors) == len(DELAYS_US),
            refuted=any(abs(error) > READS_RIGHT for error in errors.values()),
        ),
    )


def empty(floor_us: float, read_us: Sequence[float]) -> Promise:
    """What is printed as the time of an empty step is what one reads."""
    read = median(read_us)
    right = abs(read - floor_us) <= EVENT_US
    return Promise(
        experiment="truth",
        promise="an empty step reads the floor that is printed",
        bound=f"within {EVENT_US} us",
        measured=f"{read:.2f} us, floor {floor_us:.2f} us",
        standing=standing(tried=True, kept=right, refuted=not right),
    )


def planted(found: Sequence[Outcome]) -> list[Promise]:
    """How often each planted slowdown was found, and the coverage. A session that failed has missed all."""
    said = []
    for share, power in POWER.items():
        slowed = [one for one in found if one.planted == share]
        noticed = sum(one.interval is not None and one.interval.high < 1 for one in slowed)
        named = sum(one.verdict == "slower" for one in slowed)
        what = f"a planted slowdown of {share:.1%}: the interval excludes 1"
        promise = promised_share("truth", what, noticed, len(slowed), power)
        promise.note = f"called slower by its verdict, which has a margin of 1%: {named} of {len(slowed)}"
        said.append(promise)
    return [*said, coverage("truth", "planted slowdowns", found)]
