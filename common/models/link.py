"""Messages from rank to rank that arrive while both compute: by NCCL, by copy engines, or, on CPUs, by gloo."""

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import _symmetric_memory as symmetric_memory


def passed_on(sent: Tensor, received: Tensor) -> list[dist.Work]:
    """Start sending `sent` to the next rank of a ring, and receiving `received`, of one shape, from the one before."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    send = dist.P2POp(dist.isend, sent, (rank + 1) % ranks)
    return dist.batch_isend_irecv([send, dist.P2POp(dist.irecv, received, (rank - 1) % ranks)])


def ring(mine: Tensor, room: Tensor, pieces: int = 1) -> Iterator[Tensor]:
    """This rank's rows `mine`, then all others', piece by piece. `room` (2, rows of a piece, ...) takes what comes."""
    held, parts, others = mine, mine.chunk(pieces), dist.get_world_size() - 1
    for turn in range(len(parts) * others):
        piece, hops = divmod(turn, others)
        coming = room[turn % 2, : len(parts[piece])]
        under_way = passed_on(held if hops else parts[piece], coming)
        yield held
        for work in under_way:
            work.wait()
        held = coming
    yield held


class Link:
    """`places` for messages like `message`, at the receiver. On GPUs copy engines fill them: NCCL would take SMs."""

    def __init__(self, message: Tensor, places: int) -> None:
        self.stream, self.sent = torch.cuda.Stream() if message.is_cuda else None, dict[int, dist.Work | None]()
        empty = symmetric_memory.empty if self.stream else torch.empty
        self.places = empty((places, *message.shape), dtype=message.dtype, device=message.device)
        if self.stream:
            self.flags = symmetric_memory.rendezvous(self.places, dist.group.WORLD)  # type: ignore[arg-type]

    def send(self, message: Tensor, to: int, place: int, told: bool = True) -> None:
        """Write `message` to a place of rank `to`. On GPUs a receiver that is not `told` needs a barrier."""
        if not self.stream:
            self.sent[place] = dist.isend(message, to, tag=place)  # which holds the message
            return
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):  # beside whatever the rank computes next
            self.flags.get_buffer(to, self.places.shape, message.dtype)[place].copy_(message)
            if told:
                self.flags.put_signal(to, channel=place)
        message.record_stream(self.stream)

    def receive(self, sender: int, place: int) -> Tensor:
        if self.stream:
            self.flags.wait_signal(sender, channel=place)
        else:
            dist.recv(self.places[place], sender, tag=place)
        return self.places[place].data

    def join(self) -> None:
        """The current stream waits until all messages of this rank have left."""
        if self.stream:
            torch.cuda.current_stream().wait_stream(self.stream)
