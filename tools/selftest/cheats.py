"""Experiment 5, cheats: every variant that cheats is refused, and no honest one is."""

from collections.abc import Sequence
from pathlib import Path

from common.python.discovery import find_pairs
from common.python.results import PairResult, VariantResult
from tools.selftest.models import Caught, Cheats, Promise, Standing
from tools.selftest.sessions import Bench
from tools.selftest.suites import run_suite

CHEATS = Path("tests") / "cheats"
CHEATS_SHARE = 0.6  # of the time, for the cheats and their honest twins; the rest is for the chapters' own pairs
FEWEST_HONEST = 10  # pairs of the chapters, for a promise about honest ones


def experiment(bench: Bench, scratch: Path) -> Cheats:
    """The cheats with their honest twins, then as many honest pairs of the chapters as there is time for."""
    found = Cheats(rows=[], unsupported=[], not_run=[])
    seconds = bench.form.seconds["cheats"]
    if (bench.root / CHEATS).is_dir():
        bench.say("cheats: cheats and their honest twins")
        summary = run_suite(bench, bench.root / CHEATS, ["all"], CHEATS_SHARE * seconds, iterations=2, shuffled=True)
        found.not_run = list(summary.not_run)
        _take(found, summary.pairs, cheating=True)
    else:
        found.not_run.append(f"those of {bench.root / CHEATS}, which is not there")
    files = [  # peers are others' code, and compile for long
        f"{pair.chapter}/{variant.name}.py"
        for pair in find_pairs(bench.root)
        for variant in pair.variants
        if variant.role != "peer"
    ]
    if files:
        bench.say("cheats: honest pairs of the chapters")
        summary = run_suite(bench, bench.root, files, (1 - CHEATS_SHARE) * seconds, iterations=2, shuffled=True)
        found.honest_not_run = list(summary.not_run)
        found.honest_pairs = sum(result.status == "measured" for result in summary.pairs)
        _take(found, summary.pairs, cheating=False)
    return found


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
    late = [f"{found.honest_pairs} pairs of the chapters run, no time for {len(found.honest_not_run)}"]
    few = bool(found.not_run) or found.honest_pairs < FEWEST_HONEST
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
