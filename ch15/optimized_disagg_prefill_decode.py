"""One rank prefills all that arrives, and the other decodes all streams, never interrupted."""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from ch15.baseline_disagg_prefill_decode import prefill, serving
from ch15.baseline_disagg_prefill_decode import workload as workload
from common.models.decoder import Shape, Weights
from common.python.workload import Step


def prepare(weights: Weights, shape: Shape, texts: Tensor, steps: int) -> Step:
    """Ranks are couples: the even one prefills for both, the odd one decodes."""
    rank, (groups, _, each, asked), made = dist.get_rank(), texts.shape, (len(texts) - 1) * steps
    other, both = rank ^ 1, texts[:, rank & ~1 : (rank | 1) + 1].flatten(1, 2)
    moved = weights["head"].new_empty(shape.layers, 2, 2 * each, shape.kv_heads, asked, shape.head_dim)
    states = moved.new_empty(2 * each, shape.width)
    answers = texts.new_empty(groups * each, made), moved.new_empty(groups * each, made, shape.width)

    def pass_on(how: Callable[..., dist.Work | None], *tensors: Tensor) -> None:
        for work in dist.batch_isend_irecv([dist.P2POp(how, tensor, other) for tensor in tensors]):
            work.wait()

    @torch.inference_mode()
    def prefills() -> tuple[Tensor, Tensor]:
        new = torch.empty_like(both[0])
        for _ in range(groups - 1):
            pass_on(dist.irecv, new)
            states.copy_(prefill(weights, shape, new, moved))
            pass_on(dist.isend, moved, states)
        pass_on(dist.irecv, *answers)
        return answers

    def begin(new: Tensor, room: Tensor) -> Callable[[], Tensor]:
        pass_on(dist.isend, new)

        def arrive() -> Tensor:
            pass_on(dist.irecv, moved, states)
            room.copy_(moved)
            return states

        return arrive

    def decodes() -> tuple[Tensor, Tensor]:
        tokens, mine = (x.unflatten(0, (groups, 2, each)) for x in serve())
        pass_on(dist.isend, tokens[:, 0].flatten(0, 1), mine[:, 0].flatten(0, 1))
        return tokens[:, 1].flatten(0, 1), mine[:, 1].flatten(0, 1)

    if rank % 2 == 0:
        return prefills
    serve = serving(weights, shape, both, steps, begin)
    return decodes
