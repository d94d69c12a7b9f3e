"""What several workers do at the same time, with real ones: those that hang are ended together."""

import time
from collections.abc import Iterator
from textwrap import indent

import pytest
from small_tree import HONEST, SPINS, Tree, late_s

from common.python.workers.process import Worker, WorkerError
from common.python.workers.worker_pool import WorkerPool

RUNGS = ("optimized", "second", "third", "fourth")
# Right once, for `prepare`, then a loop in C.
HANGS_LATER = HONEST.replace("    def step():", "    calls = iter([False])\n        def step():").replace(
    "            return a * 2",
    "            if next(calls, True):\n" + indent(SPINS.strip(), " " * 16) + "\n            return a * 2",
)


@pytest.fixture
def pool(tree: Tree) -> Iterator[WorkerPool]:
    """A worker for the baseline and for each of four rungs that hang when they are proven; all are prepared."""
    tree.pair("ch01:x", **dict.fromkeys(RUNGS, HANGS_LATER))

    def hire(index: int, name: str) -> Worker:
        settings = {"seed": 0, "reproducible": False}
        return Worker(tree.root, tree.root / f"scratch{index}", tree.root / f"worker{index}.log", settings)

    names = [path.stem for path in sorted((tree.root / "ch01").glob("*_x*.py"))]
    load = {"baseline": "ch01.baseline_x", "size": "test"}
    made = WorkerPool(hire, {name: f"ch01.{name}" for name in names}, True, 60.0, load)
    made.each("prepare", names, size="test")
    yield made
    made.dismiss()


def test_hung_workers_are_ended_at_once(pool: WorkerPool) -> None:
    names = [name for _, held in pool._workers for name in held]
    processes = [worker._process for worker, _ in pool._workers]
    deadline = pool._deadline = time.monotonic() + 1
    with pytest.raises(WorkerError, match=r"no answer within \d s"):
        pool.each("prove", names, when="before timing", trials=1, dtypes=[])
    pool.dismiss()
    assert time.monotonic() - deadline < late_s()
    assert not any(process.is_alive() for process in processes)
    assert len(processes) == 1 + len(RUNGS)


def test_workers_that_have_started_are_ended_where_a_further_one_cannot(tree: Tree) -> None:
    tree.pair("ch01:x")
    started: list[Worker] = []

    def hire(index: int, name: str) -> Worker:
        if index:
            raise OSError("no process more")
        settings = {"seed": 0, "reproducible": False}
        started.append(Worker(tree.root, tree.root / "scratch", tree.root / "worker.log", settings))
        return started[0]

    modules = {"baseline_x": "ch01.baseline_x", "optimized_x": "ch01.optimized_x"}
    load = {"baseline": "ch01.baseline_x", "size": "test"}
    with pytest.raises(OSError, match="no process more"):
        WorkerPool(hire, modules, True, 60.0, load)
    assert not started[0]._process.is_alive()
