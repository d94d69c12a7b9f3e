"""Measured links between GPUs, drawn and shown in chapter 4."""

import io
from collections.abc import Sequence
from pathlib import Path

from common.python.base.hardware import file_name
from common.python.base.journal import write
from common.python.base.text import clean
from common.python.peaks import store
from common.python.peaks.display import MESSAGE_NAMES, curve_text, size_text
from common.python.peaks.store import Curve
from common.python.report.markdown import escaped, replace_between_markers

RESULTS, KEPT, PICTURE = Path("docs") / "results", "links.json", "all_reduce.svg"
CHAPTER = Path("ch04") / "README.md"
BEGIN, END = "<!-- links:begin -->", "<!-- links:end -->"


def publish_links(path: Path, root: Path) -> list[Path]:
    """Keep the curves of a file of peaks, draw them, and show them in chapter 4; gives the files written.

    Raises ValueError, in one line, for a file that cannot be read or has no curves, and for a README without markers.
    """
    survey = store.load(path)
    if survey is None:
        raise ValueError(f"there is no {path}: name a file of peaks, artifacts/peaks/<UUID>.json or a run's peaks.json")
    if not survey.curves:
        raise ValueError(f"{path} has no curves over message sizes: `benchmark_cli peak` measures them on two GPUs")
    chapter = root / CHAPTER
    text = chapter.read_text()
    replace_between_markers(text, "", BEGIN, END)  # which raises before anything is written
    named = {curve.name for curve in survey.curves}
    links = survey.model_copy(update={"uuid": "", "peaks": [peak for peak in survey.peaks if peak.name in named]})
    kept = root / RESULTS / file_name(survey.device) / KEPT
    write(kept, links.model_dump_json(indent=1))
    write(kept.with_name(PICTURE), link_chart(survey.curves))
    write(chapter, replace_between_markers(text, links_section(root), BEGIN, END))
    return [kept, kept.with_name(PICTURE), chapter]


def link_chart(curves: Sequence[Curve]) -> str:
    """An SVG file: the bandwidth of a link and the time of a message over its size, each with a 95% band."""
    from matplotlib import rc_context  # slow to load
    from matplotlib.figure import Figure

    figure, file = Figure(figsize=(9, 4), layout="constrained"), io.StringIO()
    panels = figure.subplots(1, 2)
    for curve, line in zip(curves, ("-", "--")):
        sizes = [point.bytes for point in curve.points]
        seconds = [[getattr(point, name) for point in curve.points] for name in ("seconds", "low", "high")]
        rates = [[curve.share * size / s / 1e9 for size, s in zip(sizes, times)] for times in seconds]
        for axes, (middle, low, high) in zip(panels, (rates, [[1e6 * s for s in times] for times in seconds])):
            axes.plot(sizes, middle, line, label=MESSAGE_NAMES.get(curve.name, clean(curve.name).replace("$", "")))
            axes.fill_between(sizes, low, high, alpha=0.3)
    for axes, label in zip(panels, ("bus bandwidth, GB/s", "time of a message, us")):
        axes.set(xscale="log", yscale="log", xlabel="bytes of the message", ylabel=label)
        axes.set_xticks([2.0**power for power in range(10, 31, 5)], map(size_text, [2.0**p for p in range(10, 31, 5)]))
        axes.legend()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "links"}):  # text stays text, and a file like its data
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def links_section(root: Path) -> str:
    """What chapter 4 shows of the links that were measured: a picture for each GPU with its figures, by its files."""
    parts = []
    for kept in sorted((root / RESULTS).glob(f"*/{KEPT}")):
        if survey := store.load(kept):
            place = f"../{RESULTS.as_posix()}/{kept.parent.name}/{PICTURE}"
            versions = ", ".join(f"{name} {version}" for name, version in survey.versions.items() if version)
            parts.append(f"![Bus bandwidth and time of a message over its size]({place})")
            parts.append(escaped(f"{survey.device}, {survey.measured:%Y-%m-%d}, {versions}."))
            parts.append("\n".join(f"- {escaped(curve_text(curve))}" for curve in survey.curves))
    return "\n\n".join(parts)
