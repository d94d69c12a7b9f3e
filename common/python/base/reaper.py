"""The process above a worker: whatever the worker leaves behind ends with it, in whichever session it hides.

Killing a process group misses a child that called setsid, and a child whose parent has died belongs to init, where no
one can tell whose it was. A subreaper (prctl(2)) is given such orphans instead: the reaper is one, so that all that
a worker ever starts stays below it, and can be ended when the worker ends, for whatever reason.
"""

import contextlib
import ctypes
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
HEARD = {signal.SIGTERM, signal.SIGCHLD}


def split(release: Callable[[], None], parent: int | None = None) -> None:
    """Split in two: this returns in a child, the worker to be, which leads a session of its own.

    The caller stays its reaper until the end: it mirrors the child's exit status once that and all descendants are
    gone. SIGTERM, or the death of the reaper's own parent, ends them all; if that is not `parent` any more, it has died
    already. `release` closes what the reaper must not hold open.
    """
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if parent is not None and os.getppid() != parent:
        os._exit(1)
    signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)
    os.setsid()  # Ctrl-C on the terminal is for the parent alone
    child = os.fork()
    if child == 0:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HEARD)
        os.setsid()
        return
    release()
    status = int(signal.SIGKILL)  # of the child, unless it ends before the order to end it
    while signal.sigwait(HEARD) == signal.SIGCHLD:
        ended, found = os.waitpid(child, os.WNOHANG)
        if ended:
            status = found
            break
    end_children()
    _leave(status)


def prctl(option: int, value: int) -> None:
    """Raises OSError where the kernel refuses."""
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value})")


def end_children() -> None:
    """Kill every descendant: the orphans of a killed child become children here, and are next."""
    with contextlib.suppress(ChildProcessError):
        while True:
            if os.waitpid(-1, os.WNOHANG)[0]:
                continue
            for pid in children(os.getpid()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            os.waitpid(-1, 0)


def children(parent: int) -> list[int]:
    """The children of a process, dead ones that nobody has waited for included."""
    numbers = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in numbers if parent_of(pid) == parent]


def parent_of(pid: int) -> int | None:
    """The number of a process's parent; None if there is no such process."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])  # proc(5): name, state, parent
    except OSError:
        return None


def _leave(status: int) -> NoReturn:
    """End as the worker ended, so that whoever waits for the reaper learns how that was."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the worker has left one, if any is wanted
        with contextlib.suppress(OSError):  # the action of SIGKILL cannot be set, and need not be
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status))
