"""Experiment 2, known truth: a kernel that waits a known time, an empty step, and slowdowns that were planted."""

from pathlib import Path
from statistics import median

from common.python.stats.verdict import times
from common.python.workers.process import WorkerError, one_worker
from tools.selftest.binomial import promised_share
from tools.selftest.models import Promise, Reading, Truth, standing
from tools.selftest.sessions import Bench, coverage, in_turn, not_runnable, note_on, record
from tools.selftest.tree import PAUSED, PLANTED, SHORT, SPIN, lay_delays, lay_lanes

SPIN_US = 1000.0  # as in pairs/ch01/baseline_spin.py
DELAYS_US = [0, 20, 200]
SHARES = [0.005, 0.01, 0.02]
LARGEST, LEVER = 0.05, 0.5  # the lever tells what a planted share really adds; nominally a tenth of its error counts
POWER = {0.005: 0.10, 0.01: 0.60, 0.02: 0.95, 0.05: 0.99}
READS_RIGHT = 0.01
SAMPLES = 64  # of each variant in a session with planted slowdowns: eight rounds of four blocks
EVENT_US = 0.5  # CUDA says that the times between its events are good to about this
EMPTY_LIMIT_S = 60.0


def experiment(bench: Bench, scratch: Path) -> Truth:
    """The spin kernel and the empty step first: planted slowdowns take what time is left."""
    found = Truth(gpu=bench.gpu)
    if bench.gpu:
        _spin_kernel(bench, scratch, found)
    bench.say("truth: an empty step")
    short = lay_lanes(scratch, SHORT, [0.0]).pair.variants[0]
    try:
        with one_worker(scratch, bench.log, bench.seed) as worker:
            asked = {"module": "tools.selftest.methods", "function": "empty_step"}
            read = worker.call("call", EMPTY_LIMIT_S, **asked, baseline=short.module, size=bench.size)
        found.floor_us, found.empty_us = read["floor_us"], read["empty_us"]
    except WorkerError as error:
        found.failed.append(f"the empty step could not be timed: {error.reason}")
    shares = [*SHARES, *[LARGEST] * bench.form.planted_copies]
    planted = lay_lanes(scratch, PLANTED if bench.gpu else PAUSED, shares, LEVER)
    if reason := not_runnable(bench, planted):
        found.failed.append(f"{planted.pair.key}: {reason}")
        return found
    turns = in_turn(bench, "truth: planted slowdowns", [planted], bench.form.planted_sessions)
    found.planted = [record(bench, planted, bench.folder / "truth", SAMPLES)[0] for _ in turns]
    return found


def _spin_kernel(bench: Bench, scratch: Path, found: Truth) -> None:
    """What the device's clock reads of a kernel that waits a known time, after 0, 20 and 200 us of host time."""
    bench.say("truth: the spin kernel after 0, 20 and 200 us of host time")
    spin = lay_delays(scratch, SPIN, DELAYS_US)
    about, result = record(bench, spin, bench.folder / "truth")
    if about.failed:
        found.failed.append(f"{about.pair}: {about.failed}")
    for lane, delay in zip(spin.lanes, DELAYS_US):
        if read := times(result.blocks, lane.below, "device"):
            found.readings.append(Reading(label=f"{delay} us before the launch", known_us=SPIN_US, read_us=read))


def promises(found: Truth) -> list[Promise]:
    """A known time reads right, planted slowdowns are found, and intervals contain what was planted."""
    return [*([_spin(found.readings)] if found.gpu else []), _empty(found), *_planted(found)]


def _spin(readings: list[Reading]) -> Promise:
    """The worst of the readings decides: none may be off by over 1%."""
    errors = {reading.label: median(reading.read_us) / reading.known_us - 1 for reading in readings}
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


def _empty(found: Truth) -> Promise:
    read, floor = median(found.empty_us or [0.0]), found.floor_us or 0.0
    right = abs(read - floor) <= EVENT_US
    return Promise(
        experiment="truth",
        promise="an empty step reads the floor that is printed",
        bound=f"within {EVENT_US} us",
        measured=f"{read:.2f} us, floor {floor:.2f} us",
        standing=standing(tried=bool(found.empty_us), kept=right, refuted=not right),
    )


def _planted(found: Truth) -> list[Promise]:
    """The power to find each planted share, and the coverage. A session that failed missed all of its slowdowns."""
    told = [outcome for session in found.planted for outcome in session.outcomes]
    failed = sum(session.failed is not None for session in found.planted)
    said = []
    for share, power in POWER.items():
        slowed = [outcome for outcome in told if outcome.planted == share]
        noticed = sum(outcome.interval is not None and outcome.interval.high < 1 for outcome in slowed)
        copies = max(1, round(len(slowed) / max(1, len(found.planted) - failed)))
        wording = f"a planted slowdown of {share:.1%}: the interval excludes 1"
        said.append(promised_share("truth", wording, noticed, len(slowed) + failed * copies, power))
        named = sum(outcome.verdict == "slower" for outcome in slowed)
        said[-1].note = f"called slower by its verdict, which has a margin of 1%: {named} of {len(slowed)}"
    said.append(coverage("truth", "planted slowdowns", found.planted))
    said[-1].note = note_on(found.planted)
    return said
