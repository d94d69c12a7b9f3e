"""Integration tests run on the CPU, on whatever machine, and share one forkserver."""

import multiprocessing.forkserver
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_tree import Tree

from common.python.worker import warm_up_forkserver


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


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)
