"""A prompt's keys and values leave for the rank that will decode when the last layer is through: nothing hides them."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, scaled_dot_product_attention

from common.models.link import passed_on
from common.python.workload import Cost, Draw, Inputs, Step, Workload

Layer = dict[str, Tensor]


def inputs(draw: Draw, layers: int, prompts: int, tokens: int, heads: int, width: int) -> Inputs:
    """A rank's prompts as hidden states, and GPT-2's layers, the same on all ranks; `width` is a head's."""
    whole = heads * width
    shapes = {"qkv": (whole, 3 * whole), "out": (whole, whole), "up": (whole, 4 * whole), "down": (4 * whole, whole)}

    def layer() -> Layer:
        return {n: draw.shared.normal(*s, std=s[0] ** -0.5, dtype=torch.bfloat16) for n, s in shapes.items()}

    return {
        "x": draw.normal(prompts, tokens, heads, width, dtype=torch.bfloat16),
        "layers": [layer() for _ in range(layers)],
    }


def through(x: Tensor, layers: list[Layer], keep: Callable[[int, Tensor], None]) -> Tensor:
    """The last hidden states; `keep` is given each layer's number and its keys and values (prompts, tokens, 2, ...)."""
    heads, x = x.shape[2:], x.flatten(2)
    for index, layer in enumerate(layers):
        qkv = (layer_norm(x, x.shape[2:]) @ layer["qkv"]).unflatten(2, (3, *heads))
        keep(index, qkv[:, :, 1:])
        q, k, v = (part.transpose(1, 2) for part in qkv.unbind(2))
        x = x + scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2) @ layer["out"]
        x = x + gelu(layer_norm(x, x.shape[2:]) @ layer["up"]) @ layer["down"]
    return x


def reference(rank: int, x: list[Tensor], layers: list[list[Layer]]) -> tuple[Tensor, Tensor]:
    """The keys and values of the rank before, by layer, and this rank's own hidden states."""
    theirs: list[list[Tensor]] = [[] for _ in layers[rank]]
    for prompts in x[rank - 1].split(8):
        through(prompts, layers[rank], lambda index, kv: theirs[index].append(kv))
    own = [through(prompts, layers[rank], lambda index, kv: None) for prompts in x[rank].split(8)]
    return torch.stack([torch.cat(kv) for kv in theirs]), torch.cat(own)


def cost(layers: int, prompts: int, tokens: int, heads: int, width: int) -> Cost:
    rows, whole = prompts * tokens, heads * width
    pairs = prompts * tokens * (tokens + 1) // 2
    return Cost(
        flops=layers * (24 * rows * whole * whole + 4 * pairs * whole),
        dtype="bf16",
        nvlink_bytes=4 * layers * rows * whole,
        items=rows,
        unit="tokens",
    )


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"layers": 8, "prompts": 192, "tokens": 512, "heads": 8, "width": 64},
        "test": {"layers": 3, "prompts": 2, "tokens": 19, "heads": 3, "width": 16},
    },
    tolerance=0.03,  # bfloat16 rounds each of the layers' results to 8 bits
    gpus=2,
    clock="end_to_end",
)


def prepare(x: Tensor, layers: list[Layer]) -> Step:
    cache, theirs = x.new_empty(2, len(layers), *x.shape[:2], 2, *x.shape[2:])

    def keep(index: int, kv: Tensor) -> None:
        cache[index] = kv

    def step() -> tuple[Tensor, Tensor]:
        out = through(x, layers, keep)
        for work in passed_on(cache, theirs):
            work.wait()
        return theirs, out

    return step
