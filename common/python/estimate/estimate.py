"""What physics lets a language model do on a GPU: whether it fits, the least time of a step, and what bounds it.

Plain arithmetic over what the model takes and a board's peaks. Every time is a floor: the larger of bytes over memory
bandwidth and FLOPs over the arithmetic rate (the roofline; Williams et al., CACM 52(4), 2009), with each byte moved
once. Launches, activations and the links between GPUs are not counted, so no real step is as fast.
"""

import math
from dataclasses import dataclass, replace

from common.python.estimate.model_costs import (
    WORK,
    Case,
    Work,
    cache_bytes,
    cache_share,
    decode_work,
    held_bytes,
    kv_bytes_per_token,
    parameters,
    prefill_work,
    read_bytes,
    splits,
    weight_bytes,
)

USABLE = 0.9  # of a GPU's memory: the rest is for activations and the CUDA context, as vLLM's gpu_memory_utilization


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


@dataclass(frozen=True)
class Estimate:
    """All of it for one case on one board. Bytes, FLOPs, sequences; `held` and `usable` are bytes of each GPU."""

    case: Case
    board: Board
    parameters: int
    weight_bytes: float
    read_bytes: float
    kv_bytes_per_token: float | None  # None: a bare count of parameters does not say
    cache_bytes: float
    gpus_needed: int | None  # None: on no number of GPUs over which the heads can be split
    gpus: int  # that the floors are of
    held_bytes: float
    usable_bytes: float
    decode_flops_per_token: float
    decode: Floor
    prefill: Floor
    ridge_batch: float | None  # at this context
    ridge_batch_weights: float | None  # with the weights alone, at context 0
    measured: Measured | None


def estimate(case: Case, board: Board, gpus: int | None = None, took: tuple[str, float] | None = None) -> Estimate:
    """Everything at once, on `gpus` GPUs, or as few as hold it; `took` is a measured phase and its step in seconds.

    What no split holds is estimated for the widest. The board has a rate for the case's arithmetic.
    """
    needed = gpus_needed(case, board)
    gpus = gpus or needed or splits(case.model)[-1]
    decode = decode_work(case)
    return Estimate(
        case=case,
        board=board,
        parameters=parameters(case.model),
        weight_bytes=weight_bytes(case),
        read_bytes=read_bytes(case),
        kv_bytes_per_token=kv_bytes_per_token(case),
        cache_bytes=cache_bytes(case),
        gpus_needed=needed,
        gpus=gpus,
        held_bytes=held_bytes(case, gpus),
        usable_bytes=USABLE * board.memory_bytes,
        decode_flops_per_token=decode.flops / decode.tokens,
        decode=floor(decode, case, board, gpus),
        prefill=floor(prefill_work(case), case, board, gpus),
        ridge_batch=ridge_batch(case, board, gpus),
        ridge_batch_weights=ridge_batch(replace(case, context=0), board, gpus),
        measured=measured(*took, case, board, gpus) if took else None,
    )


def gpus_needed(case: Case, board: Board) -> int | None:
    """The least number of GPUs on which the model and its cache fit in 90% of the memory; None if on no split."""
    usable = USABLE * board.memory_bytes
    if case.model.attention is None:
        return max(1, math.ceil(weight_bytes(case) / usable))
    return next((gpus for gpus in splits(case.model) if held_bytes(case, gpus) <= usable), None)


def floor(work: Work, case: Case, board: Board, gpus: int) -> Floor:
    """The least time of the work on `gpus` GPUs that share it evenly, each at its peaks."""
    moved = work.weight_bytes / gpus + work.cache_bytes * cache_share(case.model, gpus)
    memory_s = moved / board.bandwidth
    arithmetic_s = work.flops / gpus / board.rates[case.arithmetic]
    least_s = max(memory_s, arithmetic_s)
    bound = "memory" if memory_s >= arithmetic_s else "arithmetic"
    return Floor(least_s * 1e3, memory_s * 1e3, arithmetic_s * 1e3, bound, work.tokens / least_s)


def ridge_batch(case: Case, board: Board, gpus: int) -> float | None:
    """The batch from which a decode step is bound by arithmetic; None if no batch is large enough.

    With B sequences, arithmetic takes B x f / rate and memory (W + B x kv) / bandwidth: they meet at
    B = (W / bandwidth) / (f / rate - kv / bandwidth), where f and kv are the FLOPs and the cache bytes of a sequence.
    Once a sequence's cache takes longer to read than its FLOPs to do, more sequences never help. At context 0 only the
    weights are left: B = rate x bytes of a weight / (2 x bandwidth).
    """
    one = decode_work(replace(case, batch=1))
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
    work = WORK[phase](case)
    least = floor(work, case, board, gpus)
    return Measured(
        phase=phase,
        ms=seconds * 1e3,
        tokens_per_s=work.tokens / seconds,
        floor_ms=least.ms,
        share_of_floor=least.ms / (seconds * 1e3),
        flops_utilisation=work.flops / (seconds * gpus * board.rates[case.arithmetic]),
    )
