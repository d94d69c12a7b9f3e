"""What torch.compile did inside is told; what it did before is not, and nothing is told where it did nothing."""

import subprocess
import sys

import torch
from torch import Tensor

from common.python.proof.compile_facts import watched


def broken(x: Tensor) -> Tensor:
    doubled = x * 2
    if doubled.sum() > 0:  # the graph breaks: the host must know
        doubled = doubled + 1
    return doubled.cos()


def test_graphs_and_breaks_inside_are_counted_and_earlier_ones_are_not() -> None:
    told: dict[str, float] = {}
    torch.compile(broken, backend="eager")(torch.ones(4))
    torch._dynamo.reset()
    with watched(told):
        torch.compile(broken, backend="eager")(torch.ones(4))
    assert (told["graphs"], told["graph breaks"], told["graphs from the cache"]) == (2, 1, 0)
    assert 0 < told["compilation s"] < 60


def test_what_was_compiled_already_is_not_told_again() -> None:
    told: dict[str, float] = {}
    compiled = torch.compile(lambda x: x + 1, backend="eager")
    compiled(torch.ones(4))
    with watched(told):
        compiled(torch.ones(4))
    assert told == {}


def test_it_does_not_import_the_compiler() -> None:
    code = "import sys; from common.python.proof.compile_facts import watched\nwith watched(told := {}): pass\n"
    done = subprocess.run([sys.executable, "-c", code + "print(told, 'torch' in sys.modules)"], capture_output=True)
    assert done.stdout.split() == [b"{}", b"False"], done.stderr
