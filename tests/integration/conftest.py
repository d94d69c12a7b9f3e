"""Integration tests run on the CPU, on whatever machine, and share one forkserver."""

import math
import multiprocessing.forkserver
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_tree import HONEST, Hire, Tree, load

from common.python.base import manifest
from common.python.report import live_view
from common.python.run import session
from common.python.stats import timing_sanity
from common.python.verify import sweep
from common.python.workers.process import INDUCTOR, Worker, warm_up_forkserver


@pytest.fixture(scope="package", autouse=True)
def forkserver() -> Iterator[None]:
    """Workers inherit the forkserver's environment: it must be one without GPUs, with Triton's interpreter."""
    server = multiprocessing.forkserver._forkserver
    server._stop()  # an earlier test's may have seen a GPU
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        patch.setenv("TRITON_INTERPRET", "1")
        for setting in ("NCCL_NVLS_ENABLE=0", "NCCL_ALGO=Ring", "NCCL_DEBUG_FILE=/nowhere/%h.%p"):
            patch.setenv(*setting.split("="))  # which nothing here uses: ranks are to find them untouched
        patch.delenv("GITHUB_STEP_SUMMARY", raising=False)  # the page of the job that tests, not of what is tested
        warm_up_forkserver(INDUCTOR)  # which each worker would import anew for --reproducible and torch.compile
        yield
        server._stop()


@pytest.fixture(scope="package", autouse=True)
def no_progress() -> Iterator[None]:
    """On a busy host a command may be silent for 30 s, and what it then says is not what is tested."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live_view, "SILENT_S", 3600.0)
        yield


@pytest.fixture(scope="package", autouse=True)
def own_notes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Of what was compiled or proven: an earlier run's may be on trees whose paths were the same."""
    folder = tmp_path_factory.mktemp("notes")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep, "build_folder", lambda root: folder)
        yield


@pytest.fixture(scope="module", autouse=True)
def quick_sessions(request: pytest.FixtureRequest) -> Iterator[None]:
    """No trials for remembered answers, which take seconds where a step takes microseconds, and no `git status`.

    Limits of time are as on an idle machine.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "crowding", lambda: 1.0)
        patch.setattr(manifest, "git_state", lambda root: (None, None))
        if request.module.__name__ != "test_cheats":
            patch.setattr(timing_sanity, "SLOWER", math.inf)
        yield


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


@pytest.fixture
def hire(tree: Tree) -> Iterator[Hire]:
    """A worker that has loaded `ch01:x` with this body of the optimized rung; the baseline is honest."""
    workers: list[Worker] = []

    def start(body: str = HONEST, fresh: bool = False, **told: Any) -> Worker:
        tree.pair("ch01:x", optimized=body)
        settings = {"seed": 0, "reproducible": False, **told}
        workers.append(Worker(tree.root, tree.root / "scratch", tree.root / "worker.log", settings, fresh))
        load(workers[0])
        return workers[0]

    yield start
    for worker in workers:
        worker.kill()
