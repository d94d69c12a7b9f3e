"""Experiment 2, known truth: a kernel that waits a known time, an empty step, and slowdowns that were planted."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from common.python.stats.verdict import times
from tools.selftest.binomial import at_least
from tools.selftest.models import Promise, Reading, Session, Truth
from tools.selftest.rivals import floors
from tools.selftest.sessions import Bench, contains, noticed, one_by_one, record, runnable
from tools.selftest.tree import PAUSED, PLANTED, SPIN, lay_delays, lay_lanes

SPIN_US = 1000.0  # as in pairs/ch01/baseline_spin.py
DELAYS_US = [0, 20, 200]
SHARES = [0.005, 0.01, 0.02]
LARGEST, LEVER = 0.05, 0.5  # the lever tells what a planted share really adds; nominally a tenth of its error counts
POWER = {0.005: 0.10, 0.01: 0.60, 0.02: 0.95, 0.05: 0.99}
LEAST_COVERED = 0.93
READS_RIGHT = 0.01
SAMPLES = 64  # of each variant in a session with planted slowdowns: eight rounds of four blocks
EVENT_US = 0.5  # CUDA says that the times between its events are good to about this


def experiment(bench: Bench, scratch: Path) -> Truth:
    """The spin kernel and the floor first, since planted slowdowns take what time is left."""
    found = Truth(readings=[], floor_us=None, empty_us=[], planted=[])
    place = bench.folder / "truth"
    if bench.gpu:
        bench.say("truth: the spin kernel after 0, 20 and 200 us of host time")
        spin = lay_delays(scratch, SPIN, DELAYS_US)
        about, result = record(bench, spin, place)
        if about.failed:
            found.failed.append(f"{about.pair}: {about.failed}")
        for lane, delay in zip(spin.lanes, DELAYS_US):
            read = times(result.blocks, lane.below, "device")
            if read:
                found.readings.append(Reading(label=f"{delay} us before the launch", known_us=SPIN_US, read_us=read))
    bench.say("truth: an empty step")
    try:
        found.floor_us, found.empty_us = floors(bench, scratch)
    except RuntimeError as error:
        found.failed.append(str(error))
    shares = [*SHARES, *[LARGEST] * bench.form.planted_copies]
    planted = lay_lanes(scratch, PLANTED if bench.gpu else PAUSED, shares, LEVER)
    if reason := runnable(bench, planted):
        found.failed.append(f"{planted.pair.key}: {reason}")
        return found
    turns = bench.form.planted_sessions

    def say(index: int) -> None:
        bench.say(f"truth: planted slowdowns, session {index + 1} of {turns}")

    def keep(session: Session) -> None:
        found.planted.append(session)
        bench.keep(found)

    one_by_one(bench, [planted] * turns, place, say, keep, iterations=SAMPLES)
    return found


def promises(found: Truth, gpu: bool) -> list[Promise]:
    """What readings and planted slowdowns say of promise 2."""
    said = [_spin(found.readings)] if gpu else []
    said.append(_floor(found.floor_us, found.empty_us))
    told = [outcome for session in found.planted for outcome in session.outcomes]
    lost = sum(session.failed is not None for session in found.planted)
    note = f"{len(found.planted)} sessions" + (f", {lost} failed: {_first_failure(found.planted)}" if lost else "")
    for share, power in POWER.items():
        slowed = [outcome for outcome in told if outcome.planted == share]
        copies = max(1, round(len(slowed) / max(1, len(found.planted) - lost)))
        wording = f"a planted slowdown of {share:.1%}: the interval excludes 1"
        said.append(at_least("truth", wording, sum(map(noticed, slowed)), len(slowed) + lost * copies, power))
        named = sum(outcome.verdict == "slower" for outcome in slowed)
        said[-1].note = f"{note}; called slower by its verdict, which has a margin of 1%: {named} of {len(slowed)}"
    covered = at_least(
        "truth",
        "planted slowdowns: the interval contains the truth",
        sum(map(contains, told)),
        len(told) + lost,
        LEAST_COVERED,
    )
    return [*said, covered.model_copy(update={"note": note})]


def _spin(readings: Sequence[Reading]) -> Promise:
    """The worst of the readings decides: none may be off by over 1%."""
    errors = {reading.label: median(reading.read_us) / reading.known_us - 1 for reading in readings}
    worst = max(errors.values(), key=abs, default=None)
    complete = len(errors) == len(DELAYS_US)
    return Promise(
        experiment="truth",
        promise=f"a spin of {SPIN_US:.0f} us reads right, whatever the host does before the launch",
        measured=", ".join(f"{error:+.2%} at {label}" for label, error in errors.items()) or "-",
        bound=f"within {READS_RIGHT:.0%}",
        standing="not run"
        if worst is None
        else "refuted"
        if abs(worst) > READS_RIGHT
        else "kept"
        if complete
        else "undecided",
    )


def _floor(floor_us: float | None, empty_us: Sequence[float]) -> Promise:
    off = median(empty_us) - floor_us if floor_us is not None and empty_us else None
    return Promise(
        experiment="truth",
        promise="an empty step reads the floor that is printed",
        measured="-" if off is None else f"{median(empty_us):.2f} us, floor {floor_us:.2f} us",
        bound=f"within {EVENT_US} us",
        standing="not run" if off is None else "kept" if abs(off) <= EVENT_US else "refuted",
    )


def _first_failure(sessions: Sequence[Session]) -> str:
    return next((f"{session.pair}: {session.failed}" for session in sessions if session.failed), "")
