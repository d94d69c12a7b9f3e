"""How a command ends: what an error means, what is said of it, and output that cannot be written."""

import errno
import io
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import typer

from common.python.base.interrupt import SuiteTimeUp
from common.python.base.lock import Busy, Claim, hold
from common.python.base.text import clean

PLAIN: dict[str, Any] = {  # of every command line: its help is text, and its errors are lines
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,  # rich's Markdown costs more than all else that --help does
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
DONE, FAILED, USAGE, SLOWER, NOTHING, INTERRUPTED = 0, 1, 2, 3, 4, 130
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # for what is written; never of what is read


def usage(message: str, program: str = "benchmark_cli") -> typer.Exit:
    """Say in one line what was wrong and what would be right; the caller raises what is returned."""
    typer.echo(f"{program}: {clean(message)}", err=True)
    return typer.Exit(USAGE)


@contextmanager
def exits(place: Path | None = None, program: str = "benchmark_cli") -> Iterator[None]:
    """End a command by what an error means: 2 for what the user can mend, 4 where nothing could run, 130 by Ctrl-C.

    And 1 where the time of a suite is up. `place` is what cannot be used by an OSError that names no file; without a
    place such errors pass.
    """
    try:
        yield
    except typer.Exit:
        raise
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except (ValueError, ArithmeticError) as error:  # the latter from figures that no run measures
        raise usage(str(error), program) from error
    except OSError as error:
        if place is None:
            raise
        raise usage(f"cannot use {error.filename or place}: {error.strerror or error}", program) from error
    except SuiteTimeUp as error:
        typer.echo(f"{program}: {error}", err=True)
        raise typer.Exit(FAILED) from error
    except (RuntimeError, Busy) as error:
        typer.echo(f"{program}: {str(error).strip()}", err=True)
        raise typer.Exit(NOTHING) from error


def told(line: str) -> None:
    """Say it beside the results. Unbuffered, since a signal handler says things too, in the middle of anything."""
    os.write(2, f"benchmark_cli: {line}\n".encode())


def written(command: Callable[[], int]) -> int:
    """The exit code of a command, whose output has been written; else one line says that it is lost.

    Raises what is another error.
    """
    _open_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # what a terminal cannot show
    try:
        code = command()
        sys.stdout.flush()
        return code
    except OSError as error:
        if error.filename is not None or error.errno not in NO_ROOM:
            raise
        told(f"the output cannot be written: {error.strerror}")
        hush()
        return FAILED


def _open_streams() -> None:
    """Where a standard stream is closed (`>&-`), the next file that is opened would get its number, and its text."""
    while (number := os.open(os.devnull, os.O_RDWR)) < 3:
        os.set_inheritable(number, True)
    os.close(number)
    sys.stdout, sys.stderr = sys.stdout or os.fdopen(1, "w"), sys.stderr or os.fdopen(2, "w")


def hush() -> None:
    """Nothing more goes to the output: what cannot be written now of its buffer could not be at the end either."""
    with suppress(OSError):
        sys.stdout.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def claims(stack: ExitStack, wait: bool) -> Claim:
    """The function that takes a device's lock for as long as `stack` lives, at once or after waiting for it."""

    def claim(uuid: str | None) -> None:
        stack.enter_context(hold(uuid, told, wait))

    return claim


def age_s() -> float:
    """How long this process has run: on a busy machine its imports are a part of the suite's time that counts."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])  # proc(5): field 22, starttime
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def make_room(file: Path | None) -> None:
    """Make the folder of a file that is written last, while a wrong name has cost nothing. Raises the exit for one.

    A file in it, of as long a name as `journal.write` needs, tells whether it takes one.
    """
    if file is None:
        return
    if not file.name:
        raise usage("--junit '' names no file")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        tempfile.NamedTemporaryFile(dir=file.parent, prefix=file.name).close()
    except OSError as error:
        raise usage(f"cannot write {file}: {error.strerror or error}") from error
