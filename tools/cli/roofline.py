"""`benchmark_cli roofline`: what physics allows each pair, from its cost and a GPU's peaks; nothing is run or timed."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import typer

from common.python.base.journal import write
from common.python.base.results import Cost, PairResult
from common.python.corpus.discovery import choose
from common.python.performance_targets import Peaks, limit, total
from common.python.report.artifacts import read_run
from common.python.report.charts import roofline_chart, standing_alone
from common.python.report.rows import time_text
from common.python.report.tables import text_table, wide_console
from common.python.workers.process import START_LIMIT_S, WorkerError, one_worker
from tools.cli.estimating import find_gpu

COLUMNS = ("pair", "FLOP/B", "bound by", "at least", "measured", "% of limit")


def show(root: Path, targets: Sequence[str], gpu: str | None, artifacts_dir: Path) -> None:
    """A table and a chart of what a GPU allows these pairs: one by name, by its datasheet, else the one here."""
    name, _, peaks = find_gpu(gpu, artifacts_dir)
    found = costs(root, targets)
    lines = [_line(key, cost, peaks) if not isinstance(cost, str) else (key, cost) for key, cost in found.items()]
    _print(f"{name}: {peaks.source}", lines)
    known = [(key.rpartition(":"), cost) for key, cost in found.items() if not isinstance(cost, str)]
    at_limits = [
        PairResult(chapter=chapter, name=pair, status="proven", cost=total(phases), limit=limit(phases, peaks))
        for (chapter, _, pair), phases in known
    ]
    if chart := roofline_chart(at_limits, peaks):
        write(path := artifacts_dir / f"roofline-{name.replace(' ', '-')}.svg", standing_alone(chart))
        typer.echo(f"chart: {path}")


def costs(root: Path, targets: Sequence[str], size: str = "bench") -> dict[str, list[Cost] | str]:
    """The cost of each pair at a size, by phase, or why there is none. Raises ValueError if one ends its worker."""
    pairs = choose(root, targets)
    told: dict[str, Any] = {}
    for place in dict.fromkeys(pair.folder.root for pair in pairs):
        modules = {pair.key: pair.baseline_module for pair in pairs if pair.folder.root == place}
        how = {"module": "common.python.verify.cost_audit", "function": "costs"}
        try:
            with TemporaryDirectory(prefix="benchmark-") as logs, one_worker(place, Path(logs) / "log") as worker:
                found = worker.call("call", START_LIMIT_S, baselines=list(modules.values()), size=size, **how)
        except WorkerError as error:
            raise ValueError(f"{error.who}: {error.reason}") from error
        told |= {key: found[module] for key, module in modules.items()}
    without = [pair for pair in pairs if not (pair.folder.path / f"baseline_{pair.name}.py").exists()]
    told |= {pair.key: f"no baseline_{pair.name}.py" for pair in without}
    return {key: cost if isinstance(cost, str) else [Cost(**phase) for phase in cost] for key, cost in told.items()}


def show_run(folder: Path) -> None:
    """What a run measured, under its own peaks."""
    found = read_run(folder)
    costed = [(pair, pair.phases or [pair.cost]) for pair in found.summary.pairs if pair.cost]
    lines = [_line(pair.key, phases, found.peaks, pair) for pair, phases in costed]
    _print(found.peaks.source if found.peaks else "no peaks", lines)
    typer.echo(f"chart: {folder / 'report.html'}")


def _line(key: str, phases: Sequence[Cost], peaks: Peaks | None, measured: PairResult | None = None) -> tuple[str, ...]:
    cost, least = total(phases), limit(phases, peaks)
    intensity = f"{cost.flops / cost.hbm:.3g}" if cost.hbm and cost.flops else ""
    cells = [key, intensity, least.resource if least else "", time_text(least.us) if least else "no peak for it"]
    own = measured.headline if measured else None
    if measured and own and measured.trusted(own) and (us := measured.us(own)):
        cells += [time_text(us), f"{own.percent_of_limit:.3g}%" if own.percent_of_limit else ""]
    return tuple(cells)


def _print(source: str, lines: Sequence[tuple[str, ...]]) -> None:
    wide_console().print(text_table(COLUMNS[: max(map(len, lines), default=4)], lines, source, whole=("pair",)))
