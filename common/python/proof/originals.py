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
MATMUL, CUDNN = CUDA.matmul, cast(Any, torch.backends.cudnn)
SDPA = ("flash", "mem_efficient", "math", "cudnn")

# Libraries write these themselves when they are first used.
LIBRARIES = ("TORCH", "_TORCH", "PYTORCH", "TRITON", "KINETO", "CUDA_MODULE_LOADING", "CUDNN", "NCCL", "KMP_")


def _variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(LIBRARIES)}


def _set_variables(before: dict[str, str]) -> None:
    for name in _variables().keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


def _attributes(owner: Any, *names: str) -> Access:
    def put(before: dict[str, Any]) -> None:
        for name, value in before.items():
            setattr(owner, name, value)

    return lambda: {name: getattr(owner, name) for name in names}, put


def _attention() -> dict[str, bool]:
    return {name: getattr(CUDA, f"{name}_sdp_enabled")() for name in SDPA}


def _set_attention(before: dict[str, bool]) -> None:
    for name, enabled in before.items():
        getattr(CUDA, f"enable_{name}_sdp")(enabled)


def _autocast(device: str) -> Access:
    def put(before: tuple[bool, torch.dtype]) -> None:
        torch.set_autocast_enabled(device, before[0])
        torch.set_autocast_dtype(device, before[1])

    return lambda: (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)), put


def _compiler(module: str) -> Access:
    def get() -> dict[str, Any]:
        copy = sys.modules[module].get_config_copy()
        return {name: value for name, value in copy.items() if name not in RAISED}

    def put(before: dict[str, Any]) -> None:
        now = get()
        for name, value in before.items():
            if now[name] != value:
                setattr(sys.modules[module], name, value)

    return get, put


RAISED = ("recompile_limit", "accumulated_recompile_limit")  # by each preparation
_COMPILERS = ("torch._dynamo.config", "torch._inductor.config")  # read where something has imported them, which is slow
_SETTINGS: dict[str, Access] = {
    "os.environ": (_variables, _set_variables),
    "the working directory": (os.getcwd, os.chdir),
    "the default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "the default device": (torch.get_default_device, lambda before: torch.set_default_device(None)),  # as at the start
    "TF32 in matrix products": (lambda: MATMUL.fp32_precision, partial(setattr, MATMUL, "fp32_precision")),
    "TF32 in convolutions": (lambda: CUDNN.conv.fp32_precision, partial(setattr, CUDNN.conv, "fp32_precision")),
    "matrix products": _attributes(
        MATMUL,
        "allow_bf16_reduced_precision_reduction",
        "allow_fp16_reduced_precision_reduction",
        "allow_fp16_accumulation",
    ),
    "cuDNN": _attributes(CUDNN, "enabled", "benchmark", "benchmark_limit", "deterministic"),
    "the backends of attention": (_attention, _set_attention),
    "the BLAS library": (CUDA.preferred_blas_library, CUDA.preferred_blas_library),
    "the linear algebra library": (CUDA.preferred_linalg_library, CUDA.preferred_linalg_library),
    "deterministic algorithms": (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    "autocast on the CPU": _autocast("cpu"),
    "autocast on the GPU": _autocast("cuda"),
    **{module: _compiler(module) for module in _COMPILERS},
    "the grad mode": (torch.is_grad_enabled, torch.set_grad_enabled),
    "the cores allowed": (lambda: os.sched_getaffinity(0), lambda before: os.sched_setaffinity(0, before)),
    "the number of threads": (torch.get_num_threads, torch.set_num_threads),
}
STREAM = "the current stream"
_SETTINGS[STREAM] = (lambda: torch.cuda.current_stream(), torch.cuda.set_stream)


def settings() -> Settings:
    """The current settings: the stream only where CUDA is in use, compilers' only where they are loaded."""
    absent = {module for module in _COMPILERS if module not in sys.modules}
    absent |= set() if torch.cuda.is_initialized() else {STREAM}
    return {name: get() for name, (get, _) in _SETTINGS.items() if name not in absent}


def put_back(before: Settings) -> list[str]:
    """Restore the settings, and name those that had been changed, with the change."""
    changed = []
    for name, value in before.items():
        get, put = _SETTINGS[name]
        if (now := get()) != value:
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
