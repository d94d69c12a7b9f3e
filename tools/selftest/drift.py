"""Experiment 3, drift: the card is heated and rested in turn by a load between blocks, never by its settings.

Half of each session's rounds are measured on a card that has just worked hard, half on one that has rested. Blocks hold
both sides, so the difference falls on both alike. The same samples, with A read from the first half of the session and
B from the second, are what measuring A and then B would have given.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from common.python.base.results import Block, ClockName
from common.python.run.session import Session
from common.python.stats.intervals import round_log_times, verdict, welch
from common.python.stats.sampling_plan import FEWEST_ROUNDS
from tools.selftest.aa import LEAST_COVERED, judged
from tools.selftest.binomial import no_more_than
from tools.selftest.models import Drift, Outcome, Promise
from tools.selftest.sessions import Bench, contains, record, runnable
from tools.selftest.tree import CHAPTERS, SUBJECTS, Lane, lay_lanes

HEATED = ("ch01:gemm", "ch01:attention")  # whose clocks a hot card holds down
TURN_S = 0.1  # of heat, or of rest, before each block
SAMPLES = 32  # of each variant: eight rounds of two blocks
ROUNDS = 8
FEWEST_APART = 20


class Heater:
    """A process that multiplies matrices on the device for as long as it is asked to, and then is still."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def turn(self, hot: bool) -> None:
        """Heat, or rest, for one turn; returns when it is over. Raises RuntimeError if the process has died."""
        asked, told = self._pipes()
        try:
            asked.write(f"{TURN_S if hot else -TURN_S}\n")
            asked.flush()
        except BrokenPipeError as error:
            raise RuntimeError("the heater's process has died") from error
        if told.readline().strip() != "done":
            raise RuntimeError("the heater's process has died")

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the heater was started without pipes")
        return self._process.stdin, self._process.stdout


@contextmanager
def heater() -> Iterator[Heater]:
    """Start the process; it ends with the block, and with this process."""
    command = [sys.executable, "-m", "tools.selftest.heater"]
    process = subprocess.Popen(command, cwd=CHAPTERS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Heater(process)
    finally:
        process.kill()
        process.communicate()


@dataclass
class Heated(Session):
    """A session before each of whose blocks the card is heated or rested."""

    heater: Heater | None = None
    hot_first: bool = True
    turns: list[bool] = field(default_factory=list)

    def _block(self, index: int, names: list[str], done: int, total: int) -> float:
        if self.heater is not None:
            self.turns.append((index < ROUNDS // 2) == self.hot_first)
            self.heater.turn(self.turns[-1])
        return super()._block(index, names, done, total)


def experiment(bench: Bench, scratch: Path) -> Drift:
    """Sessions that begin hot and sessions that begin rested, in turn."""
    found = Drift(sessions=[], apart=[], heated=[])
    ready = []
    for subject in (subject for subject in SUBJECTS if subject.key in HEATED):
        laid = lay_lanes(scratch, subject, [0.0] * bench.form.drift_lanes)
        if reason := runnable(bench, laid):
            found.skipped[subject.key] = reason
        else:
            ready.append(laid)
    with heater() as load:
        for turn in range(bench.form.drift_sessions if ready else 0):
            if found.sessions and bench.out_of_time():
                break
            laid, turns = ready[turn % len(ready)], list[bool]()
            bench.say(f"drift: {laid.pair.key}, session {turn + 1} of {bench.form.drift_sessions}")
            hot_first = turn // len(ready) % 2 == 0
            how = {"kind": Heated, "iterations": SAMPLES, "heater": load, "hot_first": hot_first, "turns": turns}
            about, result = record(bench, laid, bench.folder / "drift", **how)
            found.sessions.append(about)
            found.heated.append(turns)
            if about.failed is None:
                clock, number = result.clock or "device", about.number
                found.apart += [apart(result.blocks, lane, clock, result.key, number) for lane in laid.lanes]
            bench.keep(found)
    return found


def apart(blocks: list[Block], lane: Lane, clock: ClockName, pair: str, number: int) -> Outcome:
    """A session's own samples as A, then B would have taken them: A from its first rounds, B from its last."""
    rounds = sorted({block.round for block in blocks})
    early = set(rounds[: len(rounds) // 2])
    above = round_log_times([block for block in blocks if block.round in early], lane.above, clock)
    below = round_log_times([block for block in blocks if block.round not in early], lane.below, clock)
    interval = welch(above, below)
    said = verdict(interval) if interval is not None and interval.rounds >= FEWEST_ROUNDS else "inconclusive"
    return Outcome(
        pair=pair,
        session=number,
        above=lane.above,
        below=lane.below,
        rounds=[a - b for a, b in zip(above, below)],
        interval=interval,
        verdict=said,
    )


def promises(found: Drift) -> list[Promise]:
    """Interleaved sessions keep promise 1; the same samples, read A then B, do not."""
    said = judged("drift", found.sessions, 0, "heated and rested in turn")
    apart = [outcome for outcome in found.apart if outcome.interval is not None]  # too few rounds show nothing
    shown = no_more_than(
        "drift",
        "the same samples read as A, then B: the interval contains the truth",
        sum(map(contains, apart)),
        len(apart),
        LEAST_COVERED,
        FEWEST_APART,
    )
    different = sum(outcome.verdict in ("faster", "slower") for outcome in apart)
    note = f"{different} of {len(apart)} called faster or slower"
    if shown.standing != "kept":  # which is nothing against the harness
        note += "; too little drifted, or too few sessions were run, to show it"
    standing = "undecided" if shown.standing == "refuted" else shown.standing
    return [*said, shown.model_copy(update={"note": note, "standing": standing})]
