"""Imported by the forkserver where pairs use torch.compile: it readies Inductor and Triton for all workers it forks.

The first compilation of a process imports Inductor, and hashes torch's sources and Triton's library for the keys of
their caches: 1.7 of the 2.1 s of CPU time that torch 2.11 took to compile a softmax for an H200 on a host with none.
"""

import functools
import importlib
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import torch

MODULES = ("torch._dynamo.backends.inductor", "torch._inductor.compile_fx", "triton.compiler.code_generator")


def recall_coordinate_descent(heuristics: Any) -> None:
    """Reuse the kernel configuration that coordinate descent tuning found in an earlier process.

    torch 2.11 stores that configuration on disk and forgets that tuning led there, so each process tunes anew, for up
    to 50 s, and may end elsewhere. torch 2.13 remembers.
    """
    owner = heuristics.CachingAutotuner
    recheck = getattr(owner, "recheck_autotune_cache", None)
    if recheck is None:
        return

    @functools.wraps(recheck)
    def recalled(self: Any, reload_kernel_from_src: Callable[[], Any]) -> None:
        configs = [compiled.config for compiled in self.compile_results]
        recheck(self, reload_kernel_from_src)
        kept = heuristics.check_autotune_cache(configs, self.filename, self.inductor_meta)[0][0]
        if not getattr(kept, "found_by_coordesc", False):
            return
        name = heuristics.triton_config_to_hashable
        ready = [compiled for compiled in self.compile_results if name(compiled.config) == name(kept)]
        if not ready:
            if self.fn.fn is None:
                self.fn = reload_kernel_from_src().fn
            ready = [self._precompile_config(kept)]
        ready[0].config.found_by_coordesc = True
        self.compile_results = ready[:1]

    owner.recheck_autotune_cache = recalled


# NVML has seen a GPU; CUDA, which torch would ask for one, would not survive the fork.
with patch.object(torch.cuda, "is_available", lambda: True):
    for module in MODULES:
        importlib.import_module(module)
    from torch._inductor.codecache import torch_key
    from torch._inductor.codegen.common import init_backend_registration
    from torch._inductor.runtime.triton_compat import triton_key

    init_backend_registration()
    recall_coordinate_descent(importlib.import_module("torch._inductor.runtime.triton_heuristics"))
    torch_key()  # both keep what they computed
    triton_key()
