"""What safety costs: the seconds that a pair takes in the harness, less those of the same work in one process.

    python -m tools.testing.safety_cost ch01:copy ch09:softmax [--root ROOT] [--repeats 3]

A suite runs the pairs, and what it asks of their workers is noted. Then this process, which has torch, the device and
the pairs at hand, does the same by itself: inputs, proofs, warm-up and samples, with the same counts. The difference is
what it costs to start a process for each pair, to talk to it, to end it with all that it started, and to write files.
Variants that are isolated have an interpreter each, which costs seconds: name none of those. Exit code 1 above 0.4 s.
"""

import argparse
import gc
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from unittest.mock import patch

from common.python import manifest
from common.python.discovery import find_pairs, select
from common.python.results import PairResult
from common.python.runner import Options, Suite, open_machine
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
        warm = False
        for repeat in range(repeats):
            options = Options(list(targets), root, folder, iterations=20, warmup=5, seed=SEED)
            about = manifest.collect(list(targets), {}, [], SEED, host=machine)
            place = folder / str(repeat)
            suite = Suite(options, pairs, place, machine, found["device"], found.get("uuid"), None, SEED, ignore, about)
            for key, harness_s, commands in noted(suite):
                if not warm:
                    alone(root, folder / "scratch", commands)  # imports, the device's context, the first profile
                    warm = True
                costs.append(Cost(key, harness_s, alone(root, folder / "scratch", commands)))
    return costs


def ignore(phase: str, result: PairResult) -> None:
    """Nobody watches."""


def noted(suite: Suite) -> list[tuple[str, float, Commands]]:
    """Run a suite: of each pair its key, its seconds and what was asked of its worker."""
    done: list[tuple[str, float, Commands]] = []
    commands: Commands = []
    ask, started = Worker.ask, time.monotonic()

    def note(worker: Worker, command: str, **arguments: Any) -> None:
        commands.append((command, arguments))
        ask(worker, command, **arguments)

    def show(phase: str, result: PairResult) -> None:
        nonlocal started
        if phase == "start":
            started = time.monotonic()
            commands.clear()
        elif phase == "done":
            if result.status != "measured":
                raise RuntimeError(f"{result.key} is {result.status} here: {result.reason}")
            done.append((result.key, time.monotonic() - started, list(commands)))

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
    middle = median(cost.safety_s for cost in costs)
    print(f"safety costs {middle:.2f} s a pair, the median of {len(costs)}; at most {MOST_S} s are allowed")
    return 1 if middle > MOST_S else 0


if __name__ == "__main__":
    sys.exit(main())
