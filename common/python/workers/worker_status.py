"""Who is at work in a worker, and on what: written there, and read by the parent when nobody answers any more.

A file of a line for the worker, then one for each of its ranks, where it has any. Each has a log too, whose end holds
the stack of a process that crashed or was asked for it.
"""

import faulthandler
import os
import re
import signal
import weakref
from pathlib import Path
from typing import NamedTuple

LINE_BYTES = 512
LOG_BYTES = 1 << 20  # at the end of a log that are kept
TAIL = 8000  # characters at the end of a log, in which a stack is looked for
WAITING = (  # what a stack without the variant's own file says of a rank; the first that is found
    (r"/ranks\.py", "waits for the other ranks"),
    (r"/distributed\.py.* in _next", "has done its part"),
    (r"/distributed\.py.* in _join", "joins the other ranks"),
    (r" in synchronize", "waits for its GPU"),
)


class State(NamedTuple):
    """What a line says; user code shares the worker's memory, so it may be anything."""

    pid: str
    who: str
    what: str
    rank: str


class StatusBoard:
    """The lines in a file; `log` is that of the worker itself."""

    def __init__(self, path: Path, log: Path, ranks: int = 0) -> None:
        self._log, self._file = log, path.open("r+b")
        weakref.finalize(self, self._file.close)
        self.ranks = range(1, 1 + ranks)  # the lines of ranks

    def say(self, line: int, who: str, what: str, rank: int | str = "") -> None:
        text = f"{os.getpid()}|{who}|{what}|{rank}".encode()[:LINE_BYTES].ljust(LINE_BYTES)
        os.pwrite(self._file.fileno(), text, line * LINE_BYTES)

    def read(self, line: int) -> State:
        text = os.pread(self._file.fileno(), LINE_BYTES, line * LINE_BYTES).decode(errors="replace").strip("\0 ")
        pid, who, what, rank = (text.split("|", 3) + [""] * 3)[:4]
        return State(pid, who or "workload", what or "start", rank)

    def log(self, line: int) -> Path:
        return self._log if line == 0 else self._log.with_suffix(f".rank{line - 1}.log")

    def tail(self, line: int, characters: int = TAIL) -> str:
        log = self.log(line)
        if not log.exists():
            return ""
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - characters))
            return file.read().decode(errors="replace")

    def shorten(self) -> None:
        """Cut off the start of logs that a pair has filled: the disk must last for a whole suite."""
        for line in (0, *self.ranks):
            log = self.log(line)
            if log.exists() and log.stat().st_size > LOG_BYTES:
                log.write_text(f"[the start is left out]\n{self.tail(line, LOG_BYTES)}", "utf-8")

    def place(self, line: int) -> str:
        """Where in its own file a variant was, if the end of the log has the stack."""
        found = re.search(rf'File "[^"\n]*/({re.escape(self.read(line).who)}\.py)", line (\d+)', self.tail(line))
        return f" at {found[1]}:{found[2]}" if found else ""

    def asserted(self) -> str:
        """Where a kernel's assertion failed, as CUDA wrote it into a log: the variant had returned by then."""
        logs = "".join(self.tail(line) for line in (0, *self.ranks))
        found = re.search(r"([\w-]+\.cuh?):(\d+): .* Assertion `.*` failed", logs)
        return f" at {found[1]}:{found[2]}" if found else ""

    def whereabouts(self) -> tuple[str, str]:
        """Whose code all were in, and what it was doing; of ranks, where each of them is."""
        if not self.ranks:
            return self.read(0).who, self.read(0).what + self.place(0)
        first = min(self.ranks, key=lambda line: not self.place(line))  # one in the variant's code, if there is any
        told = [f"rank {self.read(line).rank or line - 1}{self._standing(line)}" for line in self.ranks]
        return self.read(first).who, f"{self.read(first).what}: {', '.join(told)}"

    def _standing(self, line: int) -> str:
        tail = self.tail(line)
        waits = re.search(r'/(?:distributed_c10d|ranks)\.py", line \d+ in (\w+)', tail)  # in a collective
        within = f" in {waits[1]}" if waits else ""
        if place := self.place(line):
            return f" is{place}{within}"
        told = (f" {told}{within}" for pattern, told in WAITING if re.search(pattern, tail))
        return next(told, " does not say where it is")


def how_ended(code: int | None) -> str:
    """What an exit code says of a process."""
    if code is None:
        return "closed its connection to the harness"
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"


def speak_into(log: str | Path) -> None:
    """Send stdout and stderr there, and the stacks of a crash or, on SIGUSR1, of all threads."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
