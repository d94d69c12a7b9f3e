"""Worker processes: user code runs in here, the parent keeps files, clocks and judgement.

Workers come from a forkserver that has imported torch (a fresh interpreter takes seconds, a fork a third of one); each
has a reaper above it, so that what it started dies with it. Messages are JSON: the parent never unpickles
what a worker sends.
"""

import contextlib
import mmap
import multiprocessing
import os
import re
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from common.python.channel import Channel, Forged
from common.python.interrupt import sheltered
from common.python.reaper import parent_of, split

PRELOAD = ["__main__", "torch", "triton", "torch._inductor", "common.python.bench"]  # _inductor: the profiler needs it
STATE_BYTES = 512
DUMP_S = 0.3  # time for a hung worker to write its stack before it is killed
LOG_BYTES = 1 << 20  # of a log that is kept: the half at its start and the half at its end
CLOSE_S = 1.0  # an idle worker ends within milliseconds once its connection is closed
STOP_S = 5.0


class WorkerError(Exception):
    """The worker could not answer: `who` was at work, `kind` says whether it raised, died or hung."""

    def __init__(self, kind: str, who: str, reason: str, out_of_memory: bool = False) -> None:
        super().__init__(reason)
        self.kind, self.who, self.reason, self.out_of_memory = kind, who, reason, out_of_memory


def warm_up_forkserver() -> None:
    """Start importing torch in the background while the parent still reads files."""
    multiprocessing.set_forkserver_preload(PRELOAD)
    from multiprocessing import forkserver, resource_tracker

    resource_tracker.ensure_running()  # which unblocks Ctrl-C behind itself: not inside
    with sheltered():  # it imports torch for seconds before it ignores Ctrl-C
        forkserver.ensure_running()


class Worker:
    """One process that holds the variants of a pair (all of them, or one where they are isolated)."""

    def __init__(self, root: Path, scratch: Path, log: Path, settings: dict[str, Any], fresh: bool = False) -> None:
        """Start it. `fresh` asks for a new interpreter; `log` gets its stdout and stderr, `scratch` its files."""
        context: Any = multiprocessing.get_context("spawn" if fresh else "forkserver")
        multiprocessing.set_forkserver_preload(PRELOAD)
        scratch.mkdir(parents=True, exist_ok=True)
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log, self._state_file = log, scratch.parent / f"{scratch.name}.state"
        self._state_file.write_bytes(b" " * STATE_BYTES)
        ours, theirs = context.Pipe()
        self._channel, self._pid = Channel(ours), 0
        settings = settings | {"fresh": fresh}
        arguments = (theirs, str(root), str(scratch), str(log), str(self._state_file), settings)
        self._process = context.Process(target=_main, args=arguments, name="benchmark-worker")
        with sheltered():
            self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        """The worker's own, below its reaper; 0 until it has started. What the state says is user code's to spoil."""
        said = self._state()[0]
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
        """Begin a command, so that several workers can be at work at once; `answer` waits for the end."""
        with contextlib.suppress(OSError):  # a worker that died is noticed, and told of, by `answer`
            self._channel.ask(command, arguments)

    def answer(self, timeout_s: float) -> Any:
        """Wait for the command that was asked. Raises as `call` does."""
        try:
            answer = self._channel.answer(timeout_s)
        except TimeoutError as error:
            raise self._hung(timeout_s) from error
        except Forged as error:
            raise self._forged() from error
        except (EOFError, OSError) as error:
            raise self._died() from error
        if "error" in answer:
            raise WorkerError("raised", answer["who"], answer["error"], answer["out_of_memory"])
        return answer["value"]

    def _hung(self, timeout_s: float) -> WorkerError:
        who, what = self.state()
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGUSR1)  # faulthandler writes every thread's stack to the log
                time.sleep(DUMP_S)
        self.kill()
        where = what + self._place(who)
        return WorkerError("hung", who, f"no answer within {timeout_s:.0f} s during {where}; its stack is in the log")

    def _forged(self) -> WorkerError:
        who, what = self.state()
        self.kill()
        return WorkerError("forged", who, f"something wrote to the harness's connection during {what}")

    def _died(self) -> WorkerError:
        who, what = self.state()
        self._process.join(STOP_S)
        code = self._process.exitcode
        self.kill()
        how = f"was killed by {signal.Signals(-code).name}" if code and code < 0 else f"exited with code {code}"
        return WorkerError("died", who, f"the worker {how} during {what}{self._place(who)}")

    def _place(self, who: str) -> str:
        """Where in its own file a variant was, if the end of the log has the stack."""
        found = re.search(rf'File "[^"\n]*/({re.escape(who)}\.py)", line (\d+)', self.log_tail())
        return f" at {found[1]}:{found[2]}" if found else ""

    def state(self) -> tuple[str, str]:
        """Which variant was at work, and on what."""
        _, who, what = self._state()
        return who or "workload", what or "start"

    def _state(self) -> list[str]:
        text = self._state_file.read_bytes().decode(errors="replace").strip()
        return (text.split("|", 2) + ["", ""])[:3]

    def close(self) -> None:
        """Let the process end by itself, which frees its semaphores, and end what it started."""
        self._channel.close()
        self._process.join(CLOSE_S)
        self.kill()

    def kill(self) -> None:
        """End the process and all that it started, which its reaper knows."""
        self._process.terminate()
        self._process.join(STOP_S)
        self._process.kill()
        self._process.join(STOP_S)
        self._channel.close()
        _shorten(self.log)

    def log_tail(self, characters: int = 4000) -> str:
        if not self.log.exists():
            return ""
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - characters))
            return file.read().decode(errors="replace")


