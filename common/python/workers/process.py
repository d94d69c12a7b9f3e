"""Worker processes: user code runs in them; the parent keeps the files, the time limits and the verdicts.

They are forked from a server that has imported torch, which takes a fresh interpreter seconds and a fork a third of
one. Each worker has a reaper above it, so that all processes it starts end with it. Messages are JSON: the parent never
unpickles what a worker sends.
"""

import atexit
import contextlib
import errno
import gc
import importlib
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from common.python.base.interrupt import sheltered
from common.python.base.machine import Machine, crowding, machine
from common.python.base.reaper import children, parent_of, split
from common.python.corpus.discovery import Pair
from common.python.workers.channel import Channel, Forged
from common.python.workers.interpreter import OtherPython
from common.python.workers.worker_status import StatusBoard, how_ended, speak_into

START_LIMIT_S = 120.0  # for the first worker, whose server imports torch
DUMP_S = 0.3  # time for a hung worker to write its stack before it is killed
STOP_S = 5.0
CLOSE_S = 1.0  # an idle worker ends within milliseconds once its connection is closed; a CUDA context takes 0.2 s
PRELOAD = ["__main__", "torch", "triton", "common.python.workers.commands"]
COMPILERS, INDUCTOR = "common.python.workers.preload", "torch._inductor"  # which take as long to import as torch itself
LEFT = "ignore:resource_tracker:UserWarning"  # by killed workers: the tracker removes it, and would say so at the end
ASSERTED = "device-side assert"  # CUDA's words for an assertion of a kernel that failed


class WorkerError(Exception):
    """The worker could not answer: `who` was at work, and what became of it there."""

    def __init__(self, who: str, reason: str) -> None:
        super().__init__(reason)
        self.who, self.reason = who, reason


class Worker:
    """One process that holds the variants of a pair (all of them, or one where they are isolated)."""

    def __init__(self, root: Path, scratch: Path, log: Path, settings: dict[str, Any], fresh: bool = False) -> None:
        """Start it. `fresh` asks for a new interpreter; `log` gets its stdout and stderr, `scratch` its files.

        With "ranks" in `settings`, that many processes do its work together; "launch" says how they find each other.
        "python" there is another interpreter than this one, which is always new.
        """
        context: Any = multiprocessing.get_context("spawn" if fresh else "forkserver")
        multiprocessing.set_forkserver_preload(PRELOAD)
        scratch.mkdir(parents=True, exist_ok=True)
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log, state = log, scratch.parent / f"{scratch.name}.state"
        state.write_bytes(b"")  # nothing of an earlier worker's
        self._board = StatusBoard(state, log, settings.get("ranks", 0))
        ours, theirs = context.Pipe()
        self._channel, self._pid = Channel(ours), 0
        python = settings.get("python")
        settings = settings | {"fresh": fresh or python is not None, "parent": os.getpid()}
        arguments = (str(root), str(scratch), str(log), str(state), settings)
        self._process: Any = None
        with sheltered():
            if python is not None:
                self._process = OtherPython(python, theirs.fileno(), log, arguments)
            else:
                self._process = context.Process(target=_main, args=(theirs, *arguments), name="benchmark-worker")
                self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        """The worker's own, below its reaper; 0 until it has started. User code could forge it, so it is checked."""
        said = self._board.read(0).pid
        if not self._pid and said.isdecimal() and parent_of(int(said)) == self._process.pid:
            self._pid = int(said)
        return self._pid

    def call(self, command: str, timeout_s: float, **arguments: Any) -> Any:
        """Run one command there and wait for its answer.

        Raises WorkerError when user code raised, when the process died, or when the time ran out (it is then killed).
        """
        self.ask(command, **arguments)
        return self.answer(timeout_s)

    def ask(self, command: str, **arguments: Any) -> None:
        """Begin a command; `answer` waits for its end."""
        with contextlib.suppress(OSError):  # `answer` reports a worker that died
            self._channel.ask(command, arguments)

    def answer(self, timeout_s: float) -> Any:
        """Wait for the answer to what was asked. Raises as `call` does."""
        deadline = time.monotonic() + timeout_s
        try:
            answer = self._channel.answer(timeout_s)
        except TimeoutError as error:
            raise self._lost(f"no answer within {max(0.0, timeout_s):.0f} s", self._dump_stacks()) from error
        except Forged as error:
            raise self._lost("something wrote to the harness's connection") from error
        except (EOFError, OSError) as error:
            self._process.join(min(STOP_S, max(CLOSE_S, deadline - time.monotonic())))
            raise self._lost(f"the worker {how_ended(self._process.exitcode)}") from error
        if "error" in answer:
            place = self._board.asserted() if ASSERTED in answer["error"] else ""
            raise WorkerError(answer["who"], answer["error"] + place)
        return answer["value"]

    def _lost(self, how: str, hint: str = "") -> WorkerError:
        """End the worker; the error names whose code was at work, and where."""
        who, where = self._board.whereabouts()  # before ranks write that their store is gone, behind their stacks
        self.kill()
        return WorkerError(who, f"{how} during {where}{hint}")

    def _dump_stacks(self) -> str:
        """Have the worker and its ranks write every thread's stack to their logs; a hint that says so."""
        if not self.pid:
            return "; it had hardly begun"
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR1)
        time.sleep(DUMP_S)
        return "; its stack is in the log"

    def pids(self) -> set[int]:
        """Of the worker and its ranks."""
        return {self.pid, *(children(self.pid) if self._board.ranks else ())}

    def part(self) -> None:
        """Let it end by itself."""
        self._channel.close()

    def await_end(self, limit_s: float) -> None:
        self._process.join(limit_s)

    def kill(self) -> None:
        """End the process and all that it started, which its reaper knows."""
        self._process.terminate()
        self._process.join(STOP_S)
        self._process.kill()
        self._process.join(STOP_S)
        self._channel.close()
        self._board.shorten()

    def log_tail(self, characters: int = 4000) -> str:
        """The end of what the worker and its ranks wrote."""
        return "".join(self._board.tail(line, characters) for line in (0, *self._board.ranks))


