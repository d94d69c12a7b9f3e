"""The experts used last stay in slots on the GPU, and only the others are copied, in place of the oldest."""

from collections import OrderedDict

from torch import Tensor

from ch17.baseline_expert_offload_cache import Expert, decoded, parts
from ch17.baseline_expert_offload_cache import workload as workload
from common.python.workload import Metered


def prepare(x: Tensor, ids: Tensor, shares: Tensor, experts: Tensor, slots: int) -> Metered:
    sources = [layer.unbind() for layer in experts]
    room = [layer.unbind() for layer in x.new_empty(len(experts), slots, *experts.shape[2:])]
    weights = [[parts(slot) for slot in layer] for layer in room]
    held: list[OrderedDict[int, int]] = [OrderedDict() for _ in experts]  # slots by expert, that used longest ago first
    misses = [0]

    def cached(layer: int, number: int) -> Expert:
        places = held[layer]
        if number in places:
            places.move_to_end(number)
        else:
            misses[0] += 1
            slot = len(places) if len(places) < slots else places.popitem(last=False)[1]
            places[number] = slot
            room[layer][slot].copy_(sources[layer][number], non_blocking=True)  # after the stream's last use of it
        return weights[layer][places[number]]

    def step() -> Tensor:
        misses[0] = 0
        for places in held:
            places.clear()  # the weights may be others than in the last step
        return decoded(x, ids, shares, cached)

    return Metered(step, lambda: {"experts asked for": ids.numel(), "experts copied": misses[0]})
