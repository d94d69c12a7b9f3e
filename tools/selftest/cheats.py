"""Experiment 4, cheats: every variant that cheats is refused, and no honest one is."""

import random
import time
from collections.abc import Sequence
from pathlib import Path

from common.python.base.results import PairResult, VariantResult
from common.python.corpus.discovery import find_pairs
from tools.selftest.models import Caught, Cheats, Promise, Standing
from tools.selftest.sessions import Bench
from tools.selftest.suites import able_pairs, run_suite

CHEATS = Path("tests") / "cheats"
CHEATS_SHARE = 0.6  # of the time at most, for the cheats and their honest twins; the chapters' own pairs come then
SAMPLES = 6  # of each variant, in three rounds: by the wall of one alone, an honest step seemed to escape its clock
FEWEST_HONEST = 10  # pairs of the chapters, for a promise about honest ones


def experiment(bench: Bench, scratch: Path) -> Cheats:
    """The cheats with their honest twins, then honest pairs of the chapters: some, or in the full form all."""
    found = Cheats(rows=[], unsupported=[], not_run=[])
    cheats = find_pairs(bench.root / CHEATS) if (bench.root / CHEATS).is_dir() else []
    if cheats:
        bench.say("cheats: cheats and their honest twins")
        seconds = CHEATS_SHARE * (bench.deadline - time.monotonic())
        summary = run_suite(bench, cheats, seconds, iterations=SAMPLES)
        found.not_run = list(summary.not_run)
        _take(found, summary.pairs, cheating=True)
    else:
        found.not_run.append(f"those of {bench.root / CHEATS}, which is not there")
    bench.keep(found)
    able, found.honest_unable = able_pairs(bench)
    pairs = random.Random(bench.seed).sample(able, min(len(able), bench.form.honest_pairs))
    if pairs:
        bench.say(f"cheats: {len(pairs)} honest pairs of the chapters")
        summary = run_suite(bench, pairs, bench.deadline - time.monotonic())
        _take_honest(found, summary.pairs, [pair.key for pair in pairs])
    return found


def _take_honest(found: Cheats, results: Sequence[PairResult], asked: Sequence[str]) -> None:
    ran = [result.key for result in results]
    found.honest_not_run += [key for key in asked if key not in ran]
    found.honest_pairs += sum(result.status == "measured" for result in results)
    _take(found, results, cheating=False)
    for result in results:
        if result.status == "failed" and not any(map(_failed, result.variants)):  # such as for want of a baseline
            found.rows.append(
                Caught(pair=result.key, variant="itself", honest=True, refused=True, reason=result.reason)
            )


def _take(found: Cheats, results: Sequence[PairResult], cheating: bool) -> None:
    for result in results:
        for row in result.variants:
            if row.status != "measured" and not _failed(row):
                found.unsupported.append(f"{result.key} {row.name}")
            else:
                found.rows.append(caught(result, row, cheating))


def caught(result: PairResult, row: VariantResult, cheating: bool) -> Caught:
    """What became of a variant: among the cheats, `optimized` is the one that cheats, or its whole workload does."""
    cheats = cheating and (row.label == "optimized" or (result.name == "loose_tolerance"))
    return Caught(pair=result.key, variant=row.name, honest=not cheats, refused=_failed(row), reason=row.reason)


def _failed(row: VariantResult) -> bool:
    return row.status == "failed" or row.verdict == "invalid"


def promises(found: Cheats) -> list[Promise]:
    """All that cheat are refused, none that is honest."""
    cheats = [row for row in found.rows if not row.honest]
    honest = [row for row in found.rows if row.honest]
    slipped = [f"{row.pair}: accepted" for row in cheats if not row.refused]
    alarms = [f"{row.pair} {row.variant}: {row.reason}" for row in honest if row.refused]
    refused = sum(row.refused for row in cheats)
    missed = [f"no time for {len(found.not_run)} pairs of cheats"] if found.not_run else []
    late = [f"{found.honest_pairs} pairs of the chapters run"]
    late += [f"{len(found.honest_unable)} more cannot be timed on this machine"] if found.honest_unable else []
    late += [f"no time for {len(found.honest_not_run)} more that can"] if found.honest_not_run else []
    few = bool(found.not_run or found.honest_not_run) or found.honest_pairs < FEWEST_HONEST
    return [
        _promise("every cheat is refused", cheats, f"{refused} of {len(cheats)}", "all", slipped, missed, bool(missed)),
        _promise("no honest one is refused", honest, f"{len(alarms)} of {len(honest)}", "none", alarms, late, few),
    ]


def _promise(
    promise: str, tried: list[Caught], measured: str, bound: str, wrong: list[str], beside: list[str], few: bool
) -> Promise:
    standing: Standing = "refuted" if wrong else "undecided" if few else "kept"
    return Promise(
        experiment="cheats",
        promise=promise,
        measured=measured,
        bound=bound,
        standing=standing if tried else "not run",
        note="; ".join([*wrong[:5], *beside]) or None,
    )
