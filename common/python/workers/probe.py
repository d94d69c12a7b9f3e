"""The machine as workers will find it: their server is started, and one of them tells which device torch sees."""

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from common.python.base.machine import Machine, crowding
from common.python.base.machine import machine as host
from common.python.corpus.discovery import Pair
from common.python.workers.process import COMPILERS, INDUCTOR, WorkerError, one_worker, warm_up_forkserver

START_LIMIT_S = 120.0


def open_machine(
    root: Path, folder: Path, pairs: Iterable[Pair] = (), reproducible: bool = False
) -> tuple[Machine, dict[str, Any]]:
    """This machine as a worker can use it, and what a worker's `describe` tells; its workers are to hold these pairs.

    Raises RuntimeError if no worker starts.
    """
    machine = host()
    if not machine.gpus:
        os.environ["TRITON_INTERPRET"] = "1"  # read by triton when a worker imports it
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # no pool of compilers beside what is timed
    home = Path(os.environ.get("TRITON_HOME") or Path.home())
    os.environ.setdefault("TRITON_CACHE_DIR", str(home / ".triton" / "cache"))  # Inductor would move it in each process
    compiling = any(variant.uses_torch_compile or variant.autotunes for pair in pairs for variant in pair.variants)
    further = COMPILERS if compiling and machine.gpus else INDUCTOR
    warm_up_forkserver(*([further] if compiling or machine.gpus or reproducible else []))
    try:
        with one_worker(root, folder / "logs" / "describe.log") as worker:
            found = dict(worker.call("describe", START_LIMIT_S * crowding()))
    except WorkerError as error:
        raise RuntimeError(f"no worker could be started: {error.reason}\n{worker.log_tail()}") from error
    return machine if found["device"] != "cpu" else replace(machine, gpus=[]), found
