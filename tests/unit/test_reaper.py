"""All that a process starts ends with it, in whichever session it hides, and its end is told as it was."""

import signal
import subprocess
import sys

import pytest
from small_tree import ROOT, alive, until

HIDE = """
import os, signal, subprocess, sys, time
from common.python.base.reaper import split
split(lambda: None)
hidden = subprocess.Popen(["sleep", "600"], start_new_session=True).pid
if os.fork() == 0:  # a daemon: forked twice, the second time in a session of its own
    os.setsid()
    if (daemon := os.fork()) == 0:
        time.sleep(600)
    print(daemon, flush=True)
    os._exit(0)
os.wait()
print(hidden, os.getpid(), flush=True)
"""


def start(end: str) -> "tuple[subprocess.Popen[str], list[int]]":
    """A process under a reaper, which has hidden two others, and their numbers; `end` is what it does then."""
    done = subprocess.Popen([sys.executable, "-c", HIDE + end], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    pids = [int(word) for _ in range(2) for word in done.stdout.readline().split()]
    return done, pids


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("os._exit(0)", 0),
        ("sys.exit(3)", 3),
        ("os.abort()", -signal.SIGABRT),
        ("os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
    ],
)
def test_the_reaper_ends_as_the_worker_and_after_all_others(end: str, code: int) -> None:
    done, pids = start(end)
    assert done.wait(10) == code
    assert [pid for pid in pids if alive(pid)] == []


def test_a_worker_does_not_outlive_its_reaper() -> None:
    done, pids = start("time.sleep(600)")
    done.kill()
    done.wait(10)
    until(lambda: not alive(pids[-1]), 5)
    subprocess.run(["kill", *map(str, pids[:-1])], check=False)  # these nobody knows any more


def test_a_worker_whose_parent_died_before_it_could_be_heard_of_ends_itself() -> None:
    late = "from common.python.base.reaper import split\nsplit(lambda: None, parent=1 << 22)\nprint('alive')"
    done = subprocess.run([sys.executable, "-c", late], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
