"""Out goes the expert that was asked for least often, not longest ago: with skewed routing fewer have to come back."""

from collections import Counter, OrderedDict
from collections.abc import Collection
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import rms_norm, silu

from ch17.baseline_expert_offload_cache import parts
from ch17.baseline_expert_offload_cache import workload as workload
from common.models.graphs import replayable
from common.python.workload import Metered

Held = tuple[OrderedDict[int, int], Counter[int]]  # slots by expert, that used longest ago first; counts


def find(places: OrderedDict[int, int], often: Counter[int], number: int, pair: Collection[int], slots: int) -> bool:
    """Give an expert a slot, if it has none, and say whether it had. None of the token's own `pair` has to go."""
    often[number] += 1
    if number in places:
        places.move_to_end(number)
        return True
    others = (expert for expert in places if expert not in pair)  # of equals the one used longest ago goes
    places[number] = len(places) if len(places) < slots else places.pop(min(others, key=often.__getitem__))
    return False


def prepare(x: Tensor, ids: Tensor, shares: Tensor, experts: Tensor, slots: int) -> Metered:
    sources = [layer.unbind() for layer in experts]
    room = [layer.unbind() for layer in x.new_zeros(len(experts), slots, *experts.shape[2:])]
    state, normed, both = torch.zeros_like(x[0]), torch.empty_like(x[0]), shares.new_zeros(shares.shape[2])
    held: list[Held] = [(OrderedDict(), Counter()) for _ in experts]
    misses = [0]

    def through(slot: Tensor, place: int) -> None:
        """The expert in a slot, which is the token's first, or a later one, of this layer."""
        gate_up, down = parts(slot)
        if place == 0:
            normed.copy_(rms_norm(state, state.shape))
        gate, up = torch.mv(gate_up, normed).chunk(2)
        state.addcmul_(both[place], torch.mv(down, silu(gate) * up))

    graph = partial(replayable, device=x.device)
    work = [[[graph(partial(through, slot, place)) for place in range(len(both))] for slot in layer] for layer in room]

    @torch.inference_mode()
    def step() -> Tensor:
        misses[0] = 0
        for places, often in held:
            places.clear()  # the weights may be others than in the last step
            often.clear()
        out = torch.empty_like(x)
        state.zero_()
        for token, (row, chosen, of_token) in enumerate(zip(x, ids, shares)):
            state.copy_(rms_norm(row + state, state.shape))
            for layer, (places, often) in enumerate(held):
                both.copy_(of_token[layer])
                pair = chosen[layer].tolist()  # the host waits for the gate's choice
                for place, number in enumerate(pair):
                    if not find(places, often, number, pair, slots):
                        misses[0] += 1  # the copy is after the stream's last use of the slot
                        room[layer][places[number]].copy_(sources[layer][number], non_blocking=True)
                    work[layer][places[number]][place]()
            out[token] = state
        return out

    return Metered(step, lambda: {"experts asked for": ids.numel(), "experts copied": misses[0]})
