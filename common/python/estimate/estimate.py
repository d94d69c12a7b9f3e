"""What physics lets a language model do on a GPU: whether it fits, the least time of a step, and what bounds it.

Plain arithmetic over what the model takes and a board's peaks. Every time is a floor: the larger of bytes over memory
bandwidth and FLOPs over the arithmetic rate (the roofline; Williams et al., CACM 52(4), 2009), with each byte moved
once. Launches, activations and the links between GPUs are not counted, so no real step is as fast.

FLOPs count a multiplication and an addition as two: 2N a token forward, 6N with the backward pass (Kaplan et al.,
arXiv:2001.08361, section 2.1; Hoffmann et al., arXiv:2203.15556, appendix F), where N is the weights of matrices, the
head among them and the embedding table not, plus attention (Korthikanti et al., arXiv:2205.05198, appendix A).
"""

import math
from dataclasses import dataclass, replace

from common.python.estimate.model_shapes import Model

# Bytes of a weight. int4 has a bf16 scale for each 128 weights, the group of GPTQ (arXiv:2210.17323) and AWQ
# (arXiv:2306.00978); the scales of fp8 and int8, one a row or a tensor, are under 0.1% and not counted.
WEIGHT_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5 + 2 / 128}
CACHE_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0}
# What multiplies: integer weights are dequantised to bf16 on the way (weight-only quantisation).
ARITHMETIC = {"fp32": "fp32", "bf16": "bf16", "fp16": "fp16", "fp8": "fp8", "int8": "bf16", "int4": "bf16"}
USABLE = 0.9  # of a GPU's memory: the rest is for activations and the CUDA context, as vLLM's gpu_memory_utilization


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
    return model.linear + model.head + model.embedding + model.vectors


def _width(case: Case) -> float:
    """Bytes of a weight outside the layers' matrices: quantised checkpoints keep those in bf16."""
    return max(WEIGHT_BYTES[case.weights], WEIGHT_BYTES["bf16"])


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
    if (shape := case.model.shape) is None:
        return None
    return 2 * shape.layers * shape.kv_heads * shape.head_dim * CACHE_BYTES[case.cache]


def cache_bytes(case: Case) -> float:
    """Bytes of the cache of all sequences at the full context; 0 for a bare count of parameters."""
    return case.batch * case.context * (kv_bytes_per_token(case) or 0.0)


def splits(model: Model) -> list[int]:
    """The numbers of GPUs that a published shape can be split over by tensor parallelism.

    Every GPU gets as many heads as the others, and whole KV heads or a copy of one. Empty for a bare count of
    parameters.
    """
    if (shape := model.shape) is None:
        return []
    even = (gpus for gpus in range(1, shape.heads + 1) if shape.heads % gpus == 0)
    return [gpus for gpus in even if shape.kv_heads % gpus == 0 or gpus % shape.kv_heads == 0]


def cache_share(model: Model, gpus: int) -> float:
    """The part of the cache that each GPU holds: beyond kv_heads GPUs, KV heads are held more than once."""
    return 1 / (gpus if model.shape is None else min(gpus, model.shape.kv_heads))


def held_bytes(case: Case, gpus: int) -> float:
    """Bytes of weights and cache on each of `gpus` GPUs, under tensor parallelism."""
    return weight_bytes(case) / gpus + cache_bytes(case) * cache_share(case.model, gpus)


# The work of a step.


def attention_flops(model: Model, queries: int, context: int) -> int:
    """FLOPs of attention in one sequence for its last `queries` tokens, the last of which attends to `context`.

    A query against t keys takes 2 x head_dim x t for its scores and as many for the weighted sum of values, in each
    head of each layer. Korthikanti et al. count the whole square (4 x s^2 x hidden a layer); here the causal mask
    leaves the live part, which is all that the problem needs: t runs from context - queries + 1 to context.
    """
    if (shape := model.shape) is None:
        return 0
    pairs = queries * context - queries * (queries - 1) // 2
    return 4 * shape.layers * shape.heads * shape.head_dim * pairs


def work(phase: str, case: Case) -> Work:
    """What a step of decode, prefill or train takes: 2 FLOPs a weight of a matrix and token, and attention.

    decode: one token for each sequence, which attends to `context` tokens, its own included. All weights are read once
    for the whole batch; each sequence reads its own cache and adds a token to it. prefill: prompts of `context` tokens
    at once; the cache is written, and the head is needed for the last token alone. train: forward and backward over
    such sequences, three times the forward's FLOPs. No bytes: what a training step moves depends on its optimiser and
    on what it recomputes.
    """
    queries = 1 if phase == "decode" else case.context
    tokens = case.batch * queries
    predicted = case.batch if phase == "prefill" else tokens
    attention = case.batch * attention_flops(case.model, queries, case.context)
    forward = 2 * (case.model.linear * tokens + case.model.head * predicted) + attention
    if phase == "train":
        return Work(3 * forward, weight_bytes=0, cache_bytes=0, tokens=tokens)
    return Work(forward, read_bytes(case), cache_bytes(case), tokens)


# On a GPU.


