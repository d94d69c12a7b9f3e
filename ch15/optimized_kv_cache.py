"""Keys and values are kept, and a one-token step is twelve fused kernels that a CUDA graph replays."""

import torch
from torch import Tensor

from ch15.baseline_kv_cache import workload as workload
from common.models.caches import compiled_prefill
from common.models.decoder import Shape, Weights
from common.models.fused_decode import Decoder
from common.models.graphs import replayable
from common.models.timeline import Deliver, metered
from common.python.workload import Metered


def prepare(weights: Weights, shape: Shape, prompt: Tensor, new: int) -> Metered:
    batch, start = prompt.shape
    decoder = Decoder(weights, shape, batch, start, new)
    positions = torch.arange(start, device=prompt.device).expand(batch, -1)
    prompts = compiled_prefill(weights, shape, decoder.cache, __file__)

    def prefill() -> None:
        x = prompts(prompt, positions)
        decoder.made.zero_()
        decoder.stream.copy_(x[:, -1])  # only the prompts' last tokens go through the rest of the last block
        decoder.block(shape.layers - 1)
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
