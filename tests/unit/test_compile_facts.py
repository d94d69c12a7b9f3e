"""What torch.compile did inside is told; what it did before is not, and nothing is told where it did nothing."""

import torch
from torch import Tensor

from common.python.proof.preparation import compilation


def broken(x: Tensor) -> Tensor:
    doubled = x * 2
    if doubled.sum() > 0:  # the graph breaks: the host must know
        doubled = doubled + 1
    return doubled.cos()


def test_graphs_and_breaks_inside_are_counted_and_earlier_ones_are_not() -> None:
    torch.compile(broken, backend="eager")(torch.ones(4))
    torch._dynamo.reset()
    with compilation() as told:
        torch.compile(broken, backend="eager")(torch.ones(4))
    assert (told["graphs"], told["graph breaks"], told["graphs from the cache"]) == (2, 1, 0)
    assert 0 < told["compilation s"] < 60


def test_what_was_compiled_already_is_not_told_again() -> None:
    compiled = torch.compile(lambda x: x + 1, backend="eager")
    compiled(torch.ones(4))
    with compilation() as told:
        compiled(torch.ones(4))
    assert told == {}
