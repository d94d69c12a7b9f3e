"""What a person sees of a run: a live table on a terminal, plain lines in a pipe."""

import time
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.live import Live

from common.python.base.results import PairResult, Summary
from common.python.base.text import clean, wide_console
from common.python.report.rows import Row, footers, interval_text, pair_line, suite_table, suite_title, variant_table
from common.python.stats.verdict import headline_row


class Display:
    """Shows a suite as it runs; `show` is its listener. A context manager, so that the terminal is left as it was."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or wide_console()
        self.done: list[PairResult] = []
        self.pairs, self.started = 0, time.monotonic()
        self.running: dict[str, Row] = {}
        self.live = Live(console=self.console, auto_refresh=False) if self.console.is_terminal else None

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
            self.running[result.key] = Row(clean(result.key), "running", so_far, why=clean(phase))
        if phase == "done":
            self.done.append(result)
        if self.live is not None:
            self.live.update(suite_table(self.done, self._running()), refresh=True)
        elif phase == "done":
            print(pair_line(result), flush=True)

    def _running(self) -> list[Row]:
        """A line for each pair at work; the last one tells the time left."""
        running = list(self.running.values())
        if self.done and running:
            spent_s = time.monotonic() - self.started
            left_s = max(0.0, spent_s / len(self.done) * self.pairs - spent_s)
            running[-1] = replace(running[-1], why=f"{running[-1].why}, {left_s:.0f} s left")
        return running

    def finish(self, summary: Summary, folder: Path) -> None:
        """What a run ends with: in a pipe the lines under the table, for single files their times, and the folder."""
        for result in summary.pairs:
            if len(result.variants) == 1 and result.variants[0].wall:
                self.console.print(variant_table(result))
        if self.live is None:
            print("\n".join([suite_title(summary.pairs), *footers(summary.pairs)]))
        for reason in dict.fromkeys(summary.not_run.values()):
            print(f"not run, {reason}: {', '.join(key for key, why in summary.not_run.items() if why == reason)}")
        print(f"results: {folder}")
