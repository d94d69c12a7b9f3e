"""Experiments 6 and 7: what a suite of pairs costs, by phase, and whether its results repeat."""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

from common.python.base.results import Interval, PairResult, Summary
from common.python.corpus.discovery import Pair, Variant, find_pairs
from common.python.peaks import store
from common.python.run.eligibility import compile_ahead, missing
from common.python.run.options import Options
from common.python.run.prebuild import Ahead, compiles
from common.python.run.suite import PAIR_LIMIT_S, Show, open_suite
from common.python.stats.sampling_plan import BUDGET_S, QUICK
from common.python.stats.verdict import headline_row
from common.python.workers.launch import ONE_HOST
from tools.selftest.binomial import at_least
from tools.selftest.models import Pass, Promise, Standing, Suites
from tools.selftest.sessions import Bench, compiled

DEFAULT_S, QUICK_S = BUDGET_S, QUICK * BUDGET_S  # sampling budgets of a default run and of a quick one
MOST_OVERHEAD_S, MOST_DEFAULT_S, MOST_QUICK_S = 1.0, 6.0, 2.0  # a pair
OPENING, WRITING = "opening the suite", "writing"
WORK = ("proof", "samples")  # what a pair is run for; all else is overhead
WIDENED, AGREE = 0.01, 0.95
FEWEST_PASSES, FEWEST_PAIRS = 5, 10  # for a promise about a suite


@dataclass
class Passes:
    """Runs of one choice of pairs, kept so that other experiments can share them."""

    chosen: list[str] = field(default_factory=list)
    rest: list[str] = field(default_factory=list)  # all others for which the machine has what they need
    unable: list[str] = field(default_factory=list)  # and those for which it lacks something
    default: list[Pass] = field(default_factory=list)
    honest: list[PairResult] = field(default_factory=list)  # of a quick run, in which peers take part


def choose(bench: Bench, passes: Passes, every: bool = False) -> None:
    """Choose of the chapters' pairs that can be timed here, at random but alike for one seed; compile these, or `every`
    pair, since all side by side are quicker than some and then the rest. The quick form chooses none that Triton or
    torch.compile compiles, which took 19 s for two pairs on an H200's host."""
    if passes.chosen:
        return
    pairs = find_pairs(bench.root)
    able = [pair.key for pair in pairs if _able(bench, pair)]
    faulty = [pair.key for pair in pairs if not pair.baseline or any(variant.problem for variant in _own(pair))]
    slow = [] if bench.form.every_pair else [pair.key for pair in pairs if any(map(compiles, pair.variants))]
    sound = [key for key in able if key not in (*faulty, *slow)]
    chosen = sorted(random.Random(bench.seed).sample(sound, min(len(sound), bench.form.suite_pairs)))
    rest = _without_peers(bench, [key for key in able if key not in chosen]) if every else []
    ready = _compiled(bench, [*(pair for pair in pairs if pair.key in chosen), *rest])
    passes.chosen = [key for key in chosen if key in ready]
    passes.unable = [pair.key for pair in pairs if pair.key not in able]
    passes.rest = [key for key in able if key not in passes.chosen]


def _own(pair: Pair) -> list[Variant]:
    """All but its peers."""
    return [variant for variant in pair.variants if variant.role != "peer"]


def _able(bench: Bench, pair: Pair) -> bool:
    """Whether the machine has what the pair needs; not whether the pair is in order."""
    here = bench.gpu or all(variant.kinds == ("PyTorch",) for variant in _own(pair))
    return here and not any(missing(pair, variant, bench.machine) for variant in _own(pair))


def _without_peers(bench: Bench, keys: Sequence[str]) -> list[Pair]:
    pairs = [pair for pair in find_pairs(bench.root) if pair.key in keys]
    return [pair.only({variant.name for variant in _own(pair)}) for pair in pairs]


def _files(pairs: Sequence[Pair]) -> list[str]:
    return [f"{pair.chapter}/{variant.name}.py" for pair in pairs for variant in pair.variants]


def _compiled(bench: Bench, pairs: Sequence[Pair]) -> list[str]:
    """Those of them whose .cu files compile; what else compiles is prepared ahead, too, and is then no pair's cost.

    Nor is it the experiment's: it ends as much later.
    """
    began = time.monotonic()
    compile_ahead(pairs, bench.machine, bench.gpu, ONE_HOST, bench.say)  # side by side
    pairs = [pair for pair in pairs if compiled(bench, pair) is None]
    ahead = Ahead(bench.root, bench.machine, None, bench.seed, False, PAIR_LIMIT_S, bench.deadline, share=1.0)
    ahead.compile(pairs, ONE_HOST, bench.say)
    bench.deadline += time.monotonic() - began
    return [pair.key for pair in pairs]


