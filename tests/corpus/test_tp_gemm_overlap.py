"""Chapter 4's ring of partial products: each rank's sum visits all others and comes home, and each turn waits for it.

Here the ranks are threads, their buffers are common memory, and a stream is the thread itself.
"""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from threads_as_ranks import Ranks
from torch import Tensor

from ch04 import optimized_tp_gemm_overlap as ring
from ch04.baseline_tp_gemm_overlap import reference

STEPS = 3


@pytest.mark.parametrize("count", [2, 3, 4])
def test_every_rank_ends_with_the_sum_of_all_ranks_products_for_its_rows(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = Ranks(count)
    world = SimpleNamespace(get_rank=ranks.rank, get_world_size=lambda: count, group=SimpleNamespace(WORLD=None))
    monkeypatch.setattr(ring, "dist", world)
    monkeypatch.setattr(ring, "symmetric_memory", ranks)
    stream = SimpleNamespace(wait_stream=lambda other: None)
    monkeypatch.setattr(torch.cuda, "Stream", lambda priority: stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    torch.manual_seed(0)
    x, w = torch.randn(STEPS, count, count * 9, 5), torch.randn(count, 5, 7)

    def of_rank(rank: int) -> list[Tensor]:
        mine = x[0, rank].clone()
        step, outs = ring.prepare(mine, w[rank]), list[Tensor]()
        for fresh in x[:, rank]:
            mine.copy_(fresh)
            out = step()
            assert isinstance(out, Tensor)
            outs.append(out.clone())
        return outs

    outs = ranks.each(of_rank)
    for turn, of_step in enumerate(x):
        for rank in range(count):
            torch.testing.assert_close(outs[rank][turn], reference(rank, list(of_step), list(w)))
