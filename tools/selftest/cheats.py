"""Experiment 4, cheats: every variant that cheats is refused, and no honest one is."""

import random
import time
from pathlib import Path

from common.python.base.results import PairResult, Summary
from common.python.corpus.discovery import Pair, find_pairs
from common.python.peaks import store
from common.python.run.options import Options
from common.python.run.suite import open_suite
from common.python.run.variant_status import missing
from common.python.stats.sampling_plan import BUDGET_S, QUICK
from tools.selftest.models import Caught, Cheats, Promise, standing
from tools.selftest.sessions import Bench
from tools.selftest.tree import lay_cheats

CHEATS = Path("tests") / "cheats" / "ch01"
CHEATS_SHARE = 0.6  # of the time at most, for the cheats and their honest twins; the chapters' own pairs come then
SAMPLES = 6  # of each variant, in three rounds: by the wall of one alone, an honest step seemed to escape its clock
FEWEST_HONEST = 10  # pairs of the chapters, for a promise about honest ones


def experiment(bench: Bench, scratch: Path) -> Cheats:
    """The cheats with their honest twins, then honest pairs of the chapters: some, or in the full form all."""
    found = Cheats()
    if (bench.root / CHEATS).is_dir():
        bench.say("cheats: cheats and their honest twins")
        seconds = CHEATS_SHARE * (bench.deadline - time.monotonic())
        summary = _run_suite(bench, lay_cheats(scratch, bench.root / CHEATS), seconds, iterations=SAMPLES)
        found.not_run = list(summary.not_run)
        for result in summary.pairs:
            found.rows += caught(result, cheating=True)
    else:
        found.not_run = [f"those of {bench.root / CHEATS}, which is not there"]
    able = _able_pairs(bench)
    pairs = random.Random(bench.seed).sample(able, min(len(able), bench.form.honest_pairs))
    if pairs:
        bench.say(f"cheats: {len(pairs)} honest pairs of the chapters")
        summary = _run_suite(bench, pairs, bench.deadline - time.monotonic())
        ran = [result.key for result in summary.pairs]
        found.honest_not_run = [pair.key for pair in pairs if pair.key not in ran]
        found.honest_pairs = sum(result.status == "measured" for result in summary.pairs)
        for result in summary.pairs:
            found.rows += caught(result, cheating=False)
    return found


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
            rows.append(
                Caught(pair=result.key, variant=row.name, honest=not cheats, refused=refused, reason=row.reason)
            )
    if result.status == "failed" and not any(row.refused for row in rows):  # such as for want of a baseline
        rows.append(Caught(pair=result.key, variant="itself", honest=True, refused=True, reason=result.reason))
    return rows


def promises(found: Cheats) -> list[Promise]:
    """All that cheat are refused, none that is honest."""
    cheats = [row for row in found.rows if not row.honest]
    honest = [row for row in found.rows if row.honest]
    accepted = [f"{row.pair}: accepted" for row in cheats if not row.refused]
    alarms = [f"{row.pair} {row.variant}: {row.reason}" for row in honest if row.refused]
    missed = [f"no time for {len(found.not_run)} pairs of cheats"] if found.not_run else []
    late = [f"{found.honest_pairs} pairs of the chapters run"]
    late += [f"no time for {len(found.honest_not_run)} more"] if found.honest_not_run else []
    return [
        Promise(
            experiment="cheats",
            promise="every cheat is refused",
            bound="all",
            measured=f"{len(cheats) - len(accepted)} of {len(cheats)}",
            standing=standing(tried=bool(cheats), kept=not found.not_run, refuted=bool(accepted)),
            note="; ".join([*accepted[:5], *missed]) or None,
        ),
        Promise(
            experiment="cheats",
            promise="no honest one is refused",
            bound="none",
            measured=f"{len(alarms)} of {len(honest)}",
            standing=standing(
                tried=bool(honest),
                kept=not (found.not_run or found.honest_not_run) and found.honest_pairs >= FEWEST_HONEST,
                refuted=bool(alarms),
            ),
            note="; ".join([*alarms[:5], *late]),
        ),
    ]
