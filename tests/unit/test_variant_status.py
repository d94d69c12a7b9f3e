"""Kernels are compiled ahead for the machine that will run them, and only those that it can run."""

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
from synthetic_run import ROOT, host

from common.python.base.machine import Gpu
from common.python.corpus.discovery import find_pairs
from common.python.cuda import CudaError
from common.python.run.variant_status import compile_cuda
from common.python.workers.launch import ONE_HOST, Launch

KEYS = ("ch07:transpose", "ch10:gemm_wgmma")
GENERAL, HOPPER = "optimized_transpose", "optimized_gemm_wgmma"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What the compiler is asked for, by the file's stem; it does not like the tile."""
    archs: dict[str, str] = {}

    def compiled(source: Path, arch: str) -> SimpleNamespace:
        archs[source.stem] = arch
        if source.stem == "optimized_transpose__tile":
            raise CudaError("no")
        return SimpleNamespace()

    monkeypatch.setattr("common.python.run.variant_status.compile_source", compiled)
    monkeypatch.setattr("common.python.run.variant_status.find_nvcc", lambda: Path("nvcc"))
    return archs


def ahead(*sms: int, launch: Launch = ONE_HOST) -> None:
    """Compile ahead on a machine with such GPUs."""
    gpus = [Gpu("a GPU", f"GPU-{sm}", sm, 80.0) for sm in sms]
    compile_cuda([pair for pair in find_pairs(ROOT) if pair.key in KEYS], host(*gpus), bool(gpus), launch, math.inf)


@pytest.mark.parametrize(("sm", "arch"), [(90, "sm_90a"), (86, "sm_86")])
def test_all_that_runs_on_this_gpu_is_compiled_for_it(sm: int, arch: str, asked: dict[str, str]) -> None:
    ahead(sm)
    assert (GENERAL in asked, HOPPER in asked) == (True, sm == 90)
    assert set(asked.values()) == {arch}


def test_a_host_that_follows_another_compiles_nothing(asked: dict[str, str]) -> None:
    ahead(90, launch=Launch(nnodes=2, node_rank=1, rdzv_endpoint="host:1"))
    assert asked == {}
