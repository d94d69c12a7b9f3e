"""A rank's own rows come last, onto what arrived for them: copy engines move chunks, the product's epilogue adds."""

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import _symmetric_memory as symmetric_memory

from ch04.baseline_tp_gemm_overlap import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=2, sm=80)
CHUNKS = 4  # of a rank's rows: more of them set out earlier, fewer fill the GPU better


def prepare(x: Tensor, w: Tensor) -> Step:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    after, before, rows = (rank + 1) % ranks, (rank - 1) % ranks, len(x) // ranks
    sums = symmetric_memory.empty((ranks, rows, w.shape[1]), dtype=x.dtype, device=x.device)  # one for each turn
    handle = symmetric_memory.rendezvous(sums, dist.group.WORLD)
    theirs = handle.get_buffer(after, sums.shape, sums.dtype)
    copies = torch.cuda.Stream(priority=-1)  # or a flag's small kernel would queue behind the next product
    turns = []
    for turn in range(ranks):  # the sum for a rank sets out from the one after it, and goes round until it is home
        parts = x.split(rows)[(rank - 1 - turn) % ranks], sums[turn], theirs[(turn + 1) % ranks]
        turns.append(list(zip(*(part.tensor_split(CHUNKS) for part in parts))))

    def step() -> Tensor:
        products = torch.cuda.current_stream()
        copies.wait_stream(products)
        with torch.cuda.stream(copies):
            handle.barrier()  # what the last step received may be overwritten everywhere
        for turn, chunks in enumerate(turns):
            for channel, (source, total, place) in enumerate(chunks, start=turn * CHUNKS):
                if turn == 0:
                    torch.mm(source, w, out=total)
                else:
                    handle.wait_signal(before, channel=channel)
                    total.addmm_(source, w)  # in place: no kernel of its own adds
                if turn + 1 < ranks:
                    copies.wait_stream(products)
                    with torch.cuda.stream(copies):
                        place.copy_(total)
                        handle.put_signal(after, channel=channel + CHUNKS)
        products.wait_stream(copies)
        return sums[-1]

    return step
