"""Each of two replicas prefills its half of what arrives, while its streams wait, and then decodes its half of them."""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._pytree import tree_map

from common.models.caches import Cache, continuing, prefilling
from common.models.decoder import Shape, Weights, draw_weights, forward, greedy
from common.models.graphs import replayable
from common.models.references import planted
from common.python.workload import Cost, Draw, Inputs, Step, Workload

# Two blocks of Qwen2.5-32B, without the biases, and a small vocabulary.
QWEN = {"layers": 2, "vocabulary": 16000, "width": 5120, "heads": 40, "kv_heads": 8, "hidden": 27648}
SMALL = {"layers": 2, "vocabulary": 97, "width": 96, "heads": 6, "kv_heads": 2, "hidden": 131}
Serve = Callable[[], tuple[Tensor, Tensor]]
Begin = Callable[[Tensor, Tensor], Callable[[], Tensor]]


def inputs(draw: Draw, shape: dict[str, int], beats: int, streams: int, prompt: int, steps: int, dtype: str) -> Inputs:
    """A stream's latest token and the prompt after its answer: both ranks see all, and answer those in [:, rank].

    Group g ends before beat g, the last one never. A prompt begins with the answer's last token: none is known before.
    """
    weights = draw_weights(draw.shared, Shape(**shape), getattr(torch, dtype))
    texts = draw.shared.integers(beats + 1, draw.ranks, streams, 1 + prompt, high=shape["vocabulary"])
    return {"weights": weights, "shape": Shape(**shape), "texts": texts, "steps": steps}


def reference(
    rank: int, weights: list[Weights], shape: list[Shape], texts: list[Tensor], steps: list[int]
) -> tuple[Tensor, ...]:
    """Tokens (places, made) and states that chose them; while its prompt passes, a place has the first token of it."""
    wide = tree_map(lambda x: x.double() if x.is_floating_point() else x, weights[rank])
    own, count, answers = texts[rank][:, rank], steps[rank], []
    for group, places in enumerate(own):
        for text in places:
            parts = [planted(wide, shape[rank], text[:1], group * count)] if group else []
            if group < len(own) - 1:
                text = torch.cat([parts[0][0][-1:] if group else text[:1], text[1:]])
                new = planted(wide, shape[rank], text, 1 + (len(own) - 2 - group) * count)
                parts += [tuple(x[[0] * (count - 1)] for x in new), new]
            answers.append([torch.cat(part) for part in zip(*parts)])
    return tuple(map(torch.stack, zip(*answers)))


def cost(shape: dict[str, int], beats: int, streams: int, prompt: int, steps: int, dtype: str, ranks: int = 2) -> Cost:
    """A rank's share: all prompts' products, or one read of all weights for each step, shared by the ranks."""
    network, passes, prompts = Shape(**shape), beats * steps, beats * streams
    read, blocks = getattr(torch, dtype).itemsize * network.read_weights, network.layers * network.layer_weights
    flops = 2 * prompts * (network.prompt_weights * prompt + blocks * (1 + passes))  # keys and values, then states
    items = prompts * (prompt + 1 + passes)
    return Cost(read=read * passes / ranks, flops=flops, dtype="bf16", passes=passes, items=items)


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"shape": QWEN, "beats": 3, "streams": 4, "prompt": 207, "steps": 8, "dtype": "bfloat16"},
        "test": {"shape": SMALL, "beats": 2, "streams": 2, "prompt": 5, "steps": 3, "dtype": "float32"},
    },
    tolerance=2e-2,  # of bf16 through all blocks
    frozen=("weights",),
    as_drawn=("weights",),
    gpus=2,
    clock="end_to_end",
)


def prefill(weights: Weights, shape: Shape, texts: Tensor, room: Tensor) -> Tensor:
    """The last states of texts (places, length), whose keys and values go into `room`."""
    positions = torch.arange(texts.shape[1], device=texts.device).expand_as(texts)
    return forward(weights, shape, texts, positions, prefilling(Cache(list(room[:, 0]), list(room[:, 1]))))[:, -1]


def serving(weights: Weights, shape: Shape, texts: Tensor, steps: int, begin: Begin) -> Serve:
    """Decode streams; `begin(texts, room)` has a group's next prompts prefilled, and gives what awaits their states."""
    (groups, each, asked), like = texts.shape, weights["head"]
    made, rows = (groups - 1) * steps, groups * each
    states = like.new_zeros(rows, made, shape.width)
    store = like.new_zeros(shape.layers, 2, rows, shape.kv_heads, asked + made, shape.head_dim)
    tokens, latest, length, index = (texts.new_zeros(size) for size in ((rows, made), rows, rows, 1))
    cache = Cache(list(store[:, 0]), list(store[:, 1]))

    def decode() -> None:
        hidden = forward(weights, shape, latest[:, None], length[:, None], continuing(cache, length[:, None]))
        latest.copy_(greedy(weights, hidden)[:, 0])
        tokens[:, index], states[:, index] = latest[:, None], hidden
        length.add_(1), index.add_(1)

    decode_again = replayable(decode, texts.device)

    @torch.inference_mode()
    def step() -> tuple[Tensor, Tensor]:
        latest.copy_(texts[..., 0].flatten()), length.zero_(), index.zero_()
        for beat in range(groups - 1):
            ended, idle = slice(beat * each, (beat + 1) * each), slice(beat * steps, (beat + 1) * steps)
            arrived = torch.cat([latest[ended, None], texts[beat, :, 1:]], 1)
            finish = begin(arrived, store[:, :, ended, :, :asked])
            length[ended] = asked  # they decode as well, but behind the prompts' room: all of it is overwritten unread
            for _ in range(steps):
                decode_again()
            latest[ended], length[ended] = greedy(weights, hidden := finish()), asked
            tokens[ended, idle], states[ended, idle] = latest[ended, None], hidden[:, None]
        return tokens, states

    return step


def prepare(weights: Weights, shape: Shape, texts: Tensor, steps: int) -> Step:
    def begin(new: Tensor, room: Tensor) -> Callable[[], Tensor]:
        hidden = prefill(weights, shape, new, room)
        return lambda: hidden

    return serving(weights, shape, texts[:, dist.get_rank()], steps, begin)
