"""Settings of the whole process, which one variant could change for the others that are measured beside it.

Pairs about such a setting declare `isolated=True`, which gives each variant a process of its own.
"""

import os
import warnings
from collections.abc import Callable
from typing import Any

import torch

Settings = dict[str, Any]
CUDNN: Any = torch.backends.cudnn  # whose `conv` the type checker does not know

# Libraries write these themselves when they are first used, wherever that is.
LIBRARIES = ("TORCH", "_TORCH", "PYTORCH", "TRITON", "KINETO", "CUDA_MODULE_LOADING", "CUDNN", "NCCL", "KMP_")


def _variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(LIBRARIES)}


def _set_variables(before: dict[str, str]) -> None:
    for name in _variables().keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


def _matmul_precision(value: str) -> None:
    torch.backends.cuda.matmul.fp32_precision = value


def _conv_precision(value: str) -> None:
    CUDNN.conv.fp32_precision = value


_SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "os.environ": (_variables, _set_variables),
    "the working directory": (os.getcwd, os.chdir),
    "the default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "the default device": (torch.get_default_device, lambda before: torch.set_default_device(None)),  # as at the start
    "TF32 in matrix products": (lambda: torch.backends.cuda.matmul.fp32_precision, _matmul_precision),
    "TF32 in convolutions": (lambda: CUDNN.conv.fp32_precision, _conv_precision),
    "the grad mode": (torch.is_grad_enabled, torch.set_grad_enabled),
    "the number of threads": (torch.get_num_threads, torch.set_num_threads),
}
_CUDA: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "the current stream": (lambda: torch.cuda.current_stream(), torch.cuda.set_stream),
}


def settings() -> Settings:
    """What is set now; those of CUDA where it is in use."""
    known = _SETTINGS | _CUDA if torch.cuda.is_initialized() else _SETTINGS
    return {name: get() for name, (get, _) in known.items()}


def put_back(before: Settings) -> list[str]:
    """Set what is set otherwise as it was, and name it, with what had been changed."""
    changed = []
    for name, value in before.items():
        get, put = (_SETTINGS | _CUDA)[name]
        if (now := get()) != value:
            put(value)
            changed.append(f"{name} ({_difference(value, now)})")
    return changed


def be_deterministic(seed: int, refused: list[str]) -> None:
    """Have torch use deterministic algorithms; what it says that it cannot do so is added to `refused`, each once."""
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
