"""Attention to a text whose tokens lie on several ranks: the reference, and attention to a part of the keys."""

import torch
from torch import Tensor


def attention(q: Tensor, kv: Tensor, first: int | None = None) -> Tensor:
    """Attention of queries (tokens, heads, width) to all ranks' keys and values (all tokens, 2, heads, width).

    With `first`, the first query's place in the text, attention is causal. 512 queries at a time keep the scores small:
    2 GiB in float64 for 65,536 tokens and 8 heads.
    """
    (keys, values), attended, place = kv.unbind(1), [], torch.arange(len(kv), device=kv.device)
    for begin in range(0, len(q), 512):
        rows = q[begin : begin + 512]
        scores = torch.einsum("qhd,khd->hqk", rows, keys) * rows.shape[-1] ** -0.5
        if first is not None:
            scores.masked_fill_(place > place[first + begin :][: len(rows), None], -torch.inf)
        attended.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), values))
    return torch.cat(attended)


def attend(q: Tensor, kv: Tensor, causal: bool = False) -> tuple[Tensor, Tensor]:
    """Outputs (tokens, heads, width), and the logarithm of each row's sum of exponentials (tokens, heads, 1)."""
    q, k, v = (x.transpose(0, 1)[None] for x in (q, *kv.unbind(1)))
    if q.is_cuda:
        out, total, *_ = torch.ops.aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, causal)
    else:
        out, total = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal)
    return out[0].transpose(0, 1), total.reshape(*out.shape[1:3], 1).transpose(0, 1)
