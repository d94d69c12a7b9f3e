"""The forkserver readies the compilers where pairs compile, and CUDA is as if nothing had happened."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from common.python.base.machine import Gpu, Machine
from common.python.corpus.discovery import Pair, read_variant
from common.python.workers import probe as opening
from common.python.workers.fork_server import COMPILERS, INDUCTOR, PRELOAD

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


def test_compilers_are_readied_without_a_question_to_cuda_which_would_not_survive_a_fork() -> None:
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True)
    assert done.stdout == "[] True True\n", done.stdout + done.stderr


@pytest.mark.parametrize(
    ("gpus", "body", "further"),
    [
        (1, "step = torch.compile(f)", [COMPILERS]),
        (1, "step = f", [INDUCTOR]),
        (0, "step = torch.compile(f)", [INDUCTOR]),
        (0, "step = f", []),
    ],
    ids=["compiles", "does not", "has no GPU", "neither"],
)
def test_they_are_readied_where_pairs_compile_on_a_gpu_and_else_inductor_where_one_may_need_it(
    gpus: int, body: str, further: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ch14").mkdir()
    plain, other = tmp_path / "ch14" / "baseline_x.py", tmp_path / "ch14" / "peer_x__y.py"
    plain.write_text('"""Adds."""\n')
    other.write_text(f'"""Adds."""\n{body}\n')
    pair = Pair("ch14", "x", [read_variant(plain), read_variant(other)])
    asked_for: list[list[str]] = []
    gpu = Gpu("a GPU", "GPU-1", 90, 141.0)
    monkeypatch.setattr(opening, "host", lambda: Machine("here", "Linux", "a CPU", 2, 8.0, 1, [gpu] * gpus))
    monkeypatch.setattr(opening, "warm_up_forkserver", lambda *modules: asked_for.append(list(modules)))
    monkeypatch.setattr(opening, "describe", lambda *_: {"device": "cpu"})
    monkeypatch.setenv("TRITON_INTERPRET", "")
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "3")
    opening.open_machine(tmp_path, tmp_path, [pair])
    assert asked_for == [further]
    assert os.environ["TORCHINDUCTOR_COMPILE_THREADS"] == "3"  # what the user has set stays
    monkeypatch.delenv("TORCHINDUCTOR_COMPILE_THREADS")
    opening.open_machine(tmp_path, tmp_path)
    assert os.environ["TORCHINDUCTOR_COMPILE_THREADS"] == "1"
    assert asked_for == [further, [INDUCTOR] * gpus]
