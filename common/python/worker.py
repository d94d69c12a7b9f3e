"""Worker processes: user code runs in here, the parent keeps files, clocks and judgement.

Workers come from a forkserver that has imported torch (a fresh interpreter takes seconds, a fork a third of one); each
leads a process group of its own, so that what it started dies with it. Messages are JSON: the parent never unpickles
what a worker sends.
"""

import contextlib
import json
import mmap
import multiprocessing
import os
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

PRELOAD = ["__main__", "torch", "triton", "torch._inductor", "common.python.bench"]  # _inductor: the profiler needs it
STATE_BYTES = 512
DUMP_S = 0.3  # time for a hung worker to write its stack before it is killed
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
    from multiprocessing import forkserver

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
        self._connection, theirs = context.Pipe()
        settings = settings | {"fresh": fresh}
        arguments = (theirs, str(root), str(scratch), str(log), str(self._state_file), settings)
        self._process = context.Process(target=_main, args=arguments, name="benchmark-worker")
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    def call(self, command: str, timeout_s: float, **arguments: Any) -> Any:
        """Run one command there and wait for its answer.

        Raises WorkerError when user code raised, when the process died, or when the time ran out (it is then killed).
        """
        self.ask(command, **arguments)
        return self.answer(timeout_s)

    def ask(self, command: str, **arguments: Any) -> None:
        """Begin a command, so that several workers can be at work at once; `answer` waits for the end."""
        with contextlib.suppress(OSError):  # a worker that died is noticed, and told of, by `answer`
            self._connection.send_bytes(json.dumps([command, arguments]).encode())

    def answer(self, timeout_s: float) -> Any:
        """Wait for the command that was asked. Raises as `call` does."""
        try:
            if not self._connection.poll(max(timeout_s, 0.0)):
                raise self._hung(timeout_s)
            answer = json.loads(self._connection.recv_bytes())
        except (EOFError, OSError) as error:
            raise self._died() from error
        if "error" in answer:
            raise WorkerError("raised", answer["who"], answer["error"], answer["out_of_memory"])
        return answer["value"]

    def _hung(self, timeout_s: float) -> WorkerError:
        who, what = self.state()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGUSR1)  # faulthandler writes every thread's stack to the log
            time.sleep(DUMP_S)
        self.kill()
        return WorkerError("hung", who, f"no answer within {timeout_s:.0f} s during {what}; its stack is in the log")

    def _died(self) -> WorkerError:
        who, what = self.state()
        self._process.join(STOP_S)
        code = self._process.exitcode
        self.kill()
        how = f"was killed by {signal.Signals(-code).name}" if code and code < 0 else f"exited with code {code}"
        return WorkerError("died", who, f"the worker {how} during {what}")

    def state(self) -> tuple[str, str]:
        """Which variant was at work, and on what."""
        who, _, what = self._state_file.read_bytes().decode(errors="replace").strip().partition("|")
        return who or "workload", what or "start"

    def close(self) -> None:
        """Let the process end by itself, which frees its semaphores, and end what it started."""
        self._connection.close()
        self._process.join(CLOSE_S)
        self.kill()

    def kill(self) -> None:
        """End the process and all that it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.join(STOP_S)
        self._connection.close()

    def log_tail(self, characters: int = 4000) -> str:
        if not self.log.exists():
            return ""
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - characters))
            return file.read().decode(errors="replace")


def _main(connection: Connection, root: str, scratch: str, log: str, state: str, settings: dict[str, Any]) -> None:
    """The worker's life: detach from the terminal, follow the parent into death, answer commands."""
    import ctypes
    import faulthandler

    os.setsid()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: no orphans
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)

    import gc
    import importlib

    if settings["fresh"]:  # import what the forkserver has imported for the others
        for module in PRELOAD[1:]:
            importlib.import_module(module)
    from common.python.bench import Bench
    from common.python.preparation import VariantError

    gc.freeze()  # a collection would scan all of torch's objects, 0.2 s each time
    with open(state, "r+b") as file:
        board = mmap.mmap(file.fileno(), STATE_BYTES)

    def at(who: str, what: str) -> None:
        board[:] = f"{who}|{what}".encode()[:STATE_BYTES].ljust(STATE_BYTES)

    bench = Bench(Path(root), Path(scratch), settings, at)
    while True:
        try:
            command, arguments = json.loads(connection.recv_bytes())
        except (EOFError, OSError):
            return
        try:
            answer = {"value": getattr(bench, command)(**arguments)}
        except Exception as error:
            told = error if isinstance(error, VariantError) else VariantError("workload", error)
            answer = {"error": str(told), "who": told.who, "out_of_memory": told.out_of_memory}
        connection.send_bytes(json.dumps(answer).encode())
