"""What a person sees of a run: on a terminal a line a pair above a bar, then a table; plain lines in a pipe."""

import time
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

from common.python.base.results import PairResult, Summary
from common.python.base.text import clean, wide_console
from common.python.report.rows import (
    footers,
    interval_text,
    pair_line,
    short_line,
    suite_table,
    suite_title,
    variant_table,
)
from common.python.stats.verdict import headline_row

TABLE_WIDTH = 80  # columns of a terminal below which the lines of the pairs are all there is
SILENT_S = 30.0  # without output, after which the next event prints the progress to a pipe
BAR_WIDTH = 40


class Display:
    """Shows a suite as it runs; `show` is its listener. A context manager, so that the terminal is left as it was."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or wide_console()
        self.done, self.pairs = 0, 0
        self.started = self.told = time.monotonic()
        self.running: dict[str, str] = {}  # what each pair is at
        self.live = Live(console=self.console, auto_refresh=False, transient=True) if self.console.is_terminal else None

    def __enter__(self) -> "Display":
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.stop()

    def expect(self, pairs: int) -> None:
        """How many pairs will be run: with their mean so far it gives the time left."""
        self.pairs, self.started = pairs, time.monotonic()

    def show(self, phase: str, result: PairResult) -> None:
        """Hear that a pair has entered a phase, finished a round, is proven, or is done."""
        if phase in ("done", "proven"):  # what is proven waits for its turn to be timed
            self.running.pop(result.key, None)
        else:
            own = headline_row(result)
            so_far = interval_text(own.speedup) if own and own.speedup else ""
            self.running[result.key] = ", ".join(filter(None, (clean(result.key), clean(phase), so_far)))
        if phase == "done":
            self.done += 1
            self._tell(short_line(result) if self.live else pair_line(result))
        if self.live is not None:
            self.live.update(self._footer(), refresh=True)
        elif time.monotonic() - self.told > SILENT_S and self.running:
            self._tell(self.progress())

    def _tell(self, line: Text | str) -> None:
        if self.live is not None:
            self.console.print(line, no_wrap=isinstance(line, Text) and line.no_wrap, overflow="ellipsis")
        else:
            print(line, flush=True)
        self.told = time.monotonic()

    def progress(self) -> str:
        """`33 of 68, 120 s left: ch07:transpose, samples`."""
        left = ""
        if 0 < self.done < self.pairs:
            spent_s = time.monotonic() - self.started
            left = f", {spent_s / self.done * (self.pairs - self.done):.0f} s left"
        return f"{self.done} of {self.pairs}{left}: " + "; ".join(self.running.values())

    def _footer(self) -> Group:
        bar = ProgressBar(max(1, self.pairs), self.done, min(BAR_WIDTH, self.console.width))
        return Group(Text(self.progress(), no_wrap=True, overflow="ellipsis"), bar)

    def finish(self, summary: Summary, folder: Path) -> None:
        """What a run ends with: the table and the lines under it, for single files their times, and the folder."""
        for result in summary.pairs:
            if len(result.variants) == 1 and result.variants[0].wall:
                self.console.print(variant_table(result))
        if self.live is not None and self.console.width >= TABLE_WIDTH:
            self.console.print(suite_table(summary.pairs, self.console.width))
        else:
            print("\n".join([suite_title(summary.pairs), *footers(summary.pairs)]))
        for reason in dict.fromkeys(summary.not_run.values()):
            print(f"not run, {reason}: {', '.join(key for key, why in summary.not_run.items() if why == reason)}")
        faster = [
            (own.speedup.ratio, result.key)
            for result in summary.pairs
            if result.verdict == "faster" and (own := headline_row(result)) and own.speedup
        ]
        if faster:
            show = f"`benchmark_cli show {clean(max(faster)[1])}`"
            print(f"next: open {folder / 'report.html'}, or {show} for two sources side by side")
        print(f"results: {folder}")
