"""The server that workers are forked from: it has imported torch, which takes a fresh interpreter seconds.

A fork takes a third of one.
"""

import atexit
import errno
import multiprocessing
import os
import signal
import sys
import tempfile
from multiprocessing import forkserver, resource_tracker
from typing import Any

from common.python.base.interrupt import sheltered

PRELOAD = ["__main__", "torch", "triton", "common.python.workers.commands"]
COMPILERS, INDUCTOR = "common.python.workers.preload", "torch._inductor"  # which take as long to import as torch itself
LEFT = "ignore:resource_tracker:UserWarning"  # by killed workers: the tracker removes it, and would say so at the end


def warm_up_forkserver(*further: str) -> None:
    """Start importing torch, and `further` modules, in the background while the parent still reads files."""
    multiprocessing.set_forkserver_preload([*PRELOAD, *further])
    sys.warnoptions.append(LEFT)  # the tracker gets those of the interpreter that starts it
    try:
        resource_tracker.ensure_running()  # which unblocks Ctrl-C behind itself: not inside
    finally:
        sys.warnoptions.remove(LEFT)
    try:
        with sheltered():  # it imports torch for seconds before it ignores Ctrl-C
            forkserver.ensure_running()
    except OSError as error:
        if error.errno is not None:
            raise
        said = "too long a path for the sockets of processes; set TMPDIR to a shorter one"
        raise OSError(errno.ENAMETOOLONG, said, tempfile.gettempdir()) from error
    atexit.register(_end_forkserver)


def _end_forkserver() -> None:
    """It may still be importing torch, and would hold this process's stdout and stderr open until that is done."""
    server: Any = forkserver._forkserver
    if server._forkserver_pid is not None:  # dead or alive, the number is its own until somebody waits for it
        os.kill(server._forkserver_pid, signal.SIGKILL)


def let_forkserver_end() -> None:
    """Close the pipe whose end tells the forkserver that the parent is dead.

    Every child is handed it: a hung one would keep the forkserver, and so itself, alive after `kill -9` of the parent.
    """
    server: Any = forkserver._forkserver
    if server._forkserver_alive_fd is not None:
        os.close(server._forkserver_alive_fd)
        server._forkserver_alive_fd = None
