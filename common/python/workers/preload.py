"""Imported by the forkserver where pairs use torch.compile: it readies Inductor and Triton for all workers it forks.

The first compilation of a process imports Inductor, and hashes torch's sources and Triton's library for the keys of
their caches: 1.7 of the 2.1 s of CPU time that torch 2.11 took to compile a softmax for an H200 on a host with none.
"""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch

MODULES = ("torch._dynamo.backends.inductor", "torch._inductor.compile_fx", "triton.compiler.code_generator")


@contextmanager
def told_of_a_gpu() -> Iterator[None]:
    """Answer torch's question for a GPU without asking CUDA, which would not survive the fork: NVML has seen one."""
    asks = torch.cuda.is_available
    torch.cuda.is_available = lambda: True
    try:
        yield
    finally:
        torch.cuda.is_available = asks


with told_of_a_gpu():
    for module in MODULES:
        importlib.import_module(module)
    from torch._inductor.codecache import torch_key
    from torch._inductor.codegen.common import init_backend_registration
    from torch._inductor.runtime.triton_compat import triton_key

    init_backend_registration()
    torch_key()  # both keep what they computed
    triton_key()
