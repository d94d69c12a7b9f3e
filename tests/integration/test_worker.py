"""A worker answers, and whatever user code does to it comes back as a reason; most of that is test_fault_matrix."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from small_tree import HONEST, Tree, alive, doing, late_s, until

from common.python.workers.process import Worker, WorkerError

LIMIT_S = 60.0
Hire = Callable[..., Worker]


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


def load(worker: Worker) -> dict[str, Any]:
    modules = {"baseline_x": "ch01.baseline_x", "optimized_x": "ch01.optimized_x"}
    answer: dict[str, Any] = worker.call("load", LIMIT_S, baseline="ch01.baseline_x", modules=modules, size="cpu")
    return answer


def prepare(worker: Worker, limit_s: float = LIMIT_S) -> dict[str, Any]:
    """Prepare the rung; its step is called once."""
    answer: dict[str, Any] = worker.call("prepare", limit_s, names=["optimized_x"], size="test")
    return answer


def test_it_answers_in_plain_values(hire: Hire) -> None:
    worker = hire()
    facts = load(worker)
    assert facts["failures"] == {}
    assert facts["shape"] == {"n": 4096}
    assert facts["cost"][0]["host_bytes"] == 8 * 4096
    assert worker.call("describe", LIMIT_S)["device"] == "cpu"
    assert prepare(worker)["failures"] == {}
    proofs = worker.call("prove", LIMIT_S, names=["optimized_x"], when="before timing", trials=2, dtypes=[])
    assert [proof["reason"] for proof in proofs["optimized_x"]] == [None, None]
    assert worker.pid != os.getpid()


@pytest.mark.parametrize(("told", "seen"), [({"gpu": False}, ""), ({}, "7")])
def test_a_worker_that_is_to_use_the_cpu_sees_no_gpu(
    hire: Hire, monkeypatch: pytest.MonkeyPatch, told: dict[str, bool], seen: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")  # which a fresh interpreter inherits
    asks = f"""
    import os
    assert os.environ["CUDA_VISIBLE_DEVICES"] == {seen!r}
    """
    worker = hire(asks + HONEST, fresh=True, **told)
    assert load(worker)["failures"] == {}


SECOND_CALL_FAILS = """
    import os

    def prepare(a):
        calls = []

        def step():
            calls.append(a)
            if len(calls) > 1:
                os.write(2, b"/root/ch01/optimized_x.cu:10: void f(): block: [0,0,0] Assertion `i != 0` failed.\\n")
                raise RuntimeError({error!r})
            return a * 2

        return step
"""


@pytest.mark.parametrize(
    ("error", "place"),
    [("CUDA error: device-side assert triggered", " at optimized_x.cu:10"), ("something else", "")],
)
def test_an_assertion_of_a_kernel_that_failed_is_told_with_its_line(hire: Hire, error: str, place: str) -> None:
    worker = hire(SECOND_CALL_FAILS.format(error=error))
    assert prepare(worker)["failures"] == {}
    worker.call("start_clock", LIMIT_S)
    with pytest.raises(WorkerError) as told:
        worker.call("warm", LIMIT_S, names=["optimized_x"], limit_s=0.1, passes=2)
    assert told.value.reason.endswith(f": {error}{place}")


def test_a_hung_worker_cannot_have_another_process_signalled(hire: Hire, tree: Tree) -> None:
    other = subprocess.Popen(["sleep", "60"])
    state, forged = str(tree.root / "scratch.state"), f"{other.pid}|optimized_x|prepare".encode().ljust(512)
    worker = hire(doing(f"open({state!r}, 'r+b').write({forged!r})\nimport time; time.sleep(600)"))
    with pytest.raises(WorkerError, match="no answer within 1 s"):
        prepare(worker, limit_s=1.0)
    assert other.poll() is None
    other.kill()
    other.wait()


def test_a_worker_whose_state_is_cut_off_harms_nobody_else(hire: Hire, tree: Tree) -> None:
    """The parent reads it too, and a mapping of what is no longer there would be its death."""
    state = str(tree.root / "scratch.state")
    worker = hire(doing(f"import os, time; os.truncate({state!r}, 0); time.sleep(600)"))
    with pytest.raises(WorkerError, match="no answer within 1 s") as caught:
        prepare(worker, limit_s=1.0)
    assert caught.value.kind == "hung"
    until(lambda: not alive(worker.pid), 5)


def test_a_hang_ends_at_the_limit_with_the_stack_in_the_log(hire: Hire) -> None:
    worker = hire(doing("print('at work')\nwhile True: pass"))
    started = time.monotonic()
    with pytest.raises(WorkerError) as caught:
        prepare(worker, limit_s=1.0)
    assert 1.0 <= time.monotonic() - started < 2.0 + late_s()
    assert (caught.value.kind, caught.value.who) == ("hung", "optimized_x")
    assert "within 1 s during prepare" in caught.value.reason
    for told in ("at work", "optimized_x.py", "in step"):
        assert told in worker.log_tail()
    until(lambda: not alive(worker.pid), 5)


def test_megabytes_on_stdout_block_nothing_and_go_to_the_log(hire: Hire, capfd: pytest.CaptureFixture[str]) -> None:
    worker = hire(
        doing("""
        import os, sys
        print("x" * 4_000_000)
        sys.stderr.write("y" * 4_000_000)
        os.write(1, b"from a library" * 100)
        os.system("echo from a child")
        """)
    )
    assert prepare(worker)["failures"] == {}
    worker.call("describe", LIMIT_S)
    assert worker.log.stat().st_size > 4_000_000
    assert len(worker.log_tail(1000)) == 1000
    text = worker.log.read_text()
    assert "from a child" in text
    assert text.count("from a library") == 100
    assert "x" * 1000 in text
    assert capfd.readouterr() == ("", "")
