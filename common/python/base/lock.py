"""One measurement at a time on a GPU: a file lock for each, which the kernel gives back however its holder ends."""

import fcntl
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import IO

from common.python.base.interrupt import SuiteTimeUp
from common.python.base.text import clean

CPU = "cpu"  # what a machine without a GPU locks
MOST_BYTES = 4096
Claim = Callable[[str | None], object]  # takes the lock of the GPU with this UUID, or of the CPU


class Busy(Exception):
    """Somebody else measures there: who, in one line."""


def lock_file(uuid: str | None) -> Path:
    """Where every user of this machine looks for the lock of a GPU (by UUID, with or without "GPU-") or of the CPU."""
    return Path(tempfile.gettempdir()) / "benchmark_cli_locks" / f"{(uuid or CPU).removeprefix('GPU-')}.lock"


def hold(uuid: str | None, say: Callable[[str], None], wait: bool = True) -> IO[bytes]:
    """Take the lock; closing what is returned gives it back, and so does the end of the process.

    While another holds it, `say` hears who, and it is waited for; without `wait`, or once the suite's time is up, that
    raises Busy. Raises OSError where no lock file can be made.
    """
    file = _open(lock_file(uuid))
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        device = f"GPU {uuid}" if uuid else "the CPU"
        told = f"{device} is in use by {holder(file)}"
        if not wait:
            file.close()
            raise Busy(told) from None
        say(f"{told}: waiting (--no-wait ends with exit code 4 instead)")
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except SuiteTimeUp:
            raise Busy(told) from None
    if file.writable():
        started = datetime.now(timezone.utc).isoformat(timespec="seconds")
        about = {"pid": os.getpid(), "command": shlex.join(sys.argv), "started": started}
        file.truncate(0)
        os.pwrite(file.fileno(), json.dumps(about).encode()[:MOST_BYTES], 0)
    return file


def holder(file: IO[bytes]) -> str:
    """Who wrote itself into a lock file, as far as that can be read: anybody may write there."""
    try:
        about = json.loads(os.pread(file.fileno(), MOST_BYTES, 0))
        command, started = clean(str(about["command"])[:200]), clean(str(about["started"])[:40])
        return f"pid {int(about['pid'])} ({command}), since {started}"
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return "a process that has not said who it is"


def _open(path: Path) -> IO[bytes]:
    """The file of another user can be locked too, if not written. Links are not followed: anybody may write there."""
    if not path.parent.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.parent.chmod(0o1777)
    try:
        return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644), "r+b", buffering=0)
    except PermissionError:
        return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb", buffering=0)
