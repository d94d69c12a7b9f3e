"""Every row is multiplied alone, so that its bits depend on no other row: each row reads the whole weight once more."""

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, rows: int, batches: int, width: int, outputs: int, dtype: str) -> Inputs:
    """Batches of random lengths, one after the other, each with the same row, the probe, at a place of its own."""
    element, host = getattr(torch, dtype), draw.host
    ends = torch.cat([host.permutation(rows - 1)[: batches - 1].sort().values + 1, torch.tensor([rows])])
    starts = torch.cat([torch.tensor([0]), ends[:-1]])
    probes = (starts + host.uniform(batches) * (ends - starts)).long()
    x = draw.normal(rows, width, dtype=element)
    x[probes.to(x.device)] = draw.normal(width, dtype=element)
    weight = draw.normal(outputs, width, std=width**-0.5, dtype=element)
    return {"x": x, "ends": ends, "probes": probes.to(x.device), "weight": weight}


def differing(out: Tensor, probes: Tensor) -> Tensor:
    """How many numbers of the probe's answers differ from those that it got in the first batch, in any bit."""
    answers = out[probes]
    return (answers != answers[0]).sum()


def reference(x: Tensor, ends: Tensor, probes: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    return x @ weight.T, torch.zeros_like(probes[0])


def cost(rows: int, batches: int, width: int, outputs: int, dtype: str) -> Cost:
    return Cost(
        flops=2 * rows * width * outputs,
        dtype="bf16",
        read=2 * width * (rows + outputs),
        write=2 * rows * outputs,
        items=rows,
        unit="rows",
    )


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        # The up projection of a 70B Llama, 470 MB
        "bench": {"rows": 192, "batches": 4, "width": 8192, "outputs": 28672, "dtype": "bfloat16"},
        # A CPU's fp32 sums depend on the batch; and on where a row begins, unless rows are whole cache lines.
        "test": {"rows": 131, "batches": 5, "width": 80, "outputs": 37, "dtype": "float32"},
    },
    tolerance=4e-3,  # of rounding the output to bf16; the number of differing bits is exact
    frozen=("weight",),
)


def prepare(x: Tensor, ends: Tensor, probes: Tensor, weight: Tensor) -> Step:
    out = x.new_empty(len(x), len(weight))

    def step() -> tuple[Tensor, ...]:
        for row, answer in zip(x.split(1), out.split(1)):
            torch.mm(row, weight.T, out=answer)
        return out, differing(out, probes)

    return step
