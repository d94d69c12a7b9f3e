"""Which runs are held against expectations, and which make new ones: sound ones, alike, and of these the median."""

import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from common.python.base.results import STANDS_APART, Interval, Manifest, PairResult, Summary
from common.python.base.safe_read import read_model
from common.python.base.text import counted
from common.python.regress import environment
from common.python.regress.expectations import FEWEST_RUNS, Expectation, Time, origin
from common.python.report.artifacts import Run, changed, read_run
from common.python.report.rows import blame
from common.python.stats.intervals import control_ok, interval, round_log_times

PROVEN_GAINS = ("faster", "smaller")
Outcome = tuple[PairResult, Manifest]


def run_folders(place: Path) -> list[Path]:
    """The run that this folder is, or the runs in it that are called by their start, the newest last.

    A run that is unfinished counts, so that an older one is never taken for it. Raises ValueError if there is none.
    """
    found = [place] if _is_run(place) else sorted(filter(_is_run, place.glob("[0-9]*Z")))
    if not found:
        right = "name a folder of runs, such as artifacts, or that of a run in it"
        raise ValueError(f"{place} holds no run: {right}")
    return found


def _is_run(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("manifest.json", "summary.json"))


def alike(folders: Sequence[Path], newest: Run) -> tuple[list[Run], list[str]]:
    """The runs of the newest one's sources in its environment, itself the last, and why others were left out."""
    runs, told = [], []
    for folder in folders:
        if folder == newest.folder:
            continue
        try:
            other = read_model(folder / "summary.json", Summary)
            reason = unlike(other, newest.summary)
            if reason is None:
                runs.append(read_run(folder))
        except ValueError as error:
            reason = str(error)
        told += [f"{folder.name}: {reason}"] if reason else []
    return [*runs, newest], told


def unlike(other: Summary, newest: Summary) -> str | None:
    """Why two runs may not be taken together: another harness, or another environment."""
    if differing := environment.harness_changes(other.manifest, newest.manifest):
        return f"of other sources: {differing[0]}{' and others' * (len(differing) > 1)}"
    facts = [environment.facts_of_run(one.manifest, environment.device_of(one)) for one in (other, newest)]
    different = environment.differences(*facts)
    return f"of another environment: {', '.join(different)}" if different else None


def expectations_of(runs: Sequence[Run], root: Path, provisional: bool) -> tuple[list[Expectation], list[str]]:
    """What to expect of each pair of the last run; and, a line a pair, which runs that was not made of, and why."""
    chosen, told, newest = [], [], runs[-1].summary.manifest
    for pair in runs[-1].summary.pairs:
        outcomes, left_out = [], defaultdict(list)
        for run in runs:
            for one in (one for one in run.summary.pairs if one.key == pair.key):
                about = run.about(one)
                if reason := doubt(one, about) or _another(one, about, pair, newest):
                    left_out[reason].append(run.folder.name)
                else:
                    outcomes.append((one, about))
        missing = max(0, (1 if provisional else FEWEST_RUNS) - len(outcomes))
        if not missing:
            chosen.append(made_of(outcomes, root))
        if left_out or missing:
            held = f"not recorded, {counted(len(outcomes), 'sound run')}, {missing} more needed"
            why = "; ".join(f"{reason} ({', '.join(names)})" for reason, names in left_out.items())
            told.append(": ".join(filter(None, [pair.key, held if missing else "left out", why])))
    return chosen, told


def doubt(result: PairResult, about: Manifest) -> str | None:
    """Why this result is nothing to expect: not proven, not faster, or not measured alone, as users would run it."""
    measured = [row for row in result.variants if row.status == "measured"]
    unproven = [row.name for row in measured if not row.proofs or any(proof.reason for proof in row.proofs)]
    apart = [note for note in result.notes if note.startswith(STANDS_APART)]
    seen = [block.telemetry for block in result.blocks if block.telemetry and block.discarded is None]
    mode = environment.mode(about)
    doubts = (
        (result.failed, f"it failed: {blame(result)}"),
        (result.status != "measured", f"it is {result.status}: {result.reason or 'it was not measured'}"),
        (result.on_cpu, "it was measured on the CPU"),
        (result.size != "bench", f"its size is {result.size}, not bench"),
        (mode != "usual", f"it was run as {mode}"),
        (result.verdict not in PROVEN_GAINS, f"it is {result.verdict}, not {' or '.join(PROVEN_GAINS)}"),
        (unproven, f"{''.join(unproven[:1])} holds no proof"),
        (not (result.control and control_ok(result.control)), "its control is missing or reads other than 1"),
        (apart, f"it was {''.join(apart[:1])}"),
        (any(telemetry.other_processes for telemetry in seen), "other processes were on the GPU"),
    )
    return next((reason for found, reason in doubts if found), None)


