"""Settings of the whole process, which one variant could change for the others measured with it.

Pairs about such a setting declare `isolated=True`, which gives each variant a process of its own.
"""

import os
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

Settings = dict[str, Any]
MATMUL = torch.backends.cuda.matmul
CUDNN: Any = torch.backends.cudnn  # whose `conv` the type checker does not know

# Libraries write these themselves when they are first used.
LIBRARIES = ("TORCH", "_TORCH", "PYTORCH", "TRITON", "KINETO", "CUDA_MODULE_LOADING", "CUDNN", "NCCL", "KMP_")


def _variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(LIBRARIES)}


def _set_variables(before: dict[str, str]) -> None:
    for name in _variables().keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


_SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "os.environ": (_variables, _set_variables),
    "the working directory": (os.getcwd, os.chdir),
    "the default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "the default device": (torch.get_default_device, lambda before: torch.set_default_device(None)),  # as at the start
    "TF32 in matrix products": (lambda: MATMUL.fp32_precision, partial(setattr, MATMUL, "fp32_precision")),
    "TF32 in convolutions": (lambda: CUDNN.conv.fp32_precision, partial(setattr, CUDNN.conv, "fp32_precision")),
    "the grad mode": (torch.is_grad_enabled, torch.set_grad_enabled),
    "the number of threads": (torch.get_num_threads, torch.set_num_threads),
}
STREAM = "the current stream"
_SETTINGS[STREAM] = (lambda: torch.cuda.current_stream(), torch.cuda.set_stream)


def settings() -> Settings:
    """The current settings; the stream only where CUDA is in use."""
    return {name: get() for name, (get, _) in _SETTINGS.items() if name != STREAM or torch.cuda.is_initialized()}


def put_back(before: Settings) -> list[str]:
    """Restore the settings, and name those that had been changed, with the change."""
    changed = []
    for name, value in before.items():
        get, put = _SETTINGS[name]
        if (now := get()) != value:
            put(value)
            changed.append(f"{name} ({_difference(value, now)})")
    return changed


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
