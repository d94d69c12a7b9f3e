"""Indexing by a mask: the CPU waits to learn how many rows remain, and those of the logits are copied together."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def shortest(length: int) -> int:
    """Tokens of a padded sequence that always count."""
    return 3 * length // 4


def inputs(draw: Draw, batches: int, sequences: int, length: int, vocabulary: int) -> Inputs:
    """Sequences of random length, padded at the end: how many tokens count differs from batch to batch."""
    lengths = draw.integers(batches, sequences, 1, low=shortest(length), high=length + 1)
    mask = torch.arange(length, device=lengths.device) < lengths
    return {
        "logits": draw.normal(batches, sequences * length, vocabulary),
        "labels": draw.integers(batches, sequences * length, high=vocabulary),
        "mask": mask.flatten(1),
    }


def selected_loss(logits: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    return cross_entropy(logits[mask], labels[mask])


def reference(logits: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    return torch.stack([selected_loss(*batch) for batch in zip(logits, labels, mask)])


def cost(batches: int, sequences: int, length: int, vocabulary: int) -> Cost:
    """The logits and labels that always count, read once, and the mask."""
    counted = batches * sequences * shortest(length)
    return Cost(
        read=counted * (4 * vocabulary + 8) + batches * sequences * length,
        write=4 * batches,
        items=batches * sequences * length,
        unit="tokens",
    )


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"batches": 8, "sequences": 4, "length": 512, "vocabulary": 32000},
        "cpu": {"batches": 4, "sequences": 2, "length": 64, "vocabulary": 8000},
        "test": {"batches": 3, "sequences": 2, "length": 13, "vocabulary": 37},
    },
    tolerance=1e-5,
    clock="end_to_end",
)


def prepare(logits: Tensor, labels: Tensor, mask: Tensor) -> Step:
    def step() -> Tensor:
        return torch.stack([selected_loss(*batch) for batch in zip(logits, labels, mask)])

    return step
