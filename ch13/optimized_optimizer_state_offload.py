"""Moments live in page-locked host memory: while a layer is updated, the next comes in and the last one leaves."""

import torch
from torch import Tensor

from ch13.baseline_optimizer_state_offload import adamw
from ch13.baseline_optimizer_state_offload import workload as workload
from common.python.workload import Step

SLOTS = 2


def prepare(parameters: Tensor, gradients: Tensor) -> Step:
    gpu, (layers, numbers) = torch.get_device_module(parameters.device), parameters.shape
    states = torch.empty(layers, 2, numbers, pin_memory=parameters.is_cuda)
    slots, count = parameters.new_empty(SLOTS, 2, numbers), parameters.new_empty(())
    loaded, updated, stored = ([gpu.Event() for _ in slots] for _ in range(3))  # of each slot, its latest layer
    incoming, outgoing = gpu.Stream(), gpu.Stream()

    def fetch(number: int) -> None:
        """Layer `number` of all updates; the slot's last layer has left, and so has this layer in the last update."""
        slot, layer = number % SLOTS, number % layers
        incoming.wait_event(stored[slot])
        with gpu.stream(incoming):
            if number < layers:
                slots[slot].zero_()  # the first update starts from nothing
            else:
                slots[slot].copy_(states[layer], non_blocking=True)
            loaded[slot].record(incoming)

    def step() -> Tensor:
        compute = gpu.current_stream()
        incoming.wait_stream(compute)  # nothing begins before the step does
        for number in range(len(gradients) * layers):
            slot, (update, layer) = number % SLOTS, divmod(number, layers)
            if layer == 0:
                count.fill_(update + 1)
            fetch(number)
            compute.wait_event(loaded[slot])
            adamw(parameters[layer], gradients[update, layer], slots[slot], count)
            updated[slot].record(compute)
            outgoing.wait_event(updated[slot])
            with gpu.stream(outgoing):
                states[layer].copy_(slots[slot], non_blocking=True)
                stored[slot].record(outgoing)
        compute.wait_stream(outgoing)
        return parameters

    return step
