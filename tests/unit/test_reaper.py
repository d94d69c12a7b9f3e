"""A worker ends with its reaper, and with a parent that died before; how the reaper ends, the fault matrix shows."""

import subprocess
import sys

from small_tree import ROOT, alive, until

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
