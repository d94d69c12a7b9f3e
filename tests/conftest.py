"""Without a GPU tests run side by side (`-n auto`), each process with temporary files, and so locks, of its own."""

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Generator
from multiprocessing.util import Finalize

import pytest

from common.python.base.machine import machine

MOST = 4
LAST = -200  # multiprocessing removes its own folder in here at -100

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # where a script starts tests with `&`; what they start heeds it
    signal.signal(signal.SIGINT, signal.default_int_handler)

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = "1"  # or the threads of several processes would wait for each other in loops
    os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(prefix="tests-")
    Finalize(None, shutil.rmtree, (tempfile.tempdir, True), exitpriority=LAST)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nothing looks for garbage while modules are imported, nor later among what they hold."""
    gc.disable()
    collected = yield
    gc.freeze()
    gc.enable()
    return collected


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is slow and rarely breaks is for `make check-all`."""
    for item in items:
        if item.get_closest_marker("nightly") and os.environ.get("PROVE") != "all":
            item.add_marker(pytest.mark.skip(reason="make check-all tests it"))


@pytest.hookimpl(optionalhook=True)  # for whoever has no xdist, and so runs one test after the other
def pytest_xdist_auto_num_workers() -> int:
    """None beside this process where there is a GPU, which is for one at a time; tests of runs wait for most of it."""
    return 0 if machine().gpus else min(MOST, 1 + (os.cpu_count() or 1))
