"""The experts used last stay in slots on the GPU, and each slot has a CUDA graph: one launch an expert, not six."""

from collections import OrderedDict
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import rms_norm, silu

from ch17.baseline_expert_offload_cache import parts
from ch17.baseline_expert_offload_cache import workload as workload
from common.models.graphs import replayable
from common.python.workload import Metered


def prepare(x: Tensor, ids: Tensor, shares: Tensor, experts: Tensor, slots: int) -> Metered:
    sources = [layer.unbind() for layer in experts]
    room = [layer.unbind() for layer in x.new_zeros(len(experts), slots, *experts.shape[2:])]
    state, normed, both = torch.zeros_like(x[0]), torch.empty_like(x[0]), shares.new_zeros(shares.shape[2])
    held: list[OrderedDict[int, int]] = [OrderedDict() for _ in experts]  # slots by expert, that used longest ago first
    misses = [0]

    def through(slot: Tensor, place: int) -> None:
        """The expert in a slot, which is the token's first, or a later one, of this layer."""
        gate_up, down = parts(slot)
        if place == 0:
            normed.copy_(rms_norm(state, state.shape))
        gate, up = torch.mv(gate_up, normed).chunk(2)
        state.addcmul_(both[place], torch.mv(down, silu(gate) * up))

    work = [
        [[replayable(partial(through, slot, place), x.device) for place in range(len(both))] for slot in layer]
        for layer in room
    ]

    def slot_of(layer: int, number: int) -> int:
        places = held[layer]
        if number in places:
            places.move_to_end(number)
        else:
            misses[0] += 1
            slot = len(places) if len(places) < slots else places.popitem(last=False)[1]
            places[number] = slot
            room[layer][slot].copy_(sources[layer][number], non_blocking=True)  # after the stream's last use of it
        return places[number]

    @torch.inference_mode()
    def step() -> Tensor:
        misses[0] = 0
        for places in held:
            places.clear()  # the weights may be others than in the last step
        out = torch.empty_like(x)
        state.zero_()
        for token, (row, chosen, of_token) in enumerate(zip(x, ids, shares)):
            state.copy_(rms_norm(row + state, state.shape))
            for layer in range(ids.shape[1]):
                both.copy_(of_token[layer])
                for place, number in enumerate(chosen[layer].tolist()):  # the host waits for the gate's choice
                    work[layer][slot_of(layer, number)][place]()
            out[token] = state
        return out

    return Metered(step, lambda: {"experts asked for": ids.numel(), "experts copied": misses[0]})
