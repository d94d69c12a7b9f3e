"""Keys and values are kept, and a one-token step is twelve fused kernels, captured and replayed as a CUDA graph."""

import torch
from torch import Tensor
from torch.nn import functional as F

from ch15.baseline_kv_cache import workload as workload
from common.models.caches import prefilling
from common.models.decoder import Shape, Weights, block, turns
from common.models.fused_decode import Decoder, Tile
from common.models.graphs import replayable
from common.models.timeline import Deliver, metered
from common.python.requirements import needs
from common.python.workload import Metered

requires = needs(sm=80)
TILES = {
    "qkv": Tile(64, 256, 3),
    "out": Tile(64, 128, 4, shares=4),
    "gate_up": Tile(64, 64, 4),
    "down": Tile(64, 64, 4, shares=7),
    "head": Tile(64, 64, 4),
}


def prepare(weights: Weights, shape: Shape, prompt: Tensor, new: int) -> Metered:
    batch, start = prompt.shape
    decoder = Decoder(weights, shape, batch, start, new, TILES)
    positions = torch.arange(start, device=prompt.device).expand(batch, -1)
    attend = prefilling(decoder.cache)

    def prefill() -> None:
        x = F.embedding(prompt, weights["embedding"])
        cos, sin = turns(shape, positions, x.dtype)
        for index, layer in enumerate(weights["layers"]):
            x = block(layer, shape, x, cos, sin, lambda q, k, v, index=index: attend(index, q, k, v))
        decoder.made.zero_()
        decoder.stream.copy_(x[:, -1])
        decoder.choose()

    prefill_again = replayable(prefill, prompt.device)
    decode_again = replayable(decoder.advance, prompt.device)

    @torch.inference_mode()
    def serve(deliver: Deliver) -> tuple[Tensor, Tensor]:
        prefill_again()
        deliver(range(batch))
        for _ in range(new - 1):
            decode_again()
            deliver(range(batch))
        return decoder.tokens, decoder.states

    return metered(serve, prompt.device)
