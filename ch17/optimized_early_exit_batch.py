"""Only samples that stay pass the next layers, as a CUDA graph of a batch rounded up to 256: one wait an exit."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import linear, rms_norm

from ch17.baseline_early_exit_batch import EXITS, deeper
from ch17.baseline_early_exit_batch import workload as workload
from common.models.graphs import replayable
from common.python.workload import Step

BUCKET = 256  # a graph is captured when a batch is first of its size


def prepare(x: Tensor, up: list[Tensor], down: list[Tensor], heads: list[Tensor], probes: Tensor) -> Step:
    # The row behind the samples' takes what nobody reads. Stages read one set of states and write the other, in turn.
    samples, places = len(x), torch.arange(len(x) + 1, device=x.device)
    logits, first = x.new_empty(samples + 1, len(heads[0])), torch.empty_like(places)
    states = [x.new_zeros(samples + 1, x.shape[1]) for _ in range(2)]
    who, count = [torch.zeros_like(places) for _ in range(2)], [places[:1].clone() for _ in range(2)]
    told = torch.zeros(1, dtype=torch.int64, pin_memory=x.is_cuda)
    captured = dict[tuple[int, int], Callable[[], None]]()

    def stage(index: int, rows: int) -> None:
        source, target = index % 2, 1 - index % 2
        given, owner, live = (
            (x, places[:rows], places[:rows] >= 0)
            if index == 0
            else (states[source][:rows], who[source][:rows], places[:rows] < count[source])
        )
        passed = deeper(given, up, down, index)
        sure = live & (passed @ probes[index] > 0) if index < EXITS - 1 else live
        stay, leaving = live & ~sure, torch.where(sure, owner, samples)
        logits.index_copy_(0, leaving, linear(rms_norm(passed, passed.shape[1:]), heads[index]))
        first.index_fill_(0, leaving, index)
        behind = torch.where(stay, stay.cumsum(0) - 1, samples)
        states[target].index_copy_(0, behind, passed)
        who[target].index_copy_(0, behind, owner)
        count[target].copy_(stay.sum(0, keepdim=True))
        told.copy_(count[target], non_blocking=True)

    @torch.inference_mode()
    def step() -> tuple[Tensor, Tensor]:
        left = samples
        for index in range(EXITS):
            form = index, min(samples, -(-left // BUCKET) * BUCKET)
            if form not in captured:
                captured[form] = replayable(partial(stage, *form), x.device)
            captured[form]()
            if x.is_cuda:
                torch.cuda.current_stream().synchronize()
            if (left := int(told)) == 0:
                break
        return logits[:-1], first[:-1]

    return step
