"""Language models as `estimate` counts them: published shapes of dense Llama-style decoders, or a bare parameter count.

A layer is attention (q, k, v and o projections) and a gated MLP (gate, up and down), with an RMSNorm before each; the
decoder ends with a norm and the head. Shapes stand in model_shapes.json, checked against
reprints of the files named in `source`.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

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


SHAPES = tuple(Shape(**row) for row in json.loads(Path(__file__).with_suffix(".json").read_text()))


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
