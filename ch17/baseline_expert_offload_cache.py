"""The experts are in host memory, and each that a token needs is copied in, though the last token may have had it."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import rms_norm, silu

from common.python.workload import Cost, Draw, Inputs, Step, Workload

CHOSEN = 2  # experts a token and layer
SKEW = 1.2  # Zipf's exponent: the expert of rank r is asked for in proportion to r ** -SKEW


def ranks(tokens: int, experts: int) -> Tensor:
    """The ranks of all experts that a layer's tokens ask for, in rising order: the quantiles of Zipf's distribution."""
    shares = torch.arange(1, experts + 1).double() ** -SKEW
    quantiles = (torch.arange(CHOSEN * tokens) + 0.5) / (CHOSEN * tokens)
    return torch.searchsorted(shares.cumsum(0) / shares.sum(), quantiles.double())


def inputs(draw: Draw, tokens: int, layers: int, experts: int, slots: int, width: int, wide: int, dtype: str) -> Inputs:
    """`experts` are on the host, page-locked where there is a GPU to copy them to, which has `slots` places a layer.

    An expert's rows are its gate's, those of its up projection, and those of its transposed down projection.
    """
    element, pairs = getattr(torch, dtype), ranks(tokens, experts).view(CHOSEN, tokens).T
    numbers = [draw.permutation(experts).cpu()[pairs][draw.permutation(tokens).cpu()] for _ in range(layers)]
    host = draw.host.normal(layers, experts, 3 * wide, width, std=width**-0.5, dtype=element)
    return {
        "x": draw.normal(tokens, width, dtype=element),
        "ids": torch.stack(numbers, 1).to(draw.device),  # tokens, layers, CHOSEN: where a gate leaves them
        "shares": draw.normal(tokens, layers, CHOSEN).softmax(-1).to(element),
        "experts": host if draw.device.type == "cpu" else host.pin_memory(),
        "slots": slots,
    }


Expert = tuple[Tensor, Tensor]  # on the device: gate's and up's rows (2 * wide, width), and down (width, wide)


def parts(weights: Tensor) -> Expert:
    gate_up, down = weights.tensor_split([2 * len(weights) // 3])
    return gate_up, down.T


def decoded(x: Tensor, ids: Tensor, shares: Tensor, expert: Callable[[int, int], Expert]) -> Tensor:
    """The state (width) after each token's layers. A token goes on from the state of the one before it.

    `expert(layer, number)` gives the weights.
    """
    out, state = torch.empty_like(x), torch.zeros_like(x[0])
    for token, (row, chosen, of_token) in enumerate(zip(x, ids, shares)):
        state = rms_norm(row + state, state.shape)
        for layer in range(ids.shape[1]):
            normed = rms_norm(state, state.shape)
            for number, share in zip(chosen[layer].tolist(), of_token[layer]):  # the host waits for the gate's choice
                gate_up, down = expert(layer, number)
                gate, up = torch.mv(gate_up, normed).chunk(2)
                state = torch.addcmul(state, share, torch.mv(down, silu(gate) * up))
        out[token] = state
    return out


def reference(x: Tensor, ids: Tensor, shares: Tensor, experts: Tensor, slots: int) -> Tensor:
    return decoded(x, ids, shares, lambda layer, number: parts(experts[layer, number]))


def cost(tokens: int, layers: int, experts: int, slots: int, width: int, wide: int, dtype: str) -> Cost:
    """Each expert that any token asks for crosses PCIe once."""
    size = 3 * wide * width * getattr(torch, dtype).itemsize
    return Cost(
        pcie_bytes=layers * len(ranks(tokens, experts).unique()) * size,
        flops=6 * tokens * layers * CHOSEN * wide * width,
        dtype="bf16",
        items=tokens,
        unit="tokens",
    )


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        # 1.6 GB of experts, 25 MB each; a layer's 256 choices name all 32
        "bench": {
            "tokens": 128,
            "layers": 2,
            "experts": 32,
            "slots": 12,
            "width": 2048,
            "wide": 2048,
            "dtype": "bfloat16",
        },
        "test": {"tokens": 11, "layers": 2, "experts": 9, "slots": 3, "width": 37, "wide": 19, "dtype": "float32"},
    },
    tolerance=4e-2,  # bf16 rounds the state after each expert, and a token goes on from the last one's
    clock="end_to_end",
    rungs="lru graphs",
)


def prepare(x: Tensor, ids: Tensor, shares: Tensor, experts: Tensor, slots: int) -> Step:
    buffer, sources = x.new_empty(experts.shape[2:]), [layer.unbind() for layer in experts]
    weights = parts(buffer)

    def fetched(layer: int, number: int) -> Expert:
        buffer.copy_(sources[layer][number], non_blocking=True)
        return weights

    return lambda: decoded(x, ids, shares, fetched)
