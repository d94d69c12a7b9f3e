"""torch.compile of the padded form: one kernel between the two products makes all weights, padding's too."""

import torch
from torch import Tensor
from torch.nn.functional import silu

from ch18.baseline_jagged_attention import packed, padded
from ch18.baseline_jagged_attention import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def attend(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    queries, keys, values = (x.transpose(1, 2) for x in (q, k, v))
    return (silu(queries @ keys.mT * scale).tril() / k.shape[1] @ values).transpose(1, 2)


def prepare(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, starts: Tensor) -> Step:
    compiled, scale = torch.compile(attend, dynamic=False, fullgraph=True), q.shape[2] ** -0.5

    def step() -> Tensor:
        return packed(compiled(*(padded(x, lengths) for x in (q, k, v)), scale), lengths)

    return step
