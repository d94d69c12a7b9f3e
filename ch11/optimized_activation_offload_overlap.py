"""A side stream carries each input out behind the next block, and back in one block before the backward wants it."""

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from ch11.baseline_activation_offload_overlap import trained
from ch11.baseline_activation_offload_overlap import workload as workload
from common.python.workload import Step


class Offload:
    """The pool in host memory, two slots for what returns, and the waits between both streams."""

    def __init__(self, x: Tensor, layers: int) -> None:
        self.gpu = torch.get_device_module(x.device)
        self.side, self.carried = self.gpu.Stream(), self.gpu.Event()  # the event: of the latest copy, either way
        self.pool = torch.empty(layers - 1, *x.shape, dtype=x.dtype, pin_memory=x.is_cuda)  # the last input stays
        self.slots = x.new_empty(2, *x.shape)
        self.saved = 0
        self.leaving: Tensor | None = None  # is not given back to the allocator before it has left

    def pack(self, x: Tensor) -> Tensor | int:
        compute, index = self.gpu.current_stream(), self.saved
        self.saved = (index + 1) % (len(self.pool) + 1)
        if index > 0:
            compute.wait_event(self.carried)  # the input before this one: it has left behind this block's kernels
        self.leaving = None
        if index == len(self.pool):
            return x
        self.leaving = x.detach()
        self.carry(self.pool[index], x)
        return index

    def unpack(self, packed: Tensor | int) -> Tensor:
        index = packed if isinstance(packed, int) else len(self.pool)
        if index < len(self.pool):
            self.gpu.current_stream().wait_event(self.carried)
        if index > 0:  # the other slot: the block that read it is enqueued, and the copy waits for that
            self.carry(self.slots[(index - 1) % 2], self.pool[index - 1])
        return self.slots[index % 2] if isinstance(packed, int) else packed

    def carry(self, target: Tensor, source: Tensor) -> None:
        self.side.wait_stream(self.gpu.current_stream())
        with self.gpu.stream(self.side):
            target.copy_(source, non_blocking=True)
            self.carried.record(self.side)


def prepare(x: Tensor, slope: Tensor, up: list[Tensor], down: list[Tensor]) -> Step:
    offload = Offload(x, len(up))
    return trained(x, slope, up, down, lambda: saved_tensors_hooks(offload.pack, offload.unpack))
