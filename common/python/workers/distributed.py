"""The ranks of a pair on several GPUs: one process each, started by torch's elastic launcher, led by a worker.

To the parent the worker is like any other. It passes each command on to all ranks, which hold a `Commands` each, and
merges what they answer: every number is the largest of the ranks', so that a sample is the slowest rank's. Commands
and answers go through the store that the launcher's rendezvous uses as well, so that ranks of other hosts hear them.
"""

import contextlib
import gc
import itertools
import json
import mmap
import os
import signal
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

from common.python.base.reaper import parent_of
from common.python.proof.preparation import VariantError
from common.python.proof.ranks import Ranks, on_rank
from common.python.workers.commands import Commands, failure
from common.python.workers.launch import Launch
from common.python.workers.worker_status import StatusBoard, how_ended, speak_into

LOOK_S = 0.005  # between two looks at whether all have answered and live; waiting in the store fills the log
LONG = timedelta(days=1)  # the parent's limit ends what takes too long
NOTICE_S = 12.0  # the launcher reports a crash 1.3 s after it, on a busy host 10 s; an end with code 0 never
REAP_S = 0.3  # the launcher looks for ranks that ended ten times a second
LEAVE_S = 0.8  # of the second that an idle worker has to end in
END, LOST = "end", "lost"


class Leader:
    """Starts the ranks of this host. On the host of node rank 0 it leads those of all hosts, elsewhere it watches."""

    def __init__(
        self, root: Path, scratch: Path, settings: dict[str, Any], board: StatusBoard, connection: Connection
    ) -> None:
        self.root, self.scratch, self.settings, self.board, self.connection = root, scratch, settings, board, connection
        self.launch = Launch(**settings["launch"])
        self.here = len(board.ranks)
        self.size = self.here * self.launch.nnodes
        self.host, _, self.port = (self.launch.rdzv_endpoint or "localhost:0").rpartition(":")
        self.counters = memoryview(mmap.mmap(-1, 8 * self.here)).cast("q")
        self.asked = 0
        self.opened, self.ended = threading.Event(), threading.Event()  # the store, the launcher
        self.error: Exception | None = None  # that it raised

    def lead(self, serve: Callable[[], None]) -> None:
        """Run torch's launcher until all ranks have ended, while `serve`, in a thread, answers the parent.

        The launcher has the main thread, for torch's profiler works in forks of no other.
        """
        threading.Thread(target=self._conduct, args=(serve,)).start()
        try:
            leads = not self.launch.follows
            self.store = TCPStore(self.host, int(self.port), is_master=leads, wait_for_workers=False, timeout=LONG)
            self.opened.set()
            self._launch_ranks()
        except Exception as error:
            self.error = error
        self.ended.set()
        self.opened.set()

    def _conduct(self, serve: Callable[[], None]) -> None:
        serve()
        if not self.launch.follows and not self.ended.is_set():
            self._ask(END, {})
        self.ended.wait(LEAVE_S)

    def _launch_ranks(self) -> None:
        os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # the launcher asks for GPUs; CUDA would not survive a fork
        from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
        from torch.distributed.launcher.api import LaunchConfig, elastic_launch

        config = LaunchConfig(
            min_nodes=self.launch.nnodes,
            max_nodes=self.launch.nnodes,
            nproc_per_node=self.here,
            run_id=self.settings["run_id"],
            rdzv_backend="c10d",
            rdzv_endpoint=f"{self.host}:{self.store.port}",
            rdzv_configs={"is_host": False},  # the store is there already
            max_restarts=0,
            start_method="fork",  # torch is imported: two ranks take 0.4 s, where fresh interpreters take seconds
            logs_specs=DefaultLogsSpecs(log_dir=str(self.scratch / "launcher")),  # else it leaves a folder behind
            local_addr="localhost" if self.launch.nnodes == 1 else None,
        )
        elastic_launch(config, _follow)(self)

    def perform(self, command: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Have every rank do it: the values of all, merged, or the error of the first rank that raised or ended."""
        self.opened.wait()
        if lost := self._lost():
            return lost
        if command == "watch":
            return self._watch()
        self._ask(command, arguments)
        failed, values = f"error/{self.asked}", [f"value/{self.asked}/{rank}" for rank in range(self.size)]
        while not self.store.check(values):
            if lost := self._lost():
                return lost
            if self.store.check([failed]):  # on gloo a rank raises because another one is no more
                return self._lost_soon() or dict(json.loads(self.store.get(failed)))
            time.sleep(LOOK_S)
        return {"value": merge([json.loads(self.store.get(value)) for value in values])}

    def _watch(self) -> dict[str, Any]:
        """Where another host leads: stay until its store is gone, and tell it of a rank that is lost here."""
        while not self._is_done():
            if (lost := self._lost()) and not self._is_done():
                self.store.set(LOST, json.dumps(lost))
                return lost
            time.sleep(LOOK_S)
        with contextlib.suppress(dist.DistError):  # which says that it is gone; the next pair's will listen there too
            while True:
                self.store.check([END])
                time.sleep(LOOK_S)
        return {"value": None}

    def _ask(self, command: str, arguments: dict[str, Any]) -> None:
        self.asked += 1
        self.store.set(f"ask/{self.asked}", json.dumps([command, arguments]))

    def _lost_soon(self) -> dict[str, Any] | None:
        until = time.monotonic() + (REAP_S if self.launch.nnodes == 1 else 2 * NOTICE_S)
        while (lost := self._lost()) is None and time.monotonic() < until:
            time.sleep(LOOK_S)
        return lost

    def _lost(self) -> dict[str, Any] | None:
        """The error of a rank that ended unasked, on this host or as another host reported it; None while all run."""
        pids = [self.board.read(line).pid for line in self.board.ranks]
        gone = [local for local, pid in enumerate(pids) if pid.isdecimal() and parent_of(int(pid)) != os.getpid()]
        if not gone and not self.ended.is_set():
            told = not self.launch.follows and self.store.check([LOST])
            return dict(json.loads(self.store.get(LOST))) if told else None
        self.ended.wait(NOTICE_S)
        if isinstance(self.error, ChildFailedError):
            first = min(self.error.failures.values(), key=lambda lost: lost.timestamp)
            local, code = first.local_rank, first.exitcode
        elif gone:
            local, code = gone[0], 0
        else:
            return failure(VariantError("workload", f"the ranks cannot be started: {str(self.error).splitlines()[0]}"))
        state = self.board.read(1 + local)
        how = f"rank {state.rank or local} {how_ended(code)}"
        return failure(VariantError(state.who, f"{how} during {state.what}{self.board.place(1 + local)}"))

    def _is_done(self) -> bool:
        """Whether all ranks ended as they should."""
        return self.ended.is_set() and self.error is None


def _follow(leader: Leader) -> None:
    """A rank's life: detach from the leader, join the others, answer commands."""
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    leader.connection.close()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):  # for which the launcher has handlers of its own
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    speak_into(leader.board.log(1 + local))
    del os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"]
    gc.freeze()
    say = partial(leader.board.say, 1 + local, rank=rank)
    say("workload", "start")
    _await_all(leader.board)
    store = TCPStore(leader.host, leader.store.port, is_master=False, timeout=LONG)
    ranks = _join(leader, rank, local)
    commands = Commands(leader.root, leader.scratch / f"rank{rank}", leader.settings, say, ranks)
    for asked in itertools.count(1):
        command, arguments = _next(store, asked)
        if command == END:
            break
        answer = commands.perform(command, arguments)
        if "error" in answer:
            store.set(f"error/{asked}", json.dumps(answer | {"error": on_rank(answer["error"], rank)}))
        else:
            store.set(f"value/{asked}/{rank}", json.dumps(answer["value"]))
    dist.destroy_process_group()


