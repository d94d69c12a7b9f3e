"""Suites of pairs, run as `run` runs them, with the peaks that were measured before."""

import random

from common.python.base.results import Summary
from common.python.corpus.discovery import Pair, find_pairs
from common.python.peaks import store
from common.python.run.eligibility import missing
from common.python.run.options import Options
from common.python.run.suite import open_suite
from common.python.stats.sampling_plan import BUDGET_S, QUICK
from tools.selftest.sessions import Bench


def able_pairs(bench: Bench) -> tuple[list[Pair], list[str]]:
    """The chapters' pairs without their peers that can be timed here, and the keys of all others.

    The quick form leaves out what Triton or torch.compile compiles, which took 19 s for two pairs on an H200's host.
    """
    able, unable = [], []
    for pair in find_pairs(bench.root):
        own = pair.only({variant.name for variant in pair.variants if variant.role != "peer"})
        here = bench.gpu or all(variant.kinds == ("PyTorch",) for variant in own.variants)
        if own.variants and here and not any(missing(own, variant, bench.machine) for variant in own.variants):
            able += [own] if bench.form.every_pair or not any(variant.compiles for variant in own.variants) else []
        else:
            unable.append(pair.key)
    return able, unable


def run_suite(bench: Bench, pairs: list[Pair], seconds: float, iterations: int | None = None) -> Summary:
    """A quick suite of these pairs in random order, for at most so many seconds."""
    place = bench.folder / "suites"
    if bench.uuid and (survey := store.load(store.path_of(bench.artifacts_dir, bench.uuid))):
        store.save(store.path_of(place, bench.uuid), survey)
    options = Options(
        targets=[f"{pair.chapter}/{variant.name}.py" for pair in pairs for variant in pair.variants],
        root=pairs[0].variants[0].path.parents[1],
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
    random.Random(bench.seed).shuffle(suite.pairs)  # what there is no time for is then not always the last chapters
    return suite.run()