def _another(one: PairResult, about: Manifest, newest: PairResult, now: Manifest) -> str | None:
    """A run of other files, of another shape, or of some of the variants says nothing about the pair as it is now."""
    if files := changed(newest, about, now):
        return f"it is of other sources: {', '.join(files)}"
    variants = [{row.name for row in pair.variants if row.status == "measured"} for pair in (one, newest)]
    same = variants[0] == variants[1] and environment.problem(one) == environment.problem(newest)
    return None if same else "its shape, clock, goal or variants are not those of the newest run"


def made_of(outcomes: Sequence[Outcome], root: Path) -> Expectation:
    """The expectation of sound outcomes: that of the median gain, of an even number the lower of the two."""
    result, about = sorted(outcomes, key=lambda outcome: _gain(outcome[0]))[(len(outcomes) - 1) // 2]
    commit, dirty = origin(about, root)
    rows = [row.model_copy(update={"proofs": []}) for row in result.variants]
    speedups = [row.speedup.ratio for one, _ in outcomes if (row := one.headline) and row.speedup]
    times = [time.us for one, _ in outcomes if (time := own_time(one))]
    memory = [_gain(one) for one, _ in outcomes] if result.goal == "memory" else []
    several = len(outcomes) >= FEWEST_RUNS
    further = where_further(over_runs(times)) if several and times else None
    return Expectation(
        measured=about.started,
        commit=commit,
        dirty=dirty,
        versions=about.versions,
        driver=about.machine.driver,
        cuda=about.machine.cuda_driver,
        power_limit_w=environment.power_limit_w(about),
        sm_mhz=environment.sm_mhz(result.blocks),
        pace_us=environment.pace_us(result.blocks),
        cpu=about.machine.cpu,
        runs=len(outcomes),
        speedup=over_runs(speedups) if several else None,
        time=Time(us=further.ratio, low=further.low, high=further.high) if further else own_time(result),
        memory_ratio=where_further(over_runs(memory)) if several and memory else None,
        result=result.model_copy(
            update={"blocks": [], "log": "", "seconds": {}, "seed": None, "host": None, "variants": rows}
        ),
    )


def _gain(result: PairResult) -> float:
    gain = result.gain(row) if (row := result.headline) else None
    return gain.ratio if gain else 0.0


def over_runs(ratios: Sequence[float]) -> Interval:
    """The median of the runs' ratios with the t interval of their mean: in it is what differs from run to run."""
    found = interval([math.log(ratio) for ratio in ratios])
    if found is None:
        raise ValueError("an interval over runs needs two of them")
    half, middle = math.sqrt(found.high / found.low), median(ratios)
    return Interval(ratio=middle, low=middle / half, high=middle * half, rounds=len(ratios))


def where_further(over: Interval) -> Interval:
    """Where a further run's lies, by the interval over runs: t s sqrt(1 + 1 / n) each way in place of t s / sqrt(n)."""
    half = math.sqrt(over.high / over.low) ** math.sqrt(over.rounds + 1)
    return Interval(ratio=over.ratio, low=over.ratio / half, high=over.ratio * half, rounds=over.rounds)


def own_time(result: PairResult) -> Time | None:
    """The headline variant's time on the headline clock, with its interval over rounds; None for too few rounds."""
    row = result.headline
    found = interval(round_log_times(result.blocks, row.name, result.clock or "device")) if row else None
    return Time(us=found.ratio, low=found.low, high=found.high) if found else None