@dataclass(frozen=True)
class Board:
    """A GPU's memory in bytes, bandwidth in bytes/s, rates in FLOP/s by dtype, and where these are from."""

    name: str
    memory_bytes: float
    bandwidth: float
    rates: dict[str, float]
    source: str


@dataclass(frozen=True)
class Floor:
    """The least time of a step, the times of which it is the larger, in milliseconds, and which that is."""

    ms: float
    memory_ms: float
    arithmetic_ms: float
    bound: str  # memory or arithmetic
    tokens_per_s: float


@dataclass(frozen=True)
class Measured:
    """A measured step held against its floor. Utilisation and share are fractions: 1 is all that physics allows."""

    phase: str
    ms: float
    tokens_per_s: float
    floor_ms: float
    share_of_floor: float
    flops_utilisation: float


class Estimate:
    """All of one case on one board, on `gpus` GPUs, or as few as hold it; `took` is a phase and its step in seconds.

    Bytes, FLOPs, sequences; `held` and `usable` are bytes of each GPU. What no split holds is estimated for the widest.
    The board has a rate for the case's arithmetic.
    """

    def __init__(self, case: Case, board: Board, gpus: int | None = None, took: tuple[str, float] | None = None):
        decode = work("decode", case)
        self.case = case
        self.board = board
        self.parameters = parameters(case.model)
        self.weight_bytes = weight_bytes(case)
        self.read_bytes = read_bytes(case)
        self.kv_bytes_per_token = kv_bytes_per_token(case)
        self.cache_bytes = cache_bytes(case)
        self.gpus_needed = gpus_needed(case, board)  # None: on no number of GPUs over which the heads can be split
        self.gpus = gpus = gpus or self.gpus_needed or splits(case.model)[-1]  # that the floors are of
        self.held_bytes = held_bytes(case, gpus)
        self.usable_bytes = USABLE * board.memory_bytes
        self.decode_flops_per_token = decode.flops / decode.tokens
        self.decode = floor(decode, case, board, gpus)
        self.prefill = floor(work("prefill", case), case, board, gpus)
        self.ridge_batch = ridge_batch(case, board, gpus)  # at this context
        self.ridge_batch_weights = ridge_batch(replace(case, context=0), board, gpus)  # with the weights alone
        self.measured = measured(*took, case, board, gpus) if took else None


def gpus_needed(case: Case, board: Board) -> int | None:
    """The least number of GPUs on which the model and its cache fit in 90% of the memory; None if on no split."""
    usable = USABLE * board.memory_bytes
    if case.model.shape is None:
        return max(1, math.ceil(weight_bytes(case) / usable))
    return next((gpus for gpus in splits(case.model) if held_bytes(case, gpus) <= usable), None)


def floor(needs: Work, case: Case, board: Board, gpus: int) -> Floor:
    """The least time of what a step needs on `gpus` GPUs that share it evenly, each at its peaks."""
    moved = needs.weight_bytes / gpus + needs.cache_bytes * cache_share(case.model, gpus)
    memory_s = moved / board.bandwidth
    arithmetic_s = needs.flops / gpus / board.rates[case.arithmetic]
    least_s = max(memory_s, arithmetic_s)
    bound = "memory" if memory_s >= arithmetic_s else "arithmetic"
    return Floor(least_s * 1e3, memory_s * 1e3, arithmetic_s * 1e3, bound, needs.tokens / least_s)


def ridge_batch(case: Case, board: Board, gpus: int) -> float | None:
    """The batch from which a decode step is bound by arithmetic; None if no batch is large enough.

    With B sequences, arithmetic takes B x f / rate and memory (W + B x kv) / bandwidth: they meet at
    B = (W / bandwidth) / (f / rate - kv / bandwidth), where f and kv are the FLOPs and the cache bytes of a sequence.
    Once a sequence's cache takes longer to read than its FLOPs to do, more sequences never help. At context 0 only the
    weights are left: B = rate x bytes of a weight / (2 x bandwidth).
    """
    one = work("decode", replace(case, batch=1))
    arithmetic_s = one.flops / gpus / board.rates[case.arithmetic]
    cache_s = one.cache_bytes * cache_share(case.model, gpus) / board.bandwidth
    if arithmetic_s <= cache_s:
        return None
    return one.weight_bytes / gpus / board.bandwidth / (arithmetic_s - cache_s)


def measured(phase: str, seconds: float, case: Case, board: Board, gpus: int) -> Measured:
    """A step of `seconds` against its floor, and its model FLOPs utilisation.

    Utilisation is the FLOPs of the work over what the GPUs' peak would do in that time; recomputation earns no credit
    (Chowdhery et al., arXiv:2204.02311, appendix B, who count attention without its mask, and so a little more).
    """
    needs = work(phase, case)
    least = floor(needs, case, board, gpus)
    return Measured(
        phase=phase,
        ms=seconds * 1e3,
        tokens_per_s=needs.tokens / seconds,
        floor_ms=least.ms,
        share_of_floor=least.ms / (seconds * 1e3),
        flops_utilisation=needs.flops / (seconds * gpus * board.rates[case.arithmetic]),
    )
