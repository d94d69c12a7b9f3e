"""What a person sees: a live table on a terminal, plain lines in a pipe."""

import time
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.live import Live

from common.python.base.results import PairResult, Summary
from common.python.base.text import wide_console
from common.python.report.rows import Running, footers, pair_line, suite_table, suite_title, variant_table
from common.python.stats.verdict import headline_row


class Display:
    """Shows a suite as it runs; `show` is its listener. A context manager, so that the terminal is left as it was."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or wide_console()
        self.done: list[PairResult] = []
        self.pairs, self.started = 0, time.monotonic()
        self.running: dict[str, Running] = {}
        self.live = Live(console=self.console, auto_refresh=False) if self.console.is_terminal else None

    def __enter__(self) -> "Display":
        if self.live is not None:
            self.live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live is not None:
            self.live.__exit__(kind, value, trace)

    def expect(self, pairs: int) -> None:
        """How many pairs will be run: with their mean so far it gives the time left."""
        self.pairs, self.started = pairs, time.monotonic()

    def show(self, phase: str, result: PairResult) -> None:
        """Hear that a pair has entered a phase, finished a round, is proven, or is done."""
        if phase == "done":
            self.done.append(result)
            self.running.pop(result.key, None)
            if self.live is None:
                print(pair_line(result), flush=True)
        elif phase == "proven":  # it waits for its turn to be timed
            self.running.pop(result.key, None)
        else:
            own = headline_row(result)
            self.running[result.key] = {"pair": result.key, "doing": phase, "interval": own.speedup if own else None}
        if self.live is not None:
            self.live.update(suite_table(self.done, self._running()), refresh=True)

    def _running(self) -> list[Running]:
        running = list(self.running.values())
        if self.done and running:
            spent_s = time.monotonic() - self.started
            running[-1] = {**running[-1], "left_s": max(0.0, spent_s / len(self.done) * self.pairs - spent_s)}
        return running

    def finish(self, summary: Summary, folder: Path) -> None:
        """What a run ends with: in a pipe the lines under the table, for single files their times, and the folder."""
        alone = [result for result in summary.pairs if len(result.variants) == 1 and result.variants[0].wall]
        for result in alone:
            self.console.print(variant_table(result))
        if self.live is None:
            print(suite_title(summary.pairs))
            for line in footers(summary.pairs):
                print(line)
        for reason in dict.fromkeys(summary.not_run.values()):
            print(f"not run, {reason}: {', '.join(key for key, why in summary.not_run.items() if why == reason)}")
        print(f"results: {folder}")
