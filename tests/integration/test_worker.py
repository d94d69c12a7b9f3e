"""A worker answers, and whatever user code does to it comes back as a reason; most of that is test_fault_matrix."""

import subprocess
import sys
from pathlib import Path

import pytest
from small_tree import HONEST, LIMIT_S, ROOT, Hire, Tree, alive, doing, load, prepare, until

from common.python.workers.process import COMPILERS, PRELOAD, Worker, WorkerError
from common.python.workers.worker_pool import WorkerPool


def test_a_worker_that_is_to_use_the_cpu_sees_no_gpu(hire: Hire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")  # which a fresh interpreter inherits
    worker = hire(
        "\n    import os\n    assert os.environ['CUDA_VISIBLE_DEVICES'] == ''" + HONEST, fresh=True, gpu=False
    )
    assert load(worker)["failures"] == {}


SECOND_CALL_FAILS = """
import os
a.calls = getattr(a, "calls", 0) + 1
if a.calls > 1:
    os.write(2, b"/root/ch01/optimized_x.cu:10: void f(): block: [0,0,0] Assertion `i != 0` failed.\\n")
    raise RuntimeError({error!r})
"""


@pytest.mark.parametrize(
    ("error", "place"), [("CUDA error: device-side assert triggered", " at optimized_x.cu:10"), ("something else", "")]
)
def test_an_assertion_of_a_kernel_that_failed_is_told_with_its_line(hire: Hire, error: str, place: str) -> None:
    worker = hire(doing(SECOND_CALL_FAILS.format(error=error)))
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
    with pytest.raises(WorkerError, match="no answer within 1 s"):
        prepare(worker, limit_s=1.0)
    until(lambda: not alive(worker.pid), 5)


def test_all_that_is_written_goes_to_the_log(hire: Hire, capfd: pytest.CaptureFixture[str]) -> None:
    worker = hire(doing("import os; os.write(1, b'from a library '); os.system('echo from a child')"))
    assert prepare(worker)["failures"] == {}
    assert "from a library from a child" in worker.log_tail()
    assert capfd.readouterr() == ("", "")


KILLED = """
import multiprocessing, sys
from common.python.workers.process import warm_up_forkserver

def hold(pipe):
    semaphore = multiprocessing.get_context("forkserver").Semaphore()
    pipe.send(semaphore._semlock.name)
    multiprocessing.Event().wait()

if __name__ == "__main__":
    warm_up_forkserver()
    context = multiprocessing.get_context("forkserver")
    ours, theirs = context.Pipe()
    process = context.Process(target=hold, args=(theirs,))
    process.start()
    print(ours.recv())
    process.kill()
    process.join()
"""


def test_semaphores_of_a_killed_worker_are_removed_without_a_word(tmp_path: Path) -> None:
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    assert not Path(f"/dev/shm/sem.{done.stdout.strip().removeprefix('/')}").exists()


def test_workers_that_have_started_are_ended_where_a_further_one_cannot(hire: Hire) -> None:
    started: list[Worker] = []

    def first_alone(index: int, name: str) -> Worker:
        if index:
            raise OSError("no process more")
        started.append(hire())
        return started[0]

    modules = {"baseline_x": "ch01.baseline_x", "optimized_x": "ch01.optimized_x"}
    with pytest.raises(OSError, match="no process more"):
        WorkerPool(first_alone, modules, True, 60.0, {"baseline": "ch01.baseline_x", "size": "test"})
    assert not started[0]._process.is_alive()


SPLIT = "import os, time\nfrom common.python.base.reaper import split\n"


def test_a_worker_does_not_outlive_its_reaper() -> None:
    waits = f"{SPLIT}split(lambda: None)\nprint(os.getpid(), flush=True)\ntime.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", waits], cwd=ROOT, stdout=subprocess.PIPE, text=True) as reaper:
        worker = int(reaper.stdout.readline())
        reaper.kill()
    until(lambda: not alive(worker), 5)


def test_a_worker_whose_parent_died_before_it_could_be_heard_of_ends_itself() -> None:
    late = f"{SPLIT}split(lambda: None, parent=1 << 22)\nprint('alive')"
    done = subprocess.run([sys.executable, "-c", late], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")


LOOK = f"""
import importlib, sys
for module in {PRELOAD[1:]!r}:
    importlib.import_module(module)
import torch
asked = []
for holder, names in ((torch.cuda, ("device_count", "_lazy_init")), (torch._C, ("_cuda_getDeviceCount", "_cuda_init"))):
    for name in names:
        if hasattr(holder, name):
            setattr(holder, name, lambda *_, name=name: asked.append(name) or 0)
asks = torch.cuda.is_available
importlib.import_module({COMPILERS!r})
from torch._inductor.runtime.triton_compat import triton_key
ready = "torch._inductor.compile_fx" in sys.modules and triton_key.cache_info().currsize == 1
print(asked, torch.cuda.is_available is asks, ready)
"""


@pytest.mark.nightly
def test_compilers_are_readied_without_a_question_to_cuda_which_would_not_survive_a_fork() -> None:
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True)
    assert done.stdout == "[] True True\n", done.stdout + done.stderr
