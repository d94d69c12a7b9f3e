"""FlashAttention 2 as torch ships it, told where each document begins: each is a causal problem of its own."""

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.benchmark import Timer

from ch18.baseline_flex_document_mask import workload as workload
from common.python.requirements import needs
from common.python.workload import Metered

requires = needs(sm=80)

CAUSAL = {"flash": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION}


def prepare(q: Tensor, k: Tensor, v: Tensor, document: Tensor) -> Metered:
    tokens, number = len(document), torch.arange(int(document.max()) + 2, device=document.device)
    packed = [x.squeeze(0).transpose(0, 1) for x in (q, k, v)]  # it wants tokens before heads; strides are free
    attend = torch.ops.aten._flash_attention_forward.default  # varlen_attn in torch.nn.attention changes by release

    def step() -> Tensor:
        begins = torch.searchsorted(document, number, out_int32=True)  # and where the last one ends
        longest = tokens  # how long the longest document is the host does not know, and must not wait to learn
        out = attend(*packed, begins, begins, longest, longest, 0.0, True, False)[0]
        return out.transpose(0, 1).unsqueeze(0)

    given = {"q": q, "k": k, "v": v}

    def causal(backend: SDPBackend) -> float:
        with sdpa_kernel(backend):
            alone = Timer("attend(q, k, v, is_causal=True)", globals={"attend": scaled_dot_product_attention, **given})
            return 1e3 * alone.blocked_autorange(min_run_time=0.05).median

    def metrics() -> dict[str, float]:
        """What attention takes that knows of no documents: of that, the live share is what the pair's target allows."""
        return {f"dense causal {name} ms": causal(backend) for name, backend in CAUSAL.items()}

    return Metered(step, metrics)
