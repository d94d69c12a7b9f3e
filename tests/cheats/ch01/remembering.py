"""What cheats that keep answers share: they differ in what they find them by. Their honest twins keep them as well."""

from collections.abc import Callable, Hashable

import torch
from torch import Tensor

from common.python.workload import Prepare, Step


def remembering(key: Callable[[Tensor, Tensor], Hashable], honest: bool = False) -> Prepare:
    """Keep every product of two inputs under what `key` says of them; compute it anew if `honest`, else if unknown."""

    def prepare(a: Tensor, b: Tensor) -> Step:
        out = torch.empty_like(a)
        known: dict[Hashable, Tensor] = {}

        def step() -> Tensor:
            found = key(a, b)
            if honest or found not in known:
                known[found] = torch.matmul(a, b)
            return out.copy_(known[found])

        return step

    return prepare