def _shorten(log: Path) -> None:
    """Cut out the middle of a log that a pair has filled: the disk must last for a whole suite."""
    if not log.exists() or (size := log.stat().st_size) <= LOG_BYTES:
        return
    half = LOG_BYTES // 2
    with log.open("r+b") as file:
        file.seek(-half, os.SEEK_END)
        end = file.read()
        file.seek(half)
        file.truncate()
        file.write(b"\n[%d bytes left out]\n" % (size - LOG_BYTES) + end)


def _main(connection: Connection, root: str, scratch: str, log: str, state: str, settings: dict[str, Any]) -> None:
    """The worker's life: detach from the terminal, follow the parent into death, answer commands."""
    _let_forkserver_end()
    split(connection.close)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # and forget one that came while it was blocked
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    _speak_into(log)

    import gc
    import importlib
    import traceback

    if settings["fresh"]:  # import what the forkserver has imported for the others
        for module in PRELOAD[1:]:
            importlib.import_module(module)
    from common.python.bench import Bench
    from common.python.preparation import VariantError

    gc.freeze()  # a collection would scan all of torch's objects, 0.2 s each time
    with open(state, "r+b") as file:
        board = mmap.mmap(file.fileno(), STATE_BYTES)

    at_work = ["workload"]

    def at(who: str, what: str) -> None:
        at_work[:] = [who]
        board[:] = f"{os.getpid()}|{who}|{what}".encode()[:STATE_BYTES].ljust(STATE_BYTES)

    at("workload", "")
    channel = Channel(connection)
    bench = Bench(Path(root), Path(scratch), settings, at)
    while True:
        try:
            word, command, arguments = channel.asked()
        except (EOFError, OSError):
            return
        try:
            answer = {"value": getattr(bench, command)(**arguments)}
        except SystemExit:
            traceback.print_exc()  # the parent finds in the log which line it was
            raise
        except Exception as error:
            told = error if isinstance(error, VariantError) else VariantError(at_work[0], error)
            answer = {"error": str(told), "who": told.who, "out_of_memory": told.out_of_memory}
        channel.reply(word, answer)


def _speak_into(log: str) -> None:
    """Send stdout and stderr there, and the stacks of a crash or, on SIGUSR1, of all threads."""
    import faulthandler

    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)


def _let_forkserver_end() -> None:
    """Close the pipe whose end tells the forkserver that the parent is dead.

    Every child is handed it: a hung one would keep the forkserver alive after `kill -9` of the parent, and thereby
    itself, since it dies with the forkserver.
    """
    from multiprocessing import forkserver

    server: Any = forkserver._forkserver
    if server._forkserver_alive_fd is not None:
        os.close(server._forkserver_alive_fd)
        server._forkserver_alive_fd = None
