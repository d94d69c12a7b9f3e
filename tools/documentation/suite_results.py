"""What a whole suite gave, kept to be read: `python -m tools.documentation.suite_results RUN [ANOTHER ...]`.

Into docs/results/<gpu>/suite/ go the run's summary.json, summary.csv and summary.md, less samples, proofs, logs and
what names a machine and not its kind (host, folders of the command line, environment, GPUs' UUIDs); a chart of its
speedups; and how it compares with another machine's suite, which may be in several runs. Reasons and notes stay as
they were told.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from common.python.artifacts import Run, read_run
from common.python.hardware import file_name
from common.python.journal import write
from common.python.judgement import headline_row
from common.python.link_plots import standing_alone
from common.python.markdown import escaped, summary_csv, summary_markdown
from common.python.report import interval_text, time_text
from common.python.report_plots import gain_chart
from common.python.results import PairResult, Summary, VariantResult
from common.python.run_comparison import WARNING, Change, compare_runs
from tools.arguments import Arguments

ROOT = Path(__file__).resolve().parents[2]
PLACES = ("artifacts_dir", "resume", "suite_timeout")
SAME = 0.03  # between two medians; what is further apart is listed
Timed = tuple[Change, float, float]  # with A's median and B's, in microseconds


def keep(folder: Path, others: Sequence[Path], root: Path) -> list[Path]:
    """Write the files and give their names. Raises ValueError for what is no finished run, or was none on a GPU."""
    run = read_run(folder)
    device = next((pair.device for pair in run.summary.pairs if pair.device not in (None, "cpu")), None)
    if device is None:
        raise ValueError(f"{folder} measured nothing on a GPU")
    kept, place = anonymous(run.summary), root / "docs" / "results" / file_name(device) / "suite"
    texts = {
        "summary.json": kept.model_dump_json(indent=1) + "\n",
        "summary.csv": summary_csv(kept),
        "summary.md": f"{summary_markdown(kept)}\n{in_short(kept.pairs)}\n\n![Speedups](speedups.svg)\n",
        "speedups.svg": standing_alone(gain_chart(kept.pairs)),
    }
    if others:
        texts["comparison.md"] = comparison_page(run, [read_run(other) for other in others])
    place.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write(place / name, text)
    return [place / name for name in texts]


def anonymous(summary: Summary) -> Summary:
    """The summary less samples, proofs, logs and names of a machine; its time is that of its pairs."""
    about = summary.manifest
    gpus = [replace(gpu, uuid="") for gpu in about.machine.gpus]
    manifest = about.model_copy(
        update={
            "command": ["benchmark_cli", "run", *about.targets],
            "options": {name: value for name, value in about.options.items() if name not in PLACES},
            "machine": replace(about.machine, hostname="", gpus=gpus),
            "topology": None,
            "environment": {},
        }
    )
    pairs = [pair.model_copy(update={"blocks": [], "log": "", "variants": _unproven(pair)}) for pair in summary.pairs]
    return summary.model_copy(update={"manifest": manifest, "seconds": sum(map(_seconds, pairs)), "pairs": pairs})


def _unproven(pair: PairResult) -> list[VariantResult]:
    return [row.model_copy(update={"proofs": []}) for row in pair.variants]


def _seconds(pair: PairResult) -> float:
    return sum(pair.seconds.values())


def in_short(pairs: Sequence[PairResult]) -> str:
    """The medians that a reader asks for first, and which verdicts decide nothing, with the reason."""
    rows = {pair.key: headline_row(pair) for pair in pairs if pair.verdict not in ("invalid", "too noisy")}
    reached = {key: row.percent_of_limit for key, row in rows.items() if row and row.percent_of_limit is not None}
    peers = [pair.peer_ratio.ratio for pair in pairs if pair.peer_ratio and pair.verdict != "invalid"]
    took = [_seconds(pair) for pair in pairs if pair.status == "measured"]
    lines = [f"{len(took)} pairs in {sum(took):.0f} s, {sum(took) / len(took):.1f} s each"] if took else []
    if reached:
        worst = min(reached, key=lambda key: reached[key])
        lines.append(f"median {median(reached.values()):.0f}% of the limit; least {reached[worst]:.1f}%, {worst}")
    if peers:
        lines.append(f"median {median(peers):.2f} of the best peer, over {len(peers)} pairs that have one")
    without = [pair for pair in pairs if pair.verdict in ("invalid", "too noisy", "inconclusive")]
    lines += [f"{pair.key} is {pair.verdict}: {_why(pair)}" for pair in without]
    return "\n".join(f"- {escaped(line)}" for line in lines)


def _why(pair: PairResult) -> str:
    row = headline_row(pair)
    read = f"the speedup reads {interval_text(row.speedup)}" if row and row.speedup else "it has no speedup"
    return pair.reason or "; ".join([read, *pair.notes])


def comparison_page(run: Run, others: Sequence[Run]) -> str:
    """How many medians of two suites agree, and which do not."""
    changes = [change for other in others for change in compare_runs(run, other).changes]
    timed = [(one, one.a_us, one.b_us) for one in changes if one.a_us and one.b_us]
    apart = [entry for entry in timed if _apart(entry)]
    clocks = {pair.key: pair.clock for pair in run.summary.pairs}
    also = clocks.keys() & {pair.key for other in others for pair in other.summary.pairs}
    a, b = (_commits(side) for side in ([run], others))
    parts = [
        "# One suite on two machines of one kind",
        f"A is of commit {a} and has {len(clocks)} pairs, B is of {b} and has {len(also)} of them. "
        f"{WARNING[0].upper()}{WARNING[1:]}.",
        f"Median times that agree within {SAME:.0%}: "
        + ", ".join(
            f"of {len(there)} variants timed {where}, {len(there) - sum(map(_apart, there))}"
            for where, clock in (("on the device", "device"), ("end to end", "end_to_end"))
            if (there := [entry for entry in timed if clocks[entry[0].pair] == clock])
        )
        + ". The others:",
        "\n".join(["| pair | variant | time A -> B | A over B |", "| --- | --- | --- | --- |", *map(_line, apart)]),
    ]
    return "\n\n".join(parts) + "\n"


def _apart(timed: Timed) -> bool:
    return abs(timed[1] / timed[2] - 1) > SAME


def _line(timed: Timed) -> str:
    one, a_us, b_us = timed
    cells = [one.pair, one.variant, f"{time_text(a_us)} -> {time_text(b_us)}"]
    return f"| {' | '.join(map(escaped, [*cells, interval_text(one.ratio) if one.ratio else '']))} |"


def _commits(runs: Sequence[Run]) -> str:
    return " and ".join(sorted({(run.summary.manifest.git_commit or "unknown")[:8] for run in runs}))


if __name__ == "__main__":
    words = Arguments("suite_results", __doc__)
    words.add_argument("run", type=Path, metavar="RUN")
    words.add_argument("others", type=Path, nargs="*", default=[], metavar="ANOTHER")
    asked = words.parse_args()
    try:
        for path in keep(asked.run, asked.others, ROOT):
            print(path)
    except (ValueError, OSError) as error:
        words.error(str(error))
