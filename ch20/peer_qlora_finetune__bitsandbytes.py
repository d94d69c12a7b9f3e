"""bitsandbytes widens each NF4 matrix by its own kernel before a product, and once more on the way back."""

from typing import Any

import torch
from torch import Tensor

from ch20.baseline_qlora_finetune import GROUP, Adapters, Base, training
from ch20.baseline_qlora_finetune import workload as workload
from common.models.decoder import Shape
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(memory_gib=40, modules=["bitsandbytes"])


def prepare(base: Base, adapters: Adapters, tokens: Tensor, shape: Shape) -> Step:
    from bitsandbytes import matmul_4bit
    from bitsandbytes.functional import QuantState, get_4bit_type

    values = get_4bit_type("nf4", device=tokens.device)  # with more digits than ours, which bf16 hardly sees

    def make(codes: Tensor, scales: Tensor) -> tuple[Tensor, Any]:
        form, turned = torch.Size((len(codes), 2 * codes.shape[1])), codes << 4 | codes >> 4  # the even feature is high
        state = QuantState(scales.flatten().float(), form, values, GROUP, "nf4", torch.bfloat16)
        return turned.view(1, -1), state

    return training(base, adapters, tokens, shape, make, lambda x, matrix: matmul_4bit(x, *matrix))
