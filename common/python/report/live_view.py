"""What a person sees of a long command: lines that scroll above a footer with a bar; plain lines in a pipe."""

import sys
import threading
import time

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from common.python.base.text import clean
from common.python.report.tables import wide_console

SILENT_S = 30.0  # after this long without output, a pipe gets a line of progress
BAR_WIDTH = 40
AT_WORK = 3  # lines of the footer for what is at work


def aside() -> Console:
    """The terminal that stdout is; else stderr, which keeps progress out of the data in a pipe."""
    return wide_console() if sys.stdout.isatty() else Console(stderr=True)


class LiveView:
    """Progress of a command over its parts. A context manager, so that the terminal is left as it was.

    Any thread may call its methods. A thread of its own shows it again after 30 s without output.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or wide_console()
        self.done, self.total, self.noun = 0, 0, ""
        self.proven = 0  # of them; for the bar that is half of the work
        self.told = time.monotonic()
        self.since = self.told, 0  # when the parts began that tell how long the rest will take, and how many were done
        self.running: dict[str, str] = {}  # what is at work, by name
        self.lock = threading.RLock()
        self.closed = threading.Event()
        self.live = Live(console=self.console, auto_refresh=False, transient=True)  # draws nothing into a pipe

    def __enter__(self) -> "LiveView":
        self.closed.clear()
        threading.Thread(target=self._watch, daemon=True).start()
        self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closed.set()
        self.live.stop()

    def _watch(self) -> None:
        while not self.closed.wait(max(1.0, self.told + SILENT_S - time.monotonic())):
            self.refresh()

    def expect(self, total: int, noun: str = "") -> None:
        """How many parts follow, and what the footer calls them: `proofs`. With their mean it gives the time left."""
        with self.lock:
            self.done, self.total = 0, total
            self.running.clear()
            self.restart(noun)

    def restart(self, noun: str = "") -> None:
        """Count the time left from here on, since the parts that are done took another time."""
        with self.lock:
            self.noun, self.since = noun, (time.monotonic(), self.done)
            self.refresh()

    def begin(self, name: str, doing: str = "") -> None:
        """A part is at work, or has come to its next phase."""
        with self.lock:
            self.running[name] = ", ".join(filter(None, (clean(name), clean(doing))))
            self.refresh()

    def end(self, name: str = "") -> None:
        """A part is done."""
        with self.lock:
            self.done += 1
            self.running.pop(name, None)
            self.refresh()

    def tell(self, line: Text | str) -> None:
        """Print a line to stdout, above the footer."""
        with self.lock:
            if self.console.is_terminal and not self.console.stderr:
                self.console.print(Text(line) if isinstance(line, str) else line, soft_wrap=isinstance(line, str))
            elif not self.console.quiet:
                print(f"{line}\n", end="", flush=True)  # whole lines, from any thread
            self.told = time.monotonic()

    def refresh(self) -> None:
        """Draw the footer anew; tell a pipe the progress, unless it heard something not long ago."""
        with self.lock:
            if self.console.is_terminal:
                self.live.update(self.footer(), refresh=True)
            elif time.monotonic() - self.told >= SILENT_S:
                line = ": ".join(filter(None, (self.progress(), "; ".join(self.running.values()))))
                self.console.print(line, soft_wrap=True, markup=False, highlight=False)
            else:
                return
            self.told = time.monotonic()

    def progress(self) -> str:
        """`33 of 68, 120 s left`."""
        (began, before), left = self.since, ""
        if before < self.done < self.total:
            left_s = (time.monotonic() - began) / (self.done - before) * (self.total - self.done)
            left = f", {left_s:.0f} s left" if left_s < 100 else f", {left_s / 60:.0f} min left"
        return f"{self.noun} {self.done} of {self.total}{left}".lstrip() if self.total else ""

    def footer(self) -> Group:
        """What is at work, and a bar with the progress beside it."""
        lines, told = list(self.running.values()), self.progress()
        more = [f"and {len(lines) - AT_WORK} more"] * (len(lines) > AT_WORK)
        width = min(BAR_WIDTH, self.console.width - len(told) - 1)
        bar = Table.grid(padding=(0, 1))
        bar.add_row(ProgressBar(max(1, self.total), max(self.done, (self.done + self.proven) / 2), width), told)
        return Group(*(Text(line, "dim") for line in [*lines[:AT_WORK], *more]), bar)


SILENCE = LiveView(Console(quiet=True))
