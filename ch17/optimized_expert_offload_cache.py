"""The experts used last stay in slots on the GPU, and only the others are copied, in place of the oldest."""

from collections import OrderedDict

from torch import Tensor

from ch17.baseline_expert_offload_cache import decoded
from ch17.baseline_expert_offload_cache import workload as workload
from common.python.workload import Metered


def prepare(x: Tensor, ids: Tensor, shares: Tensor, experts: Tensor, slots: int) -> Metered:
    room = x.new_empty(len(experts), slots, *experts.shape[2:])
    held: list[OrderedDict[int, int]] = [
        OrderedDict() for _ in experts
    ]  # of each layer, the one used longest ago first
    misses = [0]

    def cached(layer: int, number: int) -> Tensor:
        places = held[layer]
        if number in places:
            places.move_to_end(number)
        else:
            misses[0] += 1
            slot = len(places) if len(places) < slots else places.popitem(last=False)[1]
            places[number] = slot
            room[layer, slot].copy_(
                experts[layer, number], non_blocking=True
            )  # after the stream's last use of the slot
        return room[layer, places[number]]

    def step() -> Tensor:
        misses[0] = 0
        for places in held:
            places.clear()  # the weights may be others than in the last step
        return decoded(x, ids, shares, cached)

    return Metered(step, lambda: {"experts asked for": ids.numel(), "experts copied": misses[0]})
