"""What safety costs: the seconds that a pair takes in the harness, less those of the same work in one process.

    python -m tools.testing.safety_cost ch01:copy ch06:block_reduction [--root ROOT] [--repeats 3]

A suite runs the pairs, and what it asks of their workers is noted. Then this process, which has torch, the device and
the pairs at hand, does the same by itself: inputs, proofs, warm-up and samples, with the same counts. The difference is
what it costs to start a process for each pair, to talk to it, to end it with all that it started, and to write files.

All of a pair's time counts, from when it is begun until its files are written. While a pair is loaded and proven, but
not while it is timed or profiled, the last one's worker ends (`leaving`) and the next one's gets ready (`reserve`);
what that did not suffice for is in this and in the next one's figure. The first pair of a suite had no worker in
reserve, and the last waits for its own to end. So the figure is a mean over all pairs of a suite: name eight or more.
Isolated variants have an interpreter each, which costs seconds, and one process compiles with torch.compile only once,
however often it repeats: name none of those. Exit code 1 above 0.4 s.
"""

import argparse
import gc
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple
from unittest.mock import patch

from common.python import manifest
from common.python.discovery import find_pairs, select
from common.python.opening import open_machine
from common.python.reserve import ANSWER, REHEARSE
from common.python.results import PairResult
from common.python.runner import Options, Suite
from common.python.targets import TargetError, parse
from common.python.text import clean
from common.python.worker import Worker

ROOT = Path(__file__).resolve().parents[2]
MOST_S = 0.4
SEED = 0
Commands = list[tuple[str, dict[str, Any]]]


class Cost(NamedTuple):
    """Seconds of one pair."""

    key: str
    repeat: int
    harness_s: float
    alone_s: float

    @property
    def safety_s(self) -> float:
        return self.harness_s - self.alone_s


def measure(root: Path, targets: Sequence[str], repeats: int = 3) -> list[Cost]:
    """Each pair's cost, `repeats` times. Raises RuntimeError for a pair that cannot be measured here."""
    pairs = select(find_pairs(root), [target for text in targets for target in parse(text)])
    costs = []
    with tempfile.TemporaryDirectory(prefix="benchmark-safety-") as temporary:
        folder = Path(temporary)
        machine, found = open_machine(root, folder)
        for repeat in range(1 + repeats):  # the first fills caches on disk and in this process, and does not count
            options = Options(list(targets), root, folder, iterations=20, warmup=5, seed=SEED)
            about = manifest.collect(list(targets), {}, [], SEED, host=machine)
            place = folder / str(repeat)
            suite = Suite(options, pairs, place, machine, found["device"], found.get("uuid"), None, SEED, ignore, about)
            for result, harness_s, commands in noted(suite):
                alone_s = alone(root, folder / "scratch", commands)
                if repeat:
                    costs.append(Cost(result.key, repeat, harness_s, alone_s))
    return costs


def ignore(phase: str, result: PairResult) -> None:
    """Nobody watches."""


def noted(suite: Suite) -> list[tuple[PairResult, float, Commands]]:
    """Run a suite: of each pair its result, its seconds and what was asked of its worker for its own sake."""
    done: list[tuple[PairResult, float, Commands]] = []
    commands: Commands = []
    begun: dict[str, float] = {}  # by pair, from the first that is heard of it
    ask = Worker.ask

    def note(worker: Worker, command: str, **arguments: Any) -> None:
        if command not in (REHEARSE, ANSWER):
            commands.append((command, arguments))
        ask(worker, command, **arguments)

    def show(phase: str, result: PairResult) -> None:
        if phase == "start" and result.key not in begun:
            begun[result.key] = time.monotonic()
            commands.clear()
        elif phase == "done":
            if result.status != "measured":
                raise RuntimeError(f"{result.key} is {result.status} here: {result.reason}")
            if len(begun) == len(suite.pairs):
                suite.leaving.settle()  # no next pair waits for the end of this one's worker
            done.append((result, time.monotonic() - begun[result.key], list(commands)))

    suite.folder.mkdir()
    suite.show = show
    with patch.object(Worker, "ask", note):
        suite.run()
    return done


def alone(root: Path, scratch: Path, commands: Commands) -> float:
    """The seconds that the same commands take in this process. Raises RuntimeError where a proof fails."""
    from common.python.bench import Bench

    scratch.mkdir(exist_ok=True)
    bench = Bench(root, scratch, {"seed": SEED, "reproducible": False}, lambda who, what: None)
    loaded = commands[0][1]
    for module in (loaded["baseline"], *loaded["modules"].values()):
        sys.modules.pop(module, None)  # a suite in one process would import each pair once
    gc.freeze()  # as in a worker: a collection of all of torch's objects would cost far more than what is measured
    started = time.monotonic()
    for command, arguments in commands:
        answer = getattr(bench, command)(**arguments)
        wrong = [proof for found in answer.values() for proof in found if proof["reason"]] if command == "prove" else []
        if wrong:
            raise RuntimeError(f"in one process, {arguments['names']}: {wrong[0]['reason']}")
    return time.monotonic() - started


def main() -> int:
    words = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    words.add_argument("targets", nargs="+")
    words.add_argument("--root", type=Path, default=ROOT)
    words.add_argument("--repeats", type=int, default=3)
    asked = words.parse_args()
    try:
        costs = measure(asked.root, asked.targets, asked.repeats)
    except (TargetError, RuntimeError) as error:
        print(f"safety_cost: {clean(str(error))}", file=sys.stderr)
        return 2
    for cost in costs:
        print(f"{cost.key}: {cost.harness_s:.2f} s, in one process {cost.alone_s:.2f} s: {cost.safety_s:.2f} s more")
    typical = a_pair(costs)
    print(f"safety costs {typical:.2f} s a pair, the median of {asked.repeats} suites; at most {MOST_S} s are allowed")
    return 1 if typical > MOST_S else 0


def a_pair(costs: Sequence[Cost]) -> float:
    """The mean cost of a suite's pairs in seconds: the median of the suites."""
    suites = {cost.repeat: [one.safety_s for one in costs if one.repeat == cost.repeat] for cost in costs}
    return median(map(fmean, suites.values()))


if __name__ == "__main__":
    sys.exit(main())
