"""What the server that workers are forked from leaves to be seen by a user."""

import subprocess
import sys
from pathlib import Path

KILLED = """
import multiprocessing, sys
from common.python.workers.fork_server import warm_up_forkserver

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
