"""What a person sees of a run: on a terminal a line a pair above a bar, then a table; plain lines in a pipe."""

import os
import shlex
from pathlib import Path

from rich.console import Console, Group
from rich.text import Text

from common.python.base.results import PairResult, Summary
from common.python.base.text import clean
from common.python.corpus.targets import CHAPTERS, homes
from common.python.report import rows
from common.python.report.live_view import LiveView
from common.python.report.markdown import times
from common.python.report.tables import text_table


class Display(LiveView):
    """Shows a suite as it runs; `show` is its listener."""

    def __init__(self, console: Console | None = None) -> None:
        super().__init__(console)
        self.on_cpu = False

    def show(self, phase: str, result: PairResult) -> None:
        """Hear that a pair has entered a phase, finished a round, is proven, or is done."""
        if phase == "proven":  # it waits for its turn; how long the rest takes is counted from the last proof on
            self.proven += 1
            self.running.pop(result.key, None)
            self.restart(f"{self.proven} proven,")
            return
        if phase == "done":
            self.on_cpu |= result.on_cpu
            terminal = self.console.is_terminal
            self.tell(rows.terminal_line(result, self.console.width) if terminal else rows.pair_line(result))
            self.end(result.key)
            return
        own = result.headline
        so_far = rows.interval_text(own.speedup) if own and own.speedup else ""
        self.begin(result.key, ", ".join(filter(None, (phase, so_far))))

    def footer(self) -> Group:
        """The names of the columns, above the pairs at work and the progress bar."""
        loud = [Text("times of the CPU, not of a GPU", rows.LOUD)] * self.on_cpu
        legend = [Text(rows.at_stops(rows.SHORT, self.console.width), "dim")] * (self.console.width >= rows.STOPS_NEED)
        return Group(*loud, *legend, super().footer())

    def finish(self, summary: Summary, folder: Path, note: str = "") -> None:
        """Print the end of a run: the table, its footers, times of files asked for by name, a note, the folder."""
        for result in summary.pairs:
            if len(result.variants) == 1 and result.variants[0].wall:
                shown = times(result)
                lines = shown.lines or [(result.variants[0].label, rows.verdict_text(result, result))]
                self.console.print(text_table(shown.columns, lines, f"{result.key}, {result.clock} clock"))
        if self.console.is_terminal and self.console.width >= rows.STOPS_NEED:
            self.console.print(rows.suite_table(summary.pairs, self.console.width))
        else:
            for line in (rows.suite_title(summary.pairs), *rows.footers(summary.pairs)):
                self.tell(Text(line))  # which a narrow terminal wraps between words
        for reason in dict.fromkeys(summary.not_run.values()):
            left = ", ".join(key for key, why in summary.not_run.items() if why == reason)
            self.tell(Text(f"not run, {reason}: {left}"))
        if note:
            self.tell(Text(note))
        opened = f"`benchmark_cli report --open {shlex.quote(str(folder))}`"
        self.tell(Text(f"report: {folder / 'report.html'}; {opened} shows it"))
        self.tell(Text(f"next: {next_command(summary, folder)}"))
        self.tell(Text(f"results: {folder}"))


def next_command(summary: Summary, folder: Path) -> str:
    """The one command that helps most after this run, and what for."""
    if summary.origins and not summary.complete:
        return "`benchmark_cli merge` again, once the pairs that are lacking have been run"
    if not summary.complete:
        return f"`benchmark_cli run --resume {shlex.quote(str(folder))}` continues this run"
    places = homes(Path(os.devnull), summary.manifest.targets) | {name: name for name in CHAPTERS}
    words = [f"{places.get(result.chapter, result.chapter)}:{result.name}" for result in summary.pairs]
    pairs = dict(zip(map(shlex.quote, map(clean, words)), summary.pairs))
    if failed := [key for key, result in pairs.items() if result.failed]:
        return f"`benchmark_cli verify {failed[0]}` says what is wrong, by file and line"
    if doubtful := [key for key, result in pairs.items() if result.verdict in ("too noisy", "inconclusive")]:
        ref = summary.manifest.options.get("against")
        against = f" --against {shlex.quote(str(ref))}" if ref else ""
        return f"`benchmark_cli run {doubtful[0]}{against} --budget 10` measures it for longer"
    heads = {key: own.speedup for key, result in pairs.items() if (own := result.headline)}
    if gains := [(gain.ratio, key) for key, gain in heads.items() if gain]:
        return f"`benchmark_cli show {max(gains)[1]}` shows two sources side by side"
    return "`benchmark_cli list --runnable` names the pairs that can be timed here"