def run_suite(
    bench: Bench,
    root: Path,
    targets: list[str],
    seconds: float,
    iterations: int | None = None,
    budget_s: float = DEFAULT_S,
    shuffled: bool = False,
    show: Show = lambda phase, result: None,
) -> Summary:
    """A suite as `run` runs it, for at most so many seconds, with what peaks were measured before."""
    place = bench.folder / "suites"
    if bench.uuid and (survey := store.load(store.path_of(bench.artifacts_dir, bench.uuid))):
        store.save(store.path_of(place, bench.uuid), survey)
    options = Options(
        targets=targets,
        root=root,
        artifacts_dir=place,
        iterations=iterations,
        warmup=0 if iterations else None,
        suite_timeout=max(seconds, 1.0),
        seed=bench.seed,
        budget_s=budget_s,
        quick=budget_s == QUICK_S,
        survey=False,
    )
    suite = open_suite(options, show, say=lambda line: None)
    if shuffled:
        random.Random(bench.seed).shuffle(suite.pairs)  # what there is no time for is then not always the last chapters
    return suite.run()


def one_pass(
    bench: Bench, targets: list[str], budget_s: float, seconds: float, keep: Callable[[Pass], None]
) -> tuple[Pass, Sequence[PairResult]]:
    """Run these once; `keep` hears after every pair what there is so far."""
    began, done = time.monotonic(), list[PairResult]()

    def show(phase: str, result: PairResult) -> None:
        if phase == "done":
            done.append(result)
            keep(_pass(done, budget_s, time.monotonic() - began))

    summary = run_suite(bench, bench.root, targets, seconds, budget_s=budget_s, show=show)
    found = _pass(summary.pairs, budget_s, time.monotonic() - began)
    found.phases[OPENING] = found.seconds - summary.seconds
    if summary.complete:  # else the time of a pair that was cut off would be in it
        found.phases[WRITING] = summary.seconds - sum(s for result in summary.pairs for s in result.seconds.values())
    return found, summary.pairs


def _pass(results: Sequence[PairResult], budget_s: float, seconds: float) -> Pass:
    phases: dict[str, float] = {}
    for result in results:
        for phase, spent in result.seconds.items():
            phases[phase] = phases.get(phase, 0.0) + spent
    return Pass(
        budget_s=budget_s,
        seconds=seconds,
        pairs=[result.key for result in results],
        phases=phases,
        speedups={result.key: found for result in results if (found := _speedup(result))},
        failed={r.key: r.reason or "" for r in results if r.status == "failed" or r.verdict == "invalid"},
    )


def _speedup(result: PairResult) -> Interval | None:
    own = headline_row(result)
    return own.speedup if own and result.status == "measured" else None


def first_quick(bench: Bench, passes: Passes, every: bool = False) -> None:
    """Have a quick run of the chosen pairs; compile `every` pair before, if more are to run."""
    choose(bench, passes, every)
    if passes.chosen:
        passes.honest = list(_quick(bench, passes)[1])


def rest_quick(bench: Bench, passes: Passes) -> Sequence[PairResult]:
    """A quick run of the pairs that were not chosen, without peers, in random order, as far as the time goes."""
    bench.say(f"{len(passes.rest)} more pairs, quick")
    files = _files(_without_peers(bench, passes.rest))  # what does not compile is run all the same, and fails
    seconds = bench.deadline - time.monotonic()
    return run_suite(bench, bench.root, files, seconds, budget_s=QUICK_S, shuffled=True).pairs if files else []


def _quick(bench: Bench, passes: Passes, before: Sequence[Pass] = ()) -> tuple[Pass, Sequence[PairResult]]:
    """A quick run in which peers take part; it gets the time that its promise needs.

    `before` is what there is to be kept beside it, should the process end meanwhile.
    """
    bench.say(f"{len(passes.chosen)} pairs, quick")
    seconds = max(bench.deadline - time.monotonic(), 2 * MOST_QUICK_S * len(passes.chosen))

    def keep(sofar: Pass) -> None:
        if before:
            bench.keep(Suites(passes=[*before, sofar]))

    return one_pass(bench, passes.chosen, QUICK_S, seconds, keep)


def _default(bench: Bench, passes: Passes, targets: list[str]) -> None:
    """A default run of these, kept beside those before it; it, too, gets the time that its promise needs."""
    bench.say(f"{len(passes.chosen)} pairs by default, run {len(passes.default) + 1}")
    seconds = max(bench.deadline - time.monotonic(), MOST_DEFAULT_S * len(passes.chosen))

    def keep(sofar: Pass) -> None:
        bench.keep(Suites(passes=[*passes.default, sofar]))

    passes.default.append(one_pass(bench, targets, DEFAULT_S, seconds, keep)[0])


