"""Loss, accuracy and gradient norm are read by .item() in each step: the host waits, and loads no batch meanwhile."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, embedding, linear, silu
from torch.utils.data import DataLoader, TensorDataset

from common.python.workload import Cost, Draw, Inputs, Step, Workload

RATE, LIMIT = 2.0, 0.1  # of gradient descent, and of the gradients' norm


def inputs(draw: Draw, steps: int, texts: int, length: int, width: int, layers: int, classes: int) -> Inputs:
    """Words near their class's signs, by far, so that rounding changes no accuracy; three in ten labels are wrong."""
    signs = draw.integers(classes, width, high=2).mul_(2).sub_(1).to(torch.bfloat16)
    words, std = 4 * classes, 0.1 * width**-0.5
    ids, other = draw.host.integers(steps, texts, length, high=words), draw.integers(steps, texts, length, high=classes)
    wrong = draw.uniform(steps, texts, length) < 0.3
    return {
        "ids": ids,
        "labels": torch.where(wrong.cpu(), other.cpu(), ids % classes),
        "table": signs.repeat(4, 1) + draw.normal(words, width, std=0.5, dtype=torch.bfloat16),
        "weights": [
            *(draw.normal(width, width, std=std, dtype=torch.bfloat16) for _ in range(layers)),
            signs * (8 / width),
        ],
    }


def update(ids: Tensor, labels: Tensor, table: Tensor, weights: list[Tensor], note: Callable[[Tensor], object]) -> None:
    """A step of clipped gradient descent, in place; `note` gets each figure as soon as it is enqueued."""
    leaves = [weight.requires_grad_() for weight in weights]
    x, labels = embedding(ids.flatten(), table), labels.flatten()
    for weight in leaves[:-1]:
        x = x + silu(linear(x, weight))
    logits = linear(x, leaves[-1])
    loss = cross_entropy(logits.to(torch.promote_types(x.dtype, torch.float32)), labels)
    note(loss.detach())
    note((logits.argmax(-1) == labels).float().mean())
    gradients = torch.autograd.grad(loss, leaves)
    norm = torch.stack(torch._foreach_norm(gradients, dtype=loss.dtype)).norm()
    note(norm)
    with torch.no_grad():
        torch._foreach_mul_(gradients, (LIMIT / norm.clamp(min=LIMIT)).to(x.dtype))
        torch._foreach_add_(leaves, gradients, alpha=-RATE)


def batches(ids: Tensor, labels: Tensor, table: Tensor) -> Iterator[list[Tensor]]:
    """The loop loads its batches itself: without workers a DataLoader takes one text after another, and stacks them."""
    texts = TensorDataset(ids.flatten(0, 1), labels.flatten(0, 1))
    for batch in DataLoader(texts, batch_size=ids.shape[1], pin_memory=table.is_cuda):
        yield [part.to(table.device, non_blocking=True) for part in batch]


def reference(ids: Tensor, labels: Tensor, table: Tensor, weights: list[Tensor]) -> tuple[Tensor, ...]:
    figures: list[Tensor] = []
    for batch, of_batch in zip(ids, labels):
        update(batch, of_batch, table, weights, figures.append)
    return torch.stack(figures), *weights


def cost(steps: int, texts: int, length: int, width: int, layers: int, classes: int) -> Cost:
    """Products forward and back, but for the gradient of what comes in; ids, labels and weights in, weights out."""
    first, weights, tokens = width**2, width * (layers * width + classes), texts * length
    return Cost(
        flops=2 * steps * tokens * (3 * weights - first),
        dtype="bf16",
        pcie_bytes=16 * steps * tokens,
        read=16 * steps * tokens + 2 * weights,
        write=2 * weights,
        items=steps,
        unit="training steps",
    )


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        # A step should take the GPU longer than the host needs to load a batch and launch the step's kernels.
        "bench": {"steps": 6, "texts": 512, "length": 48, "width": 1024, "layers": 8, "classes": 8192},
        "test": {"steps": 5, "texts": 7, "length": 5, "width": 136, "layers": 2, "classes": 11},
    },
    tolerance=2e-2,  # bf16 rounds at 0.2%, after each layer and at each update
    mutates=("weights",),
    clock="end_to_end",
)


def prepare(ids: Tensor, labels: Tensor, table: Tensor, weights: list[Tensor]) -> Step:
    leaves = [weight.detach() for weight in weights]  # the same memory

    def step() -> tuple[Tensor, ...]:
        logged: list[float] = []
        for batch in batches(ids, labels, table):
            update(*batch, table, leaves, lambda figure: logged.append(figure.item()))
        return torch.tensor(logged), *weights

    return step
