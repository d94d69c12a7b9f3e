"""Experiment 4, cheats: every variant that cheats is refused, and no honest one is."""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from common.python.base.results import PairResult, Summary
from common.python.corpus.discovery import Pair, find_pairs
from common.python.peaks import store
from common.python.run.options import Options
from common.python.run.suite import open_suite
from common.python.run.variant_status import missing
from common.python.stats.sampling_plan import BUDGET_S, QUICK
from tools.selftest.promises import Promise, standing
from tools.selftest.sessions import Bench
from tools.selftest.tree import lay_cheats

CHEATS = Path("tests") / "cheats" / "ch01"
CHEATS_SHARE = 0.6  # of the time at most, for the cheats and their honest twins; the chapters' own pairs come then
SAMPLES = 6  # of each variant, in three rounds: by the wall of one alone, an honest step seemed to escape its clock
FEWEST_HONEST = 10  # pairs of the chapters, for a promise about honest ones


@dataclass(frozen=True)
class Caught:
    """One variant of an honest or a cheating pair, and what became of it."""

    name: str
    honest: bool
    refused: bool
    reason: str | None


def experiment(bench: Bench, scratch: Path) -> list[Promise]:
    """The cheats with their honest twins, then honest pairs of the chapters: some, or in the full form all."""
    rows, late = list[Caught](), f"{bench.root / CHEATS} is not there"
    if (bench.root / CHEATS).is_dir():
        bench.say("cheats: cheats and their honest twins")
        seconds = CHEATS_SHARE * (bench.deadline - time.monotonic())
        summary = _run_suite(bench, lay_cheats(scratch, bench.root / CHEATS), seconds, iterations=SAMPLES)
        late = f"no time for {len(summary.not_run)} of the cheats" if summary.not_run else ""
        rows += [row for result in summary.pairs for row in caught(result, cheating=True)]
    able = _able_pairs(bench)
    pairs, ran = random.Random(bench.seed).sample(able, min(len(able), bench.form.honest_pairs)), list[PairResult]()
    if pairs:
        bench.say(f"cheats: {len(pairs)} honest pairs of the chapters")
        ran = _run_suite(bench, pairs, bench.deadline - time.monotonic()).pairs
        rows += [row for result in ran for row in caught(result, cheating=False)]
    return promises(rows, late, sum(result.status == "measured" for result in ran), len(pairs) - len(ran))


def _able_pairs(bench: Bench) -> list[Pair]:
    """The chapters' pairs, without their peers, that can be timed here.

    The quick form leaves out what Triton or torch.compile compiles, which took 19 s for two pairs on an H200's host.
    """
    able = []
    for pair in find_pairs(bench.root):
        own = pair.only({variant.name for variant in pair.variants if variant.role != "peer"})
        timed = bench.gpu or all(variant.kinds == ("PyTorch",) for variant in own.variants)
        slow = bench.form.name == "quick" and any(variant.compiles for variant in own.variants)
        if own.variants and timed and not slow and not any(missing(own, v, bench.machine) for v in own.variants):
            able.append(own)
    return able


def _run_suite(bench: Bench, pairs: list[Pair], seconds: float, iterations: int | None = None) -> Summary:
    """A quick suite of these pairs in random order, for at most so many seconds, with the peaks measured before."""
    place = bench.folder / "suites"
    if bench.uuid and (survey := store.load(store.path_of(bench.artifacts_dir, bench.uuid))):
        store.save(store.path_of(place, bench.uuid), survey)
    options = Options(
        targets=[f"{pair.chapter}/{variant.name}.py" for pair in pairs for variant in pair.variants],
        root=pairs[0].folder.root,
        artifacts_dir=place,
        iterations=iterations,
        warmup=0 if iterations else None,
        suite_timeout=max(seconds, 1.0),
        seed=bench.seed,
        budget_s=QUICK * BUDGET_S,
        quick=True,
        survey=False,
    )
    suite = open_suite(options, lambda phase, result: None, say=lambda line: None)
    random.Random(bench.seed).shuffle(suite.pairs)  # so that time does not always run out before the last chapters
    return suite.run()


def caught(result: PairResult, cheating: bool) -> list[Caught]:
    """What became of the variants that ran: among the cheats, `optimized` cheats, or the whole workload does."""
    rows = []
    for row in result.variants:
        cheats = cheating and (row.label == "optimized" or result.name == "loose_tolerance")
        refused = row.status == "failed" or row.verdict == "invalid"
        if row.status == "measured" or refused:
            rows.append(Caught(f"{result.key} {row.label}", not cheats, refused, row.reason))
    if result.status == "failed" and not any(row.refused for row in rows):  # such as for want of a baseline
        rows.append(Caught(result.key, honest=True, refused=True, reason=result.reason))
    return rows


def promises(rows: Sequence[Caught], late: str, honest_pairs: int, honest_late: int) -> list[Promise]:
    """All that cheat are refused, none that is honest.

    `late` says which cheats nothing is known of; `honest_pairs` of the chapters were measured, `honest_late` not run.
    """
    cheats, honest = ([row for row in rows if row.honest is kind] for kind in (False, True))
    accepted = [f"{row.name}: accepted" for row in cheats if not row.refused]
    alarms = [f"{row.name}: {row.reason}" for row in honest if row.refused]
    chapters = f"{honest_pairs} of the chapters' pairs run" + f"; no time for {honest_late} more" * bool(honest_late)
    return [
        Promise(
            experiment="cheats",
            promise="every cheat is refused",
            bound="all",
            measured=f"{len(cheats) - len(accepted)} of {len(cheats)}",
            standing=standing(tried=bool(cheats), kept=not late, refuted=bool(accepted)),
            note="; ".join(filter(None, [*accepted[:5], late])) or None,
        ),
        Promise(
            experiment="cheats",
            promise="no honest one is refused",
            bound="none",
            measured=f"{len(alarms)} of {len(honest)}",
            standing=standing(
                tried=bool(honest),
                kept=not late and not honest_late and honest_pairs >= FEWEST_HONEST,
                refuted=bool(alarms),
            ),
            note="; ".join([*alarms[:5], chapters]),
        ),
    ]
