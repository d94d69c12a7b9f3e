"""Integration tests run on the CPU, on whatever machine, and share one forkserver."""

import multiprocessing.forkserver
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_tree import Tree

from common.python.run import proof_cache, suite
from common.python.workers.fork_server import warm_up_forkserver


@pytest.fixture(scope="package", autouse=True)
def forkserver() -> Iterator[None]:
    """Workers inherit the forkserver's environment: it must be one without GPUs, with Triton's interpreter."""
    server = multiprocessing.forkserver._forkserver
    server._stop()  # an earlier test's may have seen a GPU
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        patch.setenv("TRITON_INTERPRET", "1")
        patch.delenv("GITHUB_STEP_SUMMARY", raising=False)  # the page of the job that tests, not of what is tested
        warm_up_forkserver()
        yield
        server._stop()


@pytest.fixture(scope="package", autouse=True)
def own_notes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Of what was compiled or proven: an earlier run's may be on trees whose paths were the same."""
    folder = tmp_path_factory.mktemp("notes")
    with pytest.MonkeyPatch.context() as patch:
        for module in (proof_cache, suite):
            patch.setattr(module, "build_folder", lambda root: folder)
        yield


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)
