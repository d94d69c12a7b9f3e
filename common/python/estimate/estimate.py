"""What physics lets a language model do on a GPU: whether it fits, the least time of a step, and what bounds it.

Plain arithmetic over what the model takes and a board's peaks. Every time is a floor: the larger of bytes over memory
bandwidth and FLOPs over the arithmetic rate (the roofline; Williams et al., CACM 52(4), 2009), with each byte moved
once. Launches, activations and the links between GPUs are not counted, so no real step is as fast.

FLOPs count a multiplication and an addition as two: 2N a token forward, 6N with the backward pass (Kaplan et al.,
arXiv:2001.08361, section 2.1; Hoffmann et al., arXiv:2203.15556, appendix F), where N is the weights of matrices, the
head among them and the embedding table not, plus attention (Korthikanti et al., arXiv:2205.05198, appendix A).
"""

import math
from dataclasses import dataclass

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

    def tokens(self, phase: str) -> int:
        """What one step makes or reads: one for each sequence in decode, else all of each."""
        return self.batch * (1 if phase == "decode" else self.context)


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


def _width(case: Case) -> float:
    """Bytes of a weight outside the layers' matrices: quantised checkpoints keep those in bf16."""
    return max(WEIGHT_BYTES[case.weights], WEIGHT_BYTES["bf16"])


def read_bytes(case: Case) -> float:
    """Bytes of weights that a step reads, each once: all but the embedding table, of which a token reads one row."""
    if case.read_bytes is not None:
        return case.read_bytes
    model = case.model
    return model.linear * WEIGHT_BYTES[case.weights] + (model.head + model.vectors) * _width(case)


def kv_bytes_per_token(case: Case) -> float | None:
    """Bytes that a token leaves in the cache: a key and a value of head_dim in each KV head of each layer.

    2 x layers x kv_heads x head_dim x bytes of the dtype (Pope et al., arXiv:2211.05102; kv_heads after Ainslie et
    al., arXiv:2305.13245). None for a bare count of parameters.
    """
    if (shape := case.model.shape) is None:
        return None
    return 2 * shape.layers * shape.kv_heads * shape.head_dim * CACHE_BYTES[case.cache]


def splits(model: Model) -> list[int]:
    """The numbers of GPUs that a published shape can be split over by tensor parallelism.

    Every GPU gets as many heads as the others, and whole KV heads or a copy of one. Empty for a bare count of
    parameters.
    """
    if (shape := model.shape) is None:
        return []
    even = (gpus for gpus in range(1, shape.heads + 1) if shape.heads % gpus == 0)
    return [gpus for gpus in even if shape.kv_heads % gpus == 0 or gpus % shape.kv_heads == 0]


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


def step_flops(phase: str, model: Model, batch: int, context: int) -> int:
    """FLOPs of a step of decode, prefill or train: 2 for each weight of a matrix and token, and attention.

    decode: one token for each sequence, which attends to `context` tokens, its own included. prefill: prompts of
    `context` tokens at once; the head is needed for the last token alone. train: forward and backward over such
    sequences, three times the forward's FLOPs.
    """
    queries = 1 if phase == "decode" else context
    predicted = 1 if phase == "prefill" else queries
    matrices = 2 * (model.linear * queries + model.head * predicted)
    forward = batch * (matrices + attention_flops(model, queries, context))
    return 3 * forward if phase == "train" else forward


