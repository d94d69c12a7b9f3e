"""Every row is multiplied alone, so that its bits depend on no other row: each row reads the whole weight once more."""

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, rows: int, batches: int, width: int, outputs: int, dtype: str) -> Inputs:
    """Batches of random lengths, one after the other, each with the same row, the probe, at a place of its own.

    A server knows a batch only when the batch before it is answered. So here all rows but the probes are unfinished:
    they lack a part of the last answer of the batch before.
    """
    element, host = getattr(torch, dtype), draw.host
    ends = torch.cat([host.permutation(rows - 1)[: batches - 1].sort().values + 1, torch.tensor([rows])])
    starts = torch.cat([torch.tensor([0]), ends[:-1]])
    probes = (starts + host.uniform(batches) * (ends - starts)).long()
    x = draw.normal(rows, width, dtype=element)
    x[probes.to(x.device)] = draw.normal(width, dtype=element)
    weight = draw.normal(outputs, width, std=width**-0.5, dtype=element)
    unfinished = torch.ones_like(x[:, :1]).index_fill_(0, probes.to(x.device), 0.0)
    return {"x": x, "ends": ends, "probes": probes.to(x.device), "unfinished": unfinished, "weight": weight}


def lengths(ends: Tensor) -> list[int]:
    """Of the batches; they are in host memory, so nothing waits for the GPU."""
    return ends.diff(prepend=ends.new_zeros(1)).tolist()


def finish(rows: Tensor, unfinished: Tensor, earlier: Tensor | None) -> Tensor:
    """The rows of a batch, given the answers to the batch before: of its last row as many numbers as a row has."""
    return rows if earlier is None else torch.addcmul(rows, unfinished, earlier[-1, : rows.shape[1]])


def differing(out: Tensor, probes: Tensor) -> Tensor:
    """How many numbers of the probe's answers differ from those that it got in the first batch, in any bit."""
    answers = out[probes]
    return (answers != answers[0]).sum()


def reference(x: Tensor, ends: Tensor, probes: Tensor, unfinished: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    answers: list[Tensor] = []
    for rows, mask in zip(x.split(lengths(ends)), unfinished.split(lengths(ends))):
        answers.append(finish(rows, mask, answers[-1] if answers else None) @ weight.T)
    return torch.cat(answers), torch.zeros_like(probes[0])


def cost(rows: int, batches: int, width: int, outputs: int, dtype: str) -> Cost:
    """A batch needs the answers to the one before, so each reads the whole weight, which no L2 cache holds."""
    return Cost(
        flops=2 * rows * width * outputs,
        dtype="bf16",
        read=2 * width * (rows + batches * outputs),
        write=2 * rows * outputs,
        passes=batches,
        items=rows,
        unit="rows",
    )


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        # The up projection of OPT-175B, 1.2 GB
        "bench": {"rows": 64, "batches": 4, "width": 12288, "outputs": 49152, "dtype": "bfloat16"},
        # A CPU's fp32 sums depend on the batch; and on where a row begins, unless rows are whole cache lines.
        "test": {"rows": 131, "batches": 5, "width": 80, "outputs": 101, "dtype": "float32"},
    },
    # Rounding a batch's rows and answers to bf16, which the next batch inherits; the number of differing bits is exact.
    tolerance=8e-3,
    frozen=("weight",),
)


def prepare(x: Tensor, ends: Tensor, probes: Tensor, unfinished: Tensor, weight: Tensor) -> Step:
    out = x.new_empty(len(x), len(weight))

    def step() -> tuple[Tensor, ...]:
        sizes, earlier = lengths(ends), None
        for rows, mask, answers in zip(x.split(sizes), unfinished.split(sizes), out.split(sizes)):
            for row, answer in zip(finish(rows, mask, earlier).split(1), answers.split(1)):
                torch.mm(row, weight.T, out=answer)
            earlier = answers
        return out, differing(out, probes)

    return step
