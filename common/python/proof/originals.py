"""What no pair may leave changed: the functions that measure and compare, and settings of the whole process.

A pair that replaces one of the functions would time or prove itself: `restore` puts the originals back and names them.
One variant could change a setting for the others that are measured with it. Pairs about such a setting declare
`isolated=True`, which gives each variant a process of its own.
"""

import os
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch

# Bound here: replacing them in the module `time` does not reach these names.
now_ns, now_s = time.perf_counter_ns, time.perf_counter

_ORIGINAL: dict[str, tuple[Any, str, Any]] = {}  # by label: owner, attribute, value


def watch(owner: Any, *names: str) -> None:
    """Remember these attributes of a module or class. Call it at import, before any pair is imported."""
    for name in names:
        _ORIGINAL[f"{owner.__name__}.{name}"] = owner, name, getattr(owner, name)


def restore() -> list[str]:
    """Put back what a pair has replaced; the names of what that was."""
    changed = [label for label, (owner, name, value) in _ORIGINAL.items() if getattr(owner, name) is not value]
    for label in changed:
        setattr(*_ORIGINAL[label])
    return changed


watch(time, "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time", "time_ns")
watch(torch.cuda, "Event", "synchronize", "current_stream", "_sleep")
watch(torch.cuda.Event, "record", "elapsed_time", "synchronize", "query", "wait")
watch(torch.Tensor, "copy_", "fill_", "zero_", "double", "to")

# Settings of the whole process.

Settings = dict[str, Any]
Access = tuple[Callable[[], Any], Callable[[Any], object]]  # what reads a setting, and what sets it
CUDA: Any = torch.backends.cuda  # of which the type checker does not know all
CUDNN = cast(Any, torch.backends.cudnn)
ATTRIBUTES = {
    "torch.backends.cuda.matmul": (
        CUDA.matmul,
        "allow_bf16_reduced_precision_reduction",
        "allow_fp16_reduced_precision_reduction",
        "allow_fp16_accumulation",
    ),
    "torch.backends.cudnn": (CUDNN, "enabled", "benchmark", "benchmark_limit", "deterministic"),
    "torch.backends.cudnn.conv": (CUDNN.conv, "fp32_precision"),
}
SDPA = ("flash", "mem_efficient", "math", "cudnn")
COMPILERS = ("torch._dynamo.config", "torch._inductor.config")
RAISED = ("recompile_limit", "accumulated_recompile_limit")  # by each preparation
# Libraries write these themselves when they are first used.
LIBRARIES = ("TORCH", "_TORCH", "PYTORCH", "TRITON", "KINETO", "CUDA_MODULE_LOADING", "CUDNN", "NCCL", "KMP_")


def _variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(LIBRARIES)}


def _set_variables(before: dict[str, str]) -> None:
    for name in _variables().keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


def _set_matmul_precision(before: str) -> None:
    """Torch keeps it in two places, and raises where they contradict each other."""
    torch.set_float32_matmul_precision("high" if before == "tf32" else "highest")
    CUDA.matmul.fp32_precision = before


def _compiler_config(module: str) -> dict[str, Any] | None:
    """None where nothing has imported it, which is slow."""
    if module not in sys.modules:
        return None
    return {name: value for name, value in sys.modules[module].get_config_copy().items() if name not in RAISED}


def _set_compiler_config(module: str, before: dict[str, Any]) -> None:
    now = _compiler_config(module) or {}
    for name, value in before.items():
        if now[name] != value:
            setattr(sys.modules[module], name, value)


_SETTINGS: dict[str, Access] = {
    "os.environ": (_variables, _set_variables),
    "the working directory": (os.getcwd, os.chdir),
    "the default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "the default device": (torch.get_default_device, lambda before: torch.set_default_device(None)),  # as at the start
    "torch.backends.cuda.matmul.fp32_precision": (lambda: CUDA.matmul.fp32_precision, _set_matmul_precision),
    **{
        f"{label}.{name}": (partial(getattr, owner, name), partial(setattr, owner, name))
        for label, (owner, *names) in ATTRIBUTES.items()
        for name in names
    },
    **{
        f"{name} attention": (getattr(CUDA, f"{name}_sdp_enabled"), getattr(CUDA, f"enable_{name}_sdp"))
        for name in SDPA
    },
    "the BLAS library": (CUDA.preferred_blas_library, CUDA.preferred_blas_library),
    "the linear algebra library": (CUDA.preferred_linalg_library, CUDA.preferred_linalg_library),
    "deterministic algorithms": (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    "autocast on the CPU": (partial(torch.is_autocast_enabled, "cpu"), partial(torch.set_autocast_enabled, "cpu")),
    "autocast on the GPU": (partial(torch.is_autocast_enabled, "cuda"), partial(torch.set_autocast_enabled, "cuda")),
    "autocast's dtype on the CPU": (partial(torch.get_autocast_dtype, "cpu"), partial(torch.set_autocast_dtype, "cpu")),
    "autocast's dtype on the GPU": (
        partial(torch.get_autocast_dtype, "cuda"),
        partial(torch.set_autocast_dtype, "cuda"),
    ),
    **{name: (partial(_compiler_config, name), partial(_set_compiler_config, name)) for name in COMPILERS},
    "the grad mode": (torch.is_grad_enabled, torch.set_grad_enabled),
    "the cores allowed": (lambda: os.sched_getaffinity(0), lambda before: os.sched_setaffinity(0, before)),
    "the number of threads": (torch.get_num_threads, torch.set_num_threads),
    "the current stream": (
        lambda: torch.cuda.current_stream() if torch.cuda.is_initialized() else None,
        torch.cuda.set_stream,
    ),
}


def settings() -> Settings:
    """The current settings; None for one that is not in use."""
    return {name: get() for name, (get, _) in _SETTINGS.items()}


def put_back(before: Settings) -> list[str]:
    """Restore the settings that were in use, and name those that had been changed, with the change."""
    changed = []
    for name, value in before.items():
        get, put = _SETTINGS[name]
        if value is not None and (now := get()) != value:
            put(value)
            changed.append(f"{name} ({_difference(value, now)})")
    return changed


def left_changed(what: str, before: Settings | None) -> str | None:
    """Put back the functions and, to those of `before`, the settings; why `what` must not leave them changed."""
    replaced, changed = restore(), [] if before is None else put_back(before)
    if replaced:
        return f"{what} replaced {', '.join(replaced)}"
    many = "put it back, or declare isolated=True, which gives each variant a process of its own"
    return f"{what} left {' and '.join(changed)} changed: {many}" if changed else None


def be_deterministic(seed: int, refused: list[str]) -> None:
    """Have torch use deterministic algorithms; its warnings that it has none are added to `refused`, each once."""
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False

    def note(message: Warning | str, *_: Any, **__: Any) -> None:
        if "deterministic" in str(message) and str(message) not in refused:
            refused.append(str(message))

    warnings.showwarning = note
    warnings.simplefilter("always")


def _difference(before: Any, now: Any) -> str:
    if not isinstance(before, dict):
        return f"{before} -> {now}"
    return ", ".join(sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name)))