@contextlib.contextmanager
def one_worker(root: Path, log: Path, seed: int = 0, python: str | None = None) -> Iterator[Worker]:
    """A worker over the tree at `root`, for a few questions; in another Python, if one is named."""
    with tempfile.TemporaryDirectory(prefix="benchmark-", ignore_cleanup_errors=True) as scratch:
        worker = Worker(root, Path(scratch) / "worker", log, {"seed": seed, "reproducible": False, "python": python})
        try:
            yield worker
        finally:
            worker.kill()


def end_all(workers: Sequence[Worker]) -> None:
    """Let workers end by themselves, which frees their semaphores; kill those that do not within CLOSE_S."""
    deadline = time.monotonic() + CLOSE_S
    try:
        for worker in workers:
            worker.part()
        for worker in workers:
            worker.await_end(max(0.0, deadline - time.monotonic()))
    finally:
        for worker in workers:
            worker.kill()


def _main(connection: Connection, root: str, scratch: str, log: str, state: str, settings: dict[str, Any]) -> None:
    """The worker's life: detach from the terminal, follow the parent into death, answer commands."""
    server: Any = forkserver._forkserver
    # The end of this pipe tells the forkserver that the parent is dead. A hung worker would keep both alive.
    if server._forkserver_alive_fd is not None:
        os.close(server._forkserver_alive_fd)
        server._forkserver_alive_fd = None
    split(connection.close, settings["parent"] if settings["fresh"] else None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # and forget one that came while it was blocked
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    speak_into(log)
    board = StatusBoard(Path(state), Path(log), settings.get("ranks", 0))
    board.say(0, "workload", "")  # before a fresh interpreter imports torch, which takes seconds
    if not settings.get("gpu", True):
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # for ranks that are proven on CPUs, since there are too few GPUs
    for module in PRELOAD[1:] if settings["fresh"] else ():  # the forkserver has imported them for the others
        with contextlib.suppress(ImportError):  # another Python may have no Triton; the commands need the others
            importlib.import_module(module)
    from common.python.workers.commands import Commands

    gc.freeze()  # a collection would scan all of torch's objects, 0.2 s each time
    channel = Channel(connection)
    if settings.get("ranks"):
        from common.python.workers.distributed import Leader  # few pairs are on several GPUs

        leader = Leader(Path(root), Path(scratch), settings, board, connection)
        leader.lead(lambda: channel.serve(leader.perform))
    else:
        channel.serve(Commands(Path(root), Path(scratch), settings, partial(board.say, 0)).perform)


# The server that workers are forked from.


def open_machine(
    root: Path, folder: Path, pairs: Iterable[Pair] = (), reproducible: bool = False
) -> tuple[Machine, dict[str, Any]]:
    """This machine as a worker can use it, and what a worker's `describe` tells; its workers are to hold these pairs.

    Raises RuntimeError if no worker starts.
    """
    host = machine()
    if not host.gpus:
        os.environ["TRITON_INTERPRET"] = "1"  # read by triton when a worker imports it
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # no pool of compilers beside what is timed
    home = Path(os.environ.get("TRITON_HOME") or Path.home())
    os.environ.setdefault("TRITON_CACHE_DIR", str(home / ".triton" / "cache"))  # Inductor would move it in each process
    compiling = any(variant.uses_torch_compile or variant.autotunes for pair in pairs for variant in pair.variants)
    further = COMPILERS if compiling and host.gpus else INDUCTOR
    warm_up_forkserver(*([further] if compiling or host.gpus or reproducible else []))
    try:
        with one_worker(root, folder / "logs" / "describe.log") as worker:
            found = dict(worker.call("describe", START_LIMIT_S * crowding()))
    except WorkerError as error:
        raise RuntimeError(f"no worker could be started: {error.reason}\n{worker.log_tail()}") from error
    return host if found["device"] != "cpu" else replace(host, gpus=[]), found


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
