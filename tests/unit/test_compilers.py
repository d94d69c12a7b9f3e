"""The forkserver readies the compilers where pairs compile, and CUDA is as if nothing had happened."""

import subprocess
import sys

import pytest

from common.python.workers.process import COMPILERS, PRELOAD

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
