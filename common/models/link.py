"""Messages from rank to rank that arrive while both compute: by copy engines into symmetric memory, or by gloo."""

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import _symmetric_memory as symmetric_memory


class Link:
    """A place in the receiver's memory for each message. On GPUs a copy engine fills it: NCCL would hold processors."""

    def __init__(self, message: Tensor, places: int) -> None:
        self.places, self.sent = message.new_empty(places, *message.shape), dict[int, dist.Work | None]()
        self.stream = torch.cuda.Stream() if message.is_cuda else None
        if self.stream:
            self.places = symmetric_memory.empty(self.places.shape, dtype=message.dtype, device=message.device)
            self.flags = symmetric_memory.rendezvous(self.places, dist.group.WORLD)  # type: ignore[arg-type]

    def send(self, message: Tensor, to: int, place: int) -> None:
        if not self.stream:
            self.sent[place] = dist.isend(message, to, tag=place)  # which holds the message
            return
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):  # beside whatever the rank computes next
            self.flags.get_buffer(to, self.places.shape, message.dtype)[place].copy_(message)
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