def _await_all(board: StatusBoard) -> None:
    """Connect to nothing before all ranks have been forked.

    A fork copies locks as they are. In one of some hundred starts on a busy host a rank waited forever, in its first
    connection, for a lock inside libc that a thread had held meanwhile: the store's, most likely, which looks up who
    has connected.
    """
    while not all(board.read(line).pid for line in board.ranks):
        time.sleep(LOOK_S)


def _join(leader: Leader, rank: int, local: int) -> Ranks:
    """The default group, which is the pair's to use, and one for the harness. NCCL sets itself up here, once."""
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // leader.here))
    if torch.cuda.is_available():
        torch.cuda.set_device(local)
        dist.init_process_group("cpu:gloo,cuda:nccl", device_id=torch.device("cuda", local))
    else:
        dist.init_process_group("gloo")
    group = dist.new_group(backend="gloo")
    ranks = Ranks(rank, dist.get_world_size(), local, group, leader.counters)
    if torch.cuda.is_available():
        ranks.enqueue_meeting()  # NCCL loads its kernels and connects at the first collective
        torch.cuda.synchronize()
    return ranks


def _next(store: TCPStore, asked: int) -> tuple[str, dict[str, Any]]:
    """Wait for the next command; a stack that ends here says that the rank has done its part."""
    command, arguments = json.loads(store.get(f"ask/{asked}"))
    return command, arguments


def merge(answers: list[Any]) -> Any:
    """One answer of all ranks': each number is the largest, and each text the first rank's that has any.

    Lists of equal length are merged item by item; of others, every item is kept once.
    """
    first = answers[0]
    said = [answer for answer in answers if answer is not None]
    if isinstance(first, dict):
        keys = dict.fromkeys(key for answer in answers for key in answer)
        return {key: merge([answer[key] for answer in answers if key in answer]) for key in keys}
    if isinstance(first, list):
        if len({len(answer) for answer in answers}) == 1:
            return [merge(list(items)) for items in zip(*answers)]
        return list(dict.fromkeys(item for answer in answers for item in answer))
    if not said:
        return None
    return said[0] if isinstance(said[0], str) else max(said)
