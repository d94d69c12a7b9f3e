"""How much communication is hidden, by the traces of a run: `python -m tools.documentation.overlap_results RUN`.

RUN is the folder of `benchmark_cli run ch04 --profile`; `--pairs` names others than the two whose point is overlap. A
table of every rank goes between markers of ch04/README.md, and rank 0 over time into docs/results/<gpu>/overlap.svg.
What counts as communication, waiting and arithmetic is said in `overlap`.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from common.python.base.hardware import file_name
from common.python.base.journal import write
from common.python.base.results import Manifest
from common.python.base.text import clean
from common.python.profile.profiled_why import DONE, during, length_us
from common.python.regress.expectations import origin
from common.python.report.artifacts import read_model
from common.python.report.charts import BAD, INK, PEER, STYLE, WIDTH, as_svg, name_text
from common.python.report.link_plots import standing_alone
from common.python.report.markdown import escaped, replace_between_markers
from common.python.report.publish import CHAPTER, RESULTS
from common.python.report.rows import time_text
from tools.arguments import USAGE, Arguments
from tools.documentation.overlap import Overlap, overlap

ROOT = Path(__file__).resolve().parents[2]
BEGIN, END, PICTURE = "<!-- overlap:begin -->", "<!-- overlap:end -->", "overlap.svg"
PAIRS = ("ch04:ddp_overlap", "ch04:tp_gemm_overlap")
COLUMNS = ("pair", "variant", "rank", "GPU step", "arithmetic", "communication", "hidden", "exposed", "waiting")
MEANS = "Hidden is communication while arithmetic runs; waiting is in kernels that do nothing else, as NCCL's do not."
ALT = "Arithmetic and communication of rank 0 over time"
LOOKS: dict[str, dict[str, Any]] = {
    "arithmetic": {"color": INK, "alpha": 0.45},
    "hidden communication": {"color": PEER},
    "exposed communication": {"color": BAD},
}


class Step(NamedTuple):
    """Whose step it is, and what the GPU did in it."""

    pair: str
    variant: str
    rank: int
    seen: Overlap


def read(run: Path, pair: str) -> list[Step]:
    """The steps of a pair by variant and rank. Raises ValueError, in one line, for no traces or half of one."""
    found = []
    for path in (run / pair.replace(":", "_") / "profiles").glob("*.rank*.trace.json"):
        variant, rank = path.name.removesuffix(".trace.json").rsplit(".rank", 1)
        label = variant.replace(f"_{pair.partition(':')[2]}", "", 1)
        try:
            events = [event for event in json.loads(path.read_bytes())["traceEvents"] if event.get("ph") == "X"]
            found.append(Step(pair, label, int(rank), overlap(during(events, DONE + variant))))
        except (ValueError, LookupError, TypeError, AttributeError, StopIteration) as error:
            told = str(error) or "it has no step"
            raise ValueError(f"{path} is no whole trace of a step on a GPU: {told}") from error
    if not any(step.rank == 0 for step in found):
        raise ValueError(f"{run} has no trace of rank 0 of {pair}: `benchmark_cli run {pair} --profile` leaves them")
    return sorted(found, key=lambda step: step[:3])


def table(steps: Sequence[Step]) -> str:
    lines: list[Sequence[str]] = [COLUMNS, ["---"] * len(COLUMNS)]
    for pair, variant, rank, seen in steps:
        spans = (seen.arithmetic, seen.communication, seen.hidden, seen.exposed, seen.waiting)
        times = [time_text(us) for us in (seen.step_us, *map(length_us, spans))]
        times[3] += f", {seen.share()}" if seen.share() else ""
        lines.append([escaped(pair), escaped(variant), str(rank), *times])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def timeline(steps: Sequence[Step]) -> str:
    """A panel a pair; a variant's upper row is its arithmetic on rank 0, its lower one its communication."""
    panels = [[step for step in steps if (step.pair, step.rank) == (pair, 0)] for pair in {s.pair: 0 for s in steps}]
    sizes = [len(panel) for panel in panels]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 0.3 + sum(0.6 + 0.4 * size for size in sizes)), layout="constrained")
        for axes, panel in zip(figure.subplots(len(panels), squeeze=False, height_ratios=sizes)[:, 0], panels):
            _draw(axes, panel)
        legend = [Patch(label=name, linewidth=0, **look) for name, look in LOOKS.items()]
        figure.legend(handles=legend, ncols=len(legend), loc="outside lower left", frameon=False, fontsize=8)
        return standing_alone(as_svg(figure, "overlap", ALT))


def _draw(axes: Any, panel: Sequence[Step]) -> None:
    for y, step in enumerate(panel):
        rows = zip((-0.2, 0.2, 0.2), (step.seen.arithmetic, step.seen.hidden, step.seen.exposed), LOOKS.values())
        for shift, spans, look in rows:
            for start, end in spans:
                axes.barh(y + shift, (end - start) / 1e3, 0.36, start / 1e3, linewidth=0, zorder=2, **look)
        told = f"{step.seen.share() or 'nothing'} hidden"
        axes.text(1.02, y + 0.2, told, transform=axes.get_yaxis_transform(), va="center")
    axes.set_title(f"{panel[0].pair}, ms", fontsize=9, loc="left")
    axes.set(xlim=(0, max(step.seen.step_us for step in panel) / 1e3), ylim=(len(panel) - 0.5, -0.5))
    axes.set_yticks(range(len(panel)), [name_text(step.variant) for step in panel])
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")


def keep(run: Path, pairs: Sequence[str], root: Path) -> list[Path]:
    """Write the picture and the page; gives their paths. Raises ValueError, in one line, before anything is written."""
    about = read_model(run / "manifest.json", Manifest)
    steps = [step for pair in pairs for step in read(run, pair)]
    gpus, (commit, dirty) = [gpu.name for gpu in about.machine.gpus], origin(about, root)
    if not gpus:
        raise ValueError(f"{run} was on no GPU")
    named = f"commit {commit[:8]}{' with uncommitted changes' * bool(dirty)}" if commit else "commit not recorded"
    of = f"One step of each under the profiler, where the host is slower: {gpus[0]}, {about.started[:10]}, {named}."
    picture = RESULTS / file_name(gpus[0]) / PICTURE
    told = f"{table(steps)}\n\n{MEANS}\n{escaped(of)}\n\n![{ALT}](../{picture.as_posix()})"
    try:
        page = replace_between_markers((root / CHAPTER).read_text(), told, BEGIN, END)
    except ValueError as error:
        raise ValueError(f"{root / CHAPTER}: {error}") from error
    (root / picture).parent.mkdir(parents=True, exist_ok=True)
    write(root / picture, timeline(steps))
    write(root / CHAPTER, page)
    return [root / picture, root / CHAPTER]


def main(words: Sequence[str], root: Path) -> int:
    parser = Arguments("overlap_results", __doc__)
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("--pairs", nargs="+", default=PAIRS, metavar="chNN:name")
    asked = parser.parse_args(words)
    try:
        print(*keep(asked.run, asked.pairs, root), sep="\n")
    except (ValueError, OSError) as error:
        print(f"overlap_results: {clean(str(error))}", file=sys.stderr)
        return USAGE
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], ROOT))
