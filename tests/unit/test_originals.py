"""What a variant left changed in its process is named and put back."""

import os
from collections.abc import Callable, Iterator

import pytest
import torch

from common.python.proof.originals import put_back, settings


@pytest.fixture(autouse=True)
def undisturbed() -> Iterator[None]:
    import torch._inductor.config  # a second, which each process that collects would spend

    before = settings()
    torch.backends.cuda.matmul.fp32_precision = "none"  # as a process begins, whatever other tests have set
    yield
    put_back(before)


CHANGES: dict[str, Callable[[], object]] = {
    r"os.environ (LEFT_BY)": lambda: os.environ.update(LEFT_BY="a test"),
    r"os.environ (CUDA_VISIBLE_DEVICES, HOME)": lambda: (
        os.environ.update(CUDA_VISIBLE_DEVICES="7"),
        os.environ.pop("HOME"),
    ),
    "the default dtype (torch.float32 -> torch.float64)": lambda: torch.set_default_dtype(torch.float64),
    "the default device (cpu -> meta)": lambda: torch.set_default_device("meta"),
    "the grad mode (True -> False)": lambda: torch.set_grad_enabled(False),
    "torch.backends.cuda.matmul.fp32_precision (none -> tf32)": lambda: torch.set_float32_matmul_precision("high"),
    "flash attention (True -> False)": lambda: torch.backends.cuda.enable_flash_sdp(False),
    "torch.backends.cudnn.benchmark (False -> True)": lambda: setattr(torch.backends.cudnn, "benchmark", True),
    "autocast on the CPU (False -> True)": lambda: torch.set_autocast_enabled("cpu", True),
    f"the working directory ({os.getcwd()} -> /)": lambda: os.chdir("/"),
    "torch._inductor.config (max_autotune)": lambda: setattr(torch._inductor.config, "max_autotune", True),
    f"the number of threads ({torch.get_num_threads()} -> {torch.get_num_threads() + 1})": lambda: (
        torch.set_num_threads(torch.get_num_threads() + 1)
    ),
}


@pytest.mark.parametrize("told", CHANGES)
def test_a_change_is_named_and_put_back(told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/root")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    before = settings()
    CHANGES[told]()
    assert put_back(before) == [told]
    assert settings() == before
    assert put_back(before) == []


def test_either_way_to_allow_tf32_is_seen_and_undone() -> None:
    before = settings()
    torch.backends.cuda.matmul.allow_tf32 = True
    assert put_back(before) == ["torch.backends.cuda.matmul.fp32_precision (none -> tf32)"]
    assert torch.get_float32_matmul_precision() == "highest"
    assert not torch.backends.cuda.matmul.allow_tf32  # which raises where the two states contradict each other


@pytest.mark.parametrize("name", ["TORCHINDUCTOR_CACHE_DIR", "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR"])
def test_what_libraries_set_for_themselves_is_theirs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = settings()
    monkeypatch.setenv(name, "/tmp/x")
    assert put_back(before) == []
    assert os.environ[name] == "/tmp/x"


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_a_thread_that_was_bound_to_a_core_is_free_again() -> None:
    before, cores = settings(), os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    [told] = put_back(before)
    assert told.startswith("the cores allowed")
    assert os.sched_getaffinity(0) == cores
