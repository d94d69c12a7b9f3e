"""What safety costs: the seconds that a pair takes in the harness, less those of the same work in one process.

    python -m tools.testing.safety_cost ch01:copy ch06:block_reduction [--root ROOT] [--repeats 3]

A suite runs the pairs, and what it asks of their workers is noted. Then one process, which has torch and the device at
hand, does the same for all of them: inputs, proofs, warm-up and samples, with the same counts. The difference is what
it costs to start a process for each pair, to talk to it, to end it with all that it started, to load in each what one
process loads once, and to write files. That process is a new one for each suite, as a suite's workers are: what only
one pair loads, or locks in memory, is loaded and locked in both.

All of the suite's time counts, from the first pair's beginning until the last one's workers have ended. Where pairs are
at work side by side (`sharing`), each has its part of it, and a suite may well cost less than one process does: that is
one process, and does one thing at a time. The figure is a mean over all pairs: name eight or more.
Isolated variants have an interpreter each, which costs seconds, and torch.compile readies itself once in a process:
name none of those. Exit code 1 above 0.4 s.
"""

import gc
import importlib
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple
from unittest.mock import patch

from common.python.base import manifest
from common.python.base.results import PairResult
from common.python.corpus.discovery import find_pairs, select
from common.python.corpus.targets import TargetError, parse
from common.python.run.options import Options
from common.python.run.probe import open_machine
from common.python.run.suite import Suite
from common.python.workers.fork_server import PRELOAD
from common.python.workers.process import Worker
from tools.arguments import Arguments

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
        for repeat in range(1 + repeats):  # the first fills caches on disk, and does not count
            options = Options(list(targets), root, folder, iterations=20, warmup=5, seed=SEED)
            about = manifest.collect(list(targets), {}, [], SEED, host=machine)
            place = folder / str(repeat)
            suite = Suite(options, pairs, place, machine, found["device"], found.get("uuid"), None, SEED, ignore, about)
            done = noted(suite)
            seconds = in_one_process(root, folder / "scratch", [asked for _, _, asked in done]) if repeat else []
            for (result, harness_s, _), alone_s in zip(done, seconds):
                costs.append(Cost(result.key, repeat, harness_s, alone_s))
    return costs


def ignore(phase: str, result: PairResult) -> None:
    """Nobody watches."""


def noted(suite: Suite) -> list[tuple[PairResult, float, Commands]]:
    """Run a suite: of each pair its result, its part of the suite's seconds and what was asked of its worker."""
    commands: dict[str, Commands] = {f"{pair.chapter}_{pair.name}": [] for pair in suite.pairs}  # by folder
    ask = Worker.ask

    def note(worker: Worker, command: str, **arguments: Any) -> None:
        commands[worker.log.parents[1].name].append((command, arguments))
        ask(worker, command, **arguments)

    suite.folder.mkdir()
    with patch.object(Worker, "ask", note):
        summary = suite.run()
    for result in summary.pairs:
        if result.status != "measured":
            raise RuntimeError(f"{result.key} is {result.status} here: {result.reason}")
    spent = [sum(result.seconds.values()) for result in summary.pairs]
    rest_s = (summary.seconds - sum(spent)) / max(len(spent), 1)  # writing, and the ends of workers
    return [
        (result, own_s + rest_s, commands[f"{result.chapter}_{result.name}"])
        for result, own_s in zip(summary.pairs, spent)
    ]


def in_one_process(root: Path, scratch: Path, pairs: Sequence[Commands]) -> list[float]:
    """The seconds that each pair's commands take in a new process, one pair after the other. Raises as `alone` does."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(all_alone, root, scratch, pairs).result()


def all_alone(root: Path, scratch: Path, pairs: Sequence[Commands]) -> list[float]:
    """The same in this process, which has what workers are forked with, and the device, at hand before it begins."""
    for module in PRELOAD[1:]:
        importlib.import_module(module)
    import torch

    if torch.cuda.is_available():
        torch.zeros(1, device="cuda")
    scratch.mkdir(exist_ok=True)
    return [alone(root, scratch, commands) for commands in pairs]


def alone(root: Path, scratch: Path, commands: Commands) -> float:
    """The seconds that a pair's commands take in this process. Raises RuntimeError where a proof or anything fails."""
    from common.python.proof.preparation import VariantError
    from common.python.workers.commands import Bench

    bench = Bench(root, scratch, {"seed": SEED, "reproducible": False}, lambda who, what: None)
    gc.freeze()  # as in a worker: a collection of all of torch's objects would cost far more than what is measured
    started = time.monotonic()
    for command, arguments in commands:
        try:
            answer = getattr(bench, command)(**arguments)
        except VariantError as error:  # which another process could not read
            raise RuntimeError(f"in one process, {error.who}: {error}") from None
        wrong = [proof for found in answer.values() for proof in found if proof["reason"]] if command == "prove" else []
        if wrong:
            raise RuntimeError(f"in one process, {arguments['names']}: {wrong[0]['reason']}")
    return time.monotonic() - started


def main() -> int:
    words = Arguments("safety_cost", __doc__)
    words.add_argument("targets", nargs="+", metavar="TARGET")
    words.add_argument("--root", type=Path, default=ROOT)
    words.add_argument("--repeats", type=int, default=3)
    asked = words.parse_args()
    if asked.repeats < 1:
        words.error(f"--repeats {asked.repeats} is no number of suites: 1 or more")
    try:
        costs = measure(asked.root, asked.targets, asked.repeats)
    except (TargetError, RuntimeError) as error:
        words.error(str(error))
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
