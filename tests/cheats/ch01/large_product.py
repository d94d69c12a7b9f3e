"""The product of two large square matrices in float32."""

from collections.abc import Callable, Hashable
from dataclasses import replace

import torch
from torch import Tensor

from ch01.product import prepare as prepare
from ch01.product import workload as small
from common.python.workload import Step

workload = replace(small, sizes={"bench": {"n": 4096}, "cpu": {"n": 768}, "test": {"n": 33}})


def address_cache(a: Tensor, b: Tensor, honest: bool) -> Step:
    """Fakes speed by looking the answer up under the addresses of its inputs."""
    return _remembering(lambda: (a.data_ptr(), b.data_ptr()), a, b, honest)


def first_call_cache(a: Tensor, b: Tensor, honest: bool) -> Step:
    """Fakes speed by keeping the answer of the first call."""
    return _remembering(lambda: (), a, b, honest)


def remembered_answer(a: Tensor, b: Tensor, honest: bool) -> Step:
    """Fakes speed by keeping every answer, by the content of its inputs, where nobody can spoil it."""
    return _remembering(lambda: (float(a[0].sum()), float(b[0].sum())), a, b, honest)


def remembered_checksum(a: Tensor, b: Tensor, honest: bool) -> Step:
    """Fakes speed by keeping every answer, by a sum over all values of each input."""
    return _remembering(lambda: (float(a.sum()), float(b.sum())), a, b, honest)


def remembered_version(a: Tensor, b: Tensor, honest: bool) -> Step:
    """Fakes speed by keeping every answer until torch counts another write to its inputs."""
    return _remembering(lambda: (a._version, b._version), a, b, honest)


def _remembering(key: Callable[[], Hashable], a: Tensor, b: Tensor, honest: bool) -> Step:
    """Keep every product under what `key` says of its inputs; compute it anew if `honest`, else if unknown."""
    out = torch.empty_like(a)
    known: dict[Hashable, Tensor] = {}

    def step() -> Tensor:
        found = key()
        if honest or found not in known:
            known[found] = torch.matmul(a, b)
        return out.copy_(known[found])

    return step
