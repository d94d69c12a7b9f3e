"""What a language model takes, whatever it runs on: bytes of weights and of cache, FLOPs of a step.

FLOPs count a multiplication and an addition as two: 2N a token forward, 6N with the backward pass (Kaplan et al.,
arXiv:2001.08361, section 2.1; Hoffmann et al., arXiv:2203.15556, appendix F), where N is the weights of matrices, the
head among them and the embedding table not, plus attention (Korthikanti et al., arXiv:2205.05198, appendix A).
"""

from dataclasses import dataclass

from common.python.estimate.model_shapes import Model

# Bytes of a weight. int4 has a bf16 scale for each 128 weights, the group of GPTQ (arXiv:2210.17323) and AWQ
# (arXiv:2306.00978); the scales of fp8 and int8, one a row or a tensor, are under 0.1% and not counted.
WEIGHT_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5 + 2 / 128}
CACHE_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0}
# What multiplies: integer weights are dequantised to bf16 on the way (weight-only quantisation).
ARITHMETIC = {"fp32": "fp32", "bf16": "bf16", "fp16": "fp16", "fp8": "fp8", "int8": "bf16", "int4": "bf16"}
WHOLE = ("fp32", "bf16", "fp16")  # dtypes that all weights have; of the others only the layers' matrices


@dataclass(frozen=True)
class Case:
    """A model as it is to run: dtypes of weights, of cache and of arithmetic; `batch` sequences of `context` tokens."""

    model: Model
    weights: str
    cache: str
    arithmetic: str
    batch: int
    context: int
    read_bytes: float | None = None  # of weights in a step, where the dtype does not say them


@dataclass(frozen=True)
class Work:
    """What one step takes at least, on all GPUs together, and the tokens that it makes or reads."""

    flops: float
    weight_bytes: float
    cache_bytes: float
    tokens: int


# The model in memory.


def parameters(model: Model) -> int:
    """All parameters."""
    return model.linear + model.head + model.embedding + model.vectors


def _width(case: Case) -> float:
    """Bytes of a weight outside the layers' matrices: quantised checkpoints keep those in bf16."""
    return WEIGHT_BYTES[case.weights if case.weights in WHOLE else "bf16"]


def read_bytes(case: Case) -> float:
    """Bytes of weights that a step reads, each once: all but the embedding table, of which a token reads one row."""
    if case.read_bytes is not None:
        return case.read_bytes
    model = case.model
    return model.linear * WEIGHT_BYTES[case.weights] + (model.head + model.vectors) * _width(case)


def weight_bytes(case: Case) -> float:
    """Bytes of all weights: those that a step reads and the embedding table."""
    return read_bytes(case) + case.model.embedding * _width(case)


def kv_bytes_per_token(case: Case) -> float | None:
    """Bytes that a token leaves in the cache: a key and a value of head_dim in each KV head of each layer.

    2 x layers x kv_heads x head_dim x bytes of the dtype (Pope et al., arXiv:2211.05102; kv_heads after Ainslie et
    al., arXiv:2305.13245). None for a bare count of parameters.
    """
    if (attention := case.model.attention) is None:
        return None
    return 2 * attention.layers * attention.kv_heads * attention.head_dim * CACHE_BYTES[case.cache]


def cache_bytes(case: Case) -> float:
    """Bytes of the cache of all sequences at the full context; 0 for a bare count of parameters."""
    return case.batch * case.context * (kv_bytes_per_token(case) or 0.0)


def can_split(model: Model, gpus: int) -> bool:
    """Whether tensor parallelism gives every GPU as many heads as the others, and whole KV heads or a copy of one."""
    if (attention := model.attention) is None:
        return True
    return attention.heads % gpus == 0 and (attention.kv_heads % gpus == 0 or gpus % attention.kv_heads == 0)


def splits(model: Model) -> list[int]:
    """The numbers of GPUs that a published shape can be split over."""
    return [gpus for gpus in range(1, model.attention.heads + 1) if can_split(model, gpus)] if model.attention else []


def cache_share(model: Model, gpus: int) -> float:
    """The part of the cache that each GPU holds: beyond kv_heads GPUs, KV heads are held more than once."""
    return 1 / (gpus if model.attention is None else min(gpus, model.attention.kv_heads))


def held_bytes(case: Case, gpus: int) -> float:
    """Bytes of weights and cache on each of `gpus` GPUs, under tensor parallelism."""
    return weight_bytes(case) / gpus + cache_bytes(case) * cache_share(case.model, gpus)


# The work of a step.


def matmul_flops_per_token(model: Model) -> int:
    """FLOPs of the matrices for one token: 2 x (weights of the layers + weights of the head)."""
    return 2 * (model.linear + model.head)


def attention_flops(model: Model, queries: int, context: int) -> int:
    """FLOPs of attention in one sequence for its last `queries` tokens, the last of which attends to `context`.

    A query against t keys takes 2 x head_dim x t for its scores and as many for the weighted sum of values, in each
    head of each layer. Korthikanti et al. count the whole square (4 x s^2 x hidden a layer); here the causal mask
    leaves the live part, which is all that the problem needs: t runs from context - queries + 1 to context.
    """
    if (attention := model.attention) is None:
        return 0
    pairs = queries * context - queries * (queries - 1) // 2
    return 4 * attention.layers * attention.heads * attention.head_dim * pairs


def decode_work(case: Case) -> Work:
    """One token for each sequence, which attends to `context` tokens, its own included.

    All weights are read once for the whole batch; each sequence reads its own cache and adds a token to it.
    """
    flops = case.batch * (matmul_flops_per_token(case.model) + attention_flops(case.model, 1, case.context))
    return Work(flops, read_bytes(case), cache_bytes(case), tokens=case.batch)


def prefill_work(case: Case) -> Work:
    """Prompts of `context` tokens at once: the cache is written, and the head is needed for the last token alone."""
    tokens = case.batch * case.context
    matrices = 2 * case.model.linear * tokens + 2 * case.model.head * case.batch
    flops = matrices + case.batch * attention_flops(case.model, case.context, case.context)
    return Work(flops, read_bytes(case), cache_bytes(case), tokens)


def train_work(case: Case) -> Work:
    """Forward and backward over `batch` sequences of `context` tokens: three times the forward's FLOPs, 6N a token.

    No bytes: what a training step moves depends on its optimiser and on what it recomputes.
    """
    tokens = case.batch * case.context
    forward = tokens * matmul_flops_per_token(case.model)
    forward += case.batch * attention_flops(case.model, case.context, case.context)
    return Work(3 * forward, weight_bytes=0, cache_bytes=0, tokens=tokens)


WORK = {"decode": decode_work, "prefill": prefill_work, "train": train_work}


def step_seconds(phase: str, case: Case, tokens_per_s: float) -> float:
    """The time of a step of decode, prefill or train that gives this rate over all sequences."""
    return WORK[phase](case).tokens / tokens_per_s
