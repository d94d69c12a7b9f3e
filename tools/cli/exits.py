"""How a command line ends: what an error means, what is said of it, and output that cannot be written."""

import errno
import io
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

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
UsageError: Any = typer.BadParameter.__bases__[0]  # click's, or that of the copy of click which newer typers carry
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # for what is written; never of what is read


def alone(function: Callable[..., None], told: str | None = None) -> typer.Typer:
    """A command line of one command, whose help is this text or else the function's own."""
    commands = typer.Typer(add_completion=False, **PLAIN)
    commands.command(help=told)(function)
    return commands


def ended(commands: typer.Typer, program: str, words: list[str] | None = None) -> NoReturn:
    """End this process as a command line does: what an error means is the exit code, what it says is one line.

    Of errors 2 is for what the user can mend, 4 for where nothing could run, 1 for a suite whose time is up and for
    output that is lost. Any other is a traceback.
    """
    # Where a standard stream is closed (`>&-`), the next file that is opened would get its number, and its text.
    while (number := os.open(os.devnull, os.O_RDWR)) < 3:
        os.set_inheritable(number, True)
    os.close(number)
    sys.stdout, sys.stderr = sys.stdout or os.fdopen(1, "w"), sys.stderr or os.fdopen(2, "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # what a terminal cannot show
    line = ""
    try:
        code = commands(words, standalone_mode=False, prog_name=None if words is None else program)
        sys.stdout.flush()
    except UsageError as error:
        command = error.ctx.command_path if error.ctx else program
        code, line = USAGE, f"{error.format_message().rstrip('.')}; see `{command} --help`"
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except (ValueError, ArithmeticError) as error:  # the latter from figures that no run measures
        code, line = USAGE, str(error) or repr(error)
    except OSError as error:
        if error.filename is not None:
            code, line = USAGE, f"cannot use {error.filename}: {error.strerror or error}"
        elif error.errno in NO_ROOM:
            code, line = FAILED, f"the output cannot be written: {error.strerror}"
            hush()
        else:
            raise
    except (RuntimeError, Busy, SuiteTimeUp) as error:
        code, line = FAILED if isinstance(error, SuiteTimeUp) else NOTHING, str(error) or repr(error)
    if line:
        typer.echo(f"{program}: {clean(line)}", err=True)
    sys.exit(code)


def told(line: str) -> None:
    """Say it beside the results. Unbuffered, since a signal handler says things too, in the middle of anything."""
    os.write(2, f"benchmark_cli: {line}\n".encode())


def hush() -> None:
    """Nothing more goes to the output: what cannot be written now of its buffer could not be at the end either."""
    with suppress(OSError):
        sys.stdout.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


@contextmanager
def claims(wait: bool) -> Iterator[Claim]:
    """The function that takes a device's lock, at once or after waiting for it. The locks are given back at the end."""
    with ExitStack() as stack:
        yield lambda uuid: stack.enter_context(hold(uuid, told, wait))


def age_s() -> float:
    """How long this process has run: on a busy machine its imports are a part of the suite's time that counts."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])  # proc(5): field 22, starttime
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
