"""What the variants share: a step that calls one function of a CUDA file."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from common.python.workload import Prepare, Step


def calling(load: Callable[..., Any], file: str, name: str) -> Prepare:
    """Prepare a step that calls this function of the .cu file beside `file`, on an input and an output as long."""

    def prepare(a: Tensor) -> Step:
        kernel, out = load(file, name), a.new_empty(a.shape)

        def step() -> Tensor:
            kernel(a, out, a.shape[0])
            return out

        return step

    return prepare
