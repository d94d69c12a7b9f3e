"""Page-locked memory and explicit asynchronous copies: three streams take turns with pieces, both ways at once."""

import torch
from torch import Tensor

from ch06.baseline_managed_prefetch import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)

PIECE = 1 << 22  # floats: 16 MiB, as the chunks of the prefetching side


def prepare(values: Tensor) -> Step:
    values.set_(torch.empty_like(values, pin_memory=True).copy_(values))
    pieces, streams = values.split(PIECE), [torch.cuda.Stream() for _ in range(3)]
    buffers = [pieces[0].cuda() for _ in streams]

    def step() -> Tensor:
        current = torch.cuda.current_stream()
        for stream in streams:
            stream.wait_stream(current)
        for index, piece in enumerate(pieces):
            buffer = buffers[index % 3][: len(piece)]
            with torch.cuda.stream(streams[index % 3]):
                buffer.copy_(piece, non_blocking=True)
                buffer.mul_(0.5).add_(1.0)
                piece.copy_(buffer, non_blocking=True)
        for stream in streams:
            current.wait_stream(stream)
        return values

    return step
