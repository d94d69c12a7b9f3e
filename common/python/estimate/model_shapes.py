"""Language models as `estimate` counts them: published shapes of dense Llama-style decoders, or a bare parameter count.

A layer is attention (q, k, v and o projections) and a gated MLP (gate, up and down), with an RMSNorm before each; the
decoder ends with a norm and the head. Figures were checked against reprints of the files named in `source`.
"""

import re
from dataclasses import dataclass

HF = "https://huggingface.co/{}/blob/main/config.json"
TINY_LLAMAS = "https://huggingface.co/karpathy/tinyllamas; its MLP width follows from model.py of karpathy/llama2.c"
LLAMA_3 = "Llama 3 paper, https://arxiv.org/abs/2407.21783, table 3; vocabulary as of the 8B model's config.json"
COUNT = re.compile(r"([0-9]{1,30}(?:\.[0-9]{1,30})?(?:e[0-9]{1,2})?)([kmbt]?)")
SCALES = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
MOST_PARAMETERS = 10**18


@dataclass(frozen=True)
class Shape:
    """A decoder as its config.json gives it. All but `layers` are widths or numbers in one layer.

    `kv_heads` below `heads` is grouped-query attention.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    source: str
    tied: bool = False  # the head is the embedding table
    qkv_bias: bool = False
    qk_norm: bool = False  # an RMSNorm over each head's q and k


@dataclass(frozen=True)
class Model:
    """Parameters by what a step does with them. A bare count has no `shape`, and so no cache and no attention."""

    name: str
    source: str
    linear: int  # weights of the layers' matrices
    head: int  # weights of the matrix from hidden to vocabulary
    embedding: int  # weights of the table of which a token reads one row; 0 where the head is that table
    vectors: int  # norms and biases
    shape: Shape | None


SHAPES = (  # name, layers, hidden, heads, kv_heads, head_dim, ffn, vocab, source
    Shape("stories15m", 6, 288, 6, 6, 48, 768, 32000, TINY_LLAMAS, tied=True),
    Shape("llama-2-7b", 32, 4096, 32, 32, 128, 11008, 32000, HF.format("meta-llama/Llama-2-7b-hf")),
    Shape("llama-3.2-1b", 16, 2048, 32, 8, 64, 8192, 128256, HF.format("meta-llama/Llama-3.2-1B"), tied=True),
    Shape("llama-3.2-3b", 28, 3072, 24, 8, 128, 8192, 128256, HF.format("meta-llama/Llama-3.2-3B"), tied=True),
    Shape("llama-3.1-8b", 32, 4096, 32, 8, 128, 14336, 128256, HF.format("meta-llama/Llama-3.1-8B")),
    Shape("llama-3.1-70b", 80, 8192, 64, 8, 128, 28672, 128256, HF.format("meta-llama/Llama-3.1-70B")),
    Shape("llama-3.1-405b", 126, 16384, 128, 8, 128, 53248, 128256, LLAMA_3),
    Shape("qwen2.5-7b", 28, 3584, 28, 4, 128, 18944, 152064, HF.format("Qwen/Qwen2.5-7B"), qkv_bias=True),
    Shape("qwen2.5-32b", 64, 5120, 40, 8, 128, 27648, 152064, HF.format("Qwen/Qwen2.5-32B"), qkv_bias=True),
    Shape("qwen3-8b", 36, 4096, 32, 8, 128, 12288, 151936, HF.format("Qwen/Qwen3-8B"), qk_norm=True),
    Shape("qwen3-32b", 64, 5120, 64, 8, 128, 25600, 151936, HF.format("Qwen/Qwen3-32B"), qk_norm=True),
)


def model_of(shape: Shape) -> Model:
    """The parameters of a shape, counted matrix by matrix.

    A layer has hidden x (heads + 2 kv_heads) x head_dim weights for q, k and v, heads x head_dim x hidden for o,
    3 x hidden x ffn for the MLP, and two norms of `hidden`. Source: the modules of `modeling_llama.py`,
    `modeling_qwen2.py` (biases of q, k and v) and `modeling_qwen3.py` (norms of q and k) in Hugging Face transformers.
    """
    qkv = (shape.heads + 2 * shape.kv_heads) * shape.head_dim
    matrices = shape.hidden * qkv + shape.heads * shape.head_dim * shape.hidden + 3 * shape.hidden * shape.ffn
    vectors = 2 * shape.hidden + shape.qkv_bias * qkv + shape.qk_norm * 2 * shape.head_dim
    return Model(
        name=shape.name,
        source=shape.source,
        linear=shape.layers * matrices,
        head=shape.vocab * shape.hidden,
        embedding=0 if shape.tied else shape.vocab * shape.hidden,
        vectors=shape.layers * vectors + shape.hidden,
        shape=shape,
    )


def model_of_count(text: str) -> Model | None:
    """The model that `8B`, `15M` or `8.03e9` counts, all of it matrices; None for a text that is no such number."""
    number = COUNT.fullmatch(text.strip().lower())
    count = round(float(number[1]) * SCALES[number[2]]) if number else 0
    if not 1 <= count <= MOST_PARAMETERS:
        return None
    return Model(f"{text.strip()} parameters", "given", linear=count, head=0, embedding=0, vectors=0, shape=None)