def cost(bench: Bench, scratch: Path, passes: Passes) -> Suites:
    """A default run of the chosen pairs, and a quick one behind it: a machine's first run compiles what compiles."""
    choose(bench, passes)
    if not passes.chosen:
        return Suites(passes=[])
    _default(bench, passes, passes.chosen)
    return Suites(passes=[*passes.default, _quick(bench, passes, passes.default)[0]])


def repeat(bench: Bench, scratch: Path, passes: Passes) -> Suites:
    """Default runs of the same pairs, that for the cost among them. In the others peers have no part."""
    choose(bench, passes)
    files = _files(_without_peers(bench, passes.chosen))
    while files and len(passes.default) < bench.form.suite_passes and not (passes.default and bench.out_of_time()):
        _default(bench, passes, files)
    return Suites(passes=passes.default)


def cost_promises(found: Suites) -> list[Promise]:
    """Seconds a pair: what is neither proof nor samples, and all of it, by default and in a quick run."""
    said = []
    if not any(one.pairs for one in found.passes):
        promise = "what is neither proof nor samples, a pair"
        bound = f"at most {MOST_OVERHEAD_S:.0f} s"
        return [Promise(experiment="cost", promise=promise, measured="-", bound=bound, standing="not run")]
    kinds = (("by default", MOST_DEFAULT_S), ("in a quick run", MOST_QUICK_S))
    for index, (one, (name, most)) in enumerate(zip(found.passes, kinds)):
        n = len(one.pairs)
        if n == 0:
            continue
        own = {phase: spent for phase, spent in one.phases.items() if phase != OPENING}
        overhead = sum(spent for phase, spent in own.items() if phase not in WORK) / n
        by_phase = ", ".join(f"{phase} {spent / n:.2f}" for phase, spent in own.items())
        note = f"{n} pairs; seconds a pair: {by_phase}"
        if OPENING in one.phases:  # else the run was cut off
            note += f"; opening the suite took {one.phases[OPENING]:.1f} s"
        if index == 0:
            said.append(_at_most("what is neither proof nor samples, a pair", overhead, MOST_OVERHEAD_S, n, note))
        said.append(_at_most(f"a pair {name}, on average", sum(own.values()) / n, most, n, note))
    return said


def _at_most(promise: str, seconds: float, most: float, pairs: int, note: str) -> Promise:
    standing: Standing = "undecided" if pairs < FEWEST_PAIRS else "refuted" if seconds > most else "kept"
    return Promise(
        experiment="cost",
        promise=promise,
        measured=f"{seconds:.2f} s",
        bound=f"at most {most:.0f} s",
        standing=standing,
        note=note,
    )


def agree(one: Interval, other: Interval) -> bool:
    """Whether each speedup lies in the other's interval, widened by 1% on both sides."""
    return all(a.low * (1 - WIDENED) <= b.ratio <= a.high * (1 + WIDENED) for a, b in ((one, other), (other, one)))


def disagreements(found: Suites) -> tuple[int, list[str]]:
    """How many times two runs were compared, and a line for each time that they disagree."""
    compared, lines = 0, []
    for (i, one), (j, other) in combinations(enumerate(found.passes, 1), 2):
        for key in one.speedups.keys() & other.speedups.keys():
            compared += 1
            if not agree(a := one.speedups[key], b := other.speedups[key]):
                lines.append(f"{key}: {_text(a)} in run {i}, {_text(b)} in run {j}")
    return compared, sorted(lines)


def _text(found: Interval) -> str:
    return f"{found.ratio:.3f} [{found.low:.3f}, {found.high:.3f}]"


def repeat_promises(found: Suites) -> list[Promise]:
    """Runs of the same pairs agree. Each is compared with each, so the share's interval is narrower than is due."""
    compared, lines = disagreements(found)
    said = at_least(
        "repeat",
        "two runs of a pair: each speedup lies in the other's interval, widened by 1%",
        compared - len(lines),
        compared,
        AGREE,
    )
    runs = sum(bool(one.pairs) for one in found.passes)
    pairs = {key for one in found.passes for key in one.pairs}
    budgets = " and ".join(f"{budget_s:g} s" for budget_s in sorted({one.budget_s for one in found.passes}))
    notes = [f"{runs} runs of {len(pairs)} pairs, which sample for {budgets} at most", *lines]
    notes += sorted({f"{key} failed: {why}" for one in found.passes for key, why in one.failed.items()})
    standing = said.standing
    if standing == "kept" and runs < FEWEST_PASSES:
        standing = "undecided"
    return [said.model_copy(update={"note": "; ".join(notes), "standing": standing})]