class Estimate:
    """All of one case on one board, on `gpus` GPUs, or as few as hold it; `took` is a phase and its step in seconds.

    Bytes, FLOPs, sequences; `held` and `usable` are bytes of each GPU. What no split holds is estimated for the widest.
    The board has a rate for the case's arithmetic.
    """

    def __init__(self, case: Case, board: Board, gpus: int | None = None, took: tuple[str, float] | None = None):
        self.case = case
        self.board = board
        self.parameters = case.model.linear + case.model.head + case.model.embedding + case.model.vectors
        self.read_bytes = read_bytes(case)
        self.weight_bytes = self.read_bytes + case.model.embedding * _width(case)  # of all weights
        self.kv_bytes_per_token = kv_bytes_per_token(case)
        self.cache_bytes = case.batch * case.context * (self.kv_bytes_per_token or 0.0)  # at the full context
        self.usable_bytes = USABLE * board.memory_bytes
        self.gpus_needed = self._gpus_needed()  # None: on no number of GPUs over which the heads can be split
        self.gpus = gpus or self.gpus_needed or splits(case.model)[-1]  # that the floors are of
        self.held_bytes = self.held_on(self.gpus)
        self.decode_flops_per_token = step_flops("decode", case.model, case.batch, case.context) / case.batch
        self.decode = self.floor("decode")
        self.prefill = self.floor("prefill")
        self.ridge_batch = self.ridge(case.context)
        self.ridge_batch_weights = self.ridge(context=0)  # with the weights alone
        self.measured = self._measured(*took) if took else None

    def _gpus_needed(self) -> int | None:
        """The least number of GPUs on which the model and its cache fit in 90% of the memory; None if on no split."""
        model = self.case.model
        if model.shape is None:
            return max(1, math.ceil(self.weight_bytes / self.usable_bytes))
        return next((gpus for gpus in splits(model) if self.held_on(gpus) <= self.usable_bytes), None)

    def cache_share(self, gpus: int) -> float:
        """The part of the cache that each GPU holds: beyond kv_heads GPUs, KV heads are held more than once."""
        shape = self.case.model.shape
        return 1 / (min(gpus, shape.kv_heads) if shape else gpus)

    def held_on(self, gpus: int) -> float:
        """Bytes of weights and cache on each of `gpus` GPUs, under tensor parallelism."""
        return self.weight_bytes / gpus + self.cache_bytes * self.cache_share(gpus)

    def floor(self, phase: str) -> Floor:
        """The least time of a step on GPUs that share it evenly, each at its peaks.

        Decode reads all weights once for the whole batch, and each sequence's cache; prefill writes the cache. What a
        training step moves depends on its optimiser and on what it recomputes, so no bytes are counted.
        """
        case, board = self.case, self.board
        moved = self.read_bytes / self.gpus + self.cache_bytes * self.cache_share(self.gpus)
        memory_s = 0.0 if phase == "train" else moved / board.bandwidth
        flops = step_flops(phase, case.model, case.batch, case.context)
        arithmetic_s = flops / self.gpus / board.rates[case.arithmetic]
        least_s = max(memory_s, arithmetic_s)
        bound = "memory" if memory_s >= arithmetic_s else "arithmetic"
        return Floor(least_s * 1e3, memory_s * 1e3, arithmetic_s * 1e3, bound, case.tokens(phase) / least_s)

    def ridge(self, context: int) -> float | None:
        """The batch from which a decode step is bound by arithmetic; None if no batch is large enough.

        With B sequences, arithmetic takes B x f / rate and memory (W + B x kv) / bandwidth: they meet at
        B = (W / bandwidth) / (f / rate - kv / bandwidth), where f and kv are the FLOPs and the cache bytes of a
        sequence. Once a sequence's cache takes longer to read than its FLOPs to do, more sequences never help. At
        context 0 only the weights are left: B = rate x bytes of a weight / (2 x bandwidth).
        """
        case, board = self.case, self.board
        arithmetic_s = step_flops("decode", case.model, 1, context) / self.gpus / board.rates[case.arithmetic]
        cache_s = context * (self.kv_bytes_per_token or 0.0) * self.cache_share(self.gpus) / board.bandwidth
        if arithmetic_s <= cache_s:
            return None
        return self.read_bytes / self.gpus / board.bandwidth / (arithmetic_s - cache_s)

    def _measured(self, phase: str, seconds: float) -> Measured:
        """A step of `seconds` against its floor, and its model FLOPs utilisation.

        Utilisation is the FLOPs of the work over what the GPUs' peak would do in that time; recomputation earns no
        credit (Chowdhery et al., arXiv:2204.02311, appendix B, who count attention without its mask, and so a little
        more).
        """
        least = self.floor(phase)
        return Measured(
            phase=phase,
            ms=seconds * 1e3,
            tokens_per_s=self.case.tokens(phase) / seconds,
            floor_ms=least.ms,
            share_of_floor=least.ms / (seconds * 1e3),
            flops_utilisation=least.arithmetic_ms / (seconds * 1e3),
        )
