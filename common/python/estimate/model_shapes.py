"""Language models as `estimate` counts them: published shapes of dense Llama-style decoders, or a bare parameter count.

A layer is attention (q, k, v and o projections) and a gated MLP (gate, up and down), with an RMSNorm before each; the
decoder ends with a norm and the head. Figures were checked against reprints of the files named in `source`.
"""

import re
from dataclasses import dataclass

HF = "https://huggingface.co/{}/blob/main/config.json"
TINY_LLAMAS = "https://huggingface.co/karpathy/tinyllamas; its MLP width follows from model.py of karpathy/llama2.c"
COUNT = re.compile(r"([0-9]{1,30}(?:\.[0-9]{1,30})?(?:e[0-9]{1,2})?)([kmbt]?)")
SCALES = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
MOST_PARAMETERS = 10**18


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A decoder as its config.json gives it. All but `layers` are widths or numbers in one layer."""

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
class Attention:
    """What sizes the KV cache. `kv_heads` below `heads` is grouped-query attention."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int


@dataclass(frozen=True)
class Model:
    """Parameters by what a step does with them. A bare count has no `attention`, and so no cache."""

    name: str
    source: str
    linear: int  # weights of the layers' matrices
    head: int  # weights of the matrix from hidden to vocabulary
    embedding: int  # weights of the table of which a token reads one row; 0 where the head is that table
    vectors: int  # norms and biases
    attention: Attention | None


SHAPES = (
    Shape(
        name="stories15m",
        layers=6,
        hidden=288,
        heads=6,
        kv_heads=6,
        head_dim=48,
        ffn=768,
        vocab=32000,
        tied=True,
        source=TINY_LLAMAS,
    ),
    Shape(
        name="llama-2-7b",
        layers=32,
        hidden=4096,
        heads=32,
        kv_heads=32,
        head_dim=128,
        ffn=11008,
        vocab=32000,
        source=HF.format("meta-llama/Llama-2-7b-hf"),
    ),
    Shape(
        name="llama-3.2-1b",
        layers=16,
        hidden=2048,
        heads=32,
        kv_heads=8,
        head_dim=64,
        ffn=8192,
        vocab=128256,
        tied=True,
        source=HF.format("meta-llama/Llama-3.2-1B"),
    ),
    Shape(
        name="llama-3.2-3b",
        layers=28,
        hidden=3072,
        heads=24,
        kv_heads=8,
        head_dim=128,
        ffn=8192,
        vocab=128256,
        tied=True,
        source=HF.format("meta-llama/Llama-3.2-3B"),
    ),
    Shape(
        name="llama-3.1-8b",
        layers=32,
        hidden=4096,
        heads=32,
        kv_heads=8,
        head_dim=128,
        ffn=14336,
        vocab=128256,
        source=HF.format("meta-llama/Llama-3.1-8B"),
    ),
    Shape(
        name="llama-3.1-70b",
        layers=80,
        hidden=8192,
        heads=64,
        kv_heads=8,
        head_dim=128,
        ffn=28672,
        vocab=128256,
        source=HF.format("meta-llama/Llama-3.1-70B"),
    ),
    Shape(
        name="llama-3.1-405b",
        layers=126,
        hidden=16384,
        heads=128,
        kv_heads=8,
        head_dim=128,
        ffn=53248,
        vocab=128256,
        source="Llama 3 paper, https://arxiv.org/abs/2407.21783, table 3; vocabulary as of the 8B model's config.json",
    ),
    Shape(
        name="qwen2.5-7b",
        layers=28,
        hidden=3584,
        heads=28,
        kv_heads=4,
        head_dim=128,
        ffn=18944,
        vocab=152064,
        qkv_bias=True,
        source=HF.format("Qwen/Qwen2.5-7B"),
    ),
    Shape(
        name="qwen2.5-32b",
        layers=64,
        hidden=5120,
        heads=40,
        kv_heads=8,
        head_dim=128,
        ffn=27648,
        vocab=152064,
        qkv_bias=True,
        source=HF.format("Qwen/Qwen2.5-32B"),
    ),
    Shape(
        name="qwen3-8b",
        layers=36,
        hidden=4096,
        heads=32,
        kv_heads=8,
        head_dim=128,
        ffn=12288,
        vocab=151936,
        qk_norm=True,
        source=HF.format("Qwen/Qwen3-8B"),
    ),
    Shape(
        name="qwen3-32b",
        layers=64,
        hidden=5120,
        heads=64,
        kv_heads=8,
        head_dim=128,
        ffn=25600,
        vocab=151936,
        qk_norm=True,
        source=HF.format("Qwen/Qwen3-32B"),
    ),
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
        attention=Attention(shape.layers, shape.heads, shape.kv_heads, shape.head_dim),
    )


def model_of_count(text: str) -> Model | None:
    """The model that `8B`, `15M` or `8.03e9` counts, all of it matrices; None for a text that is no such number."""
    number = COUNT.fullmatch(text.strip().lower())
    count = round(float(number[1]) * SCALES[number[2]]) if number else 0
    if not 1 <= count <= MOST_PARAMETERS:
        return None
    return Model(f"{text.strip()} parameters", "given", linear=count, head=0, embedding=0, vectors=0, attention=None)
