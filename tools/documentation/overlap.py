"""What a GPU did in a step, by the events of its trace: arithmetic, communication, and where both ran at once.

Communication: NCCL's kernels (`ncclDevKernel...`), copies between GPUs (`Memcpy PtoP`), and kernels of torch's
`c10d::symmetric_memory` that move data (those that also add are in no namespace: `one_shot_...`, `two_shot_...`,
`multimem_...`). What another GPU's copies bring is in that GPU's trace only. Waiting, which is neither communication
nor arithmetic: `wait_signal`, `put_signal`, `barrier_kernel`; what NCCL's kernels wait cannot be told from what they
move. Arithmetic: every other kernel, so also a pair's own that writes another GPU's memory. Other copies and memsets
are none of these. A step lasts from its first work on the GPU, of whatever kind, to the end of its last.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from common.python.profile.profiled_why import Event, Span, length_us, union

WAITS = re.compile(r"\b(wait_signal|put_signal|(multimem_)?barrier_kernel)")
MOVES = re.compile(r"^ncclDevKernel|c10d::symmetric_memory|\b(one_shot|two_shot|multimem)_\w*kernel")


@dataclass(frozen=True)
class Overlap:
    """A step's spans, in microseconds since its first work on the GPU; none of a kind overlaps another of its kind."""

    step_us: float
    arithmetic: list[Span]
    communication: list[Span]
    hidden: list[Span]  # communication while arithmetic runs
    exposed: list[Span]  # communication while none does
    waiting: list[Span]

    def share(self) -> str:
        """What part of the communication is hidden; empty if there is none."""
        sent = length_us(self.communication)
        return f"{length_us(self.hidden) / sent:.0%}" if sent else ""


def overlap(events: Sequence[Event]) -> Overlap:
    """Of the events of a step and its work. Raises ValueError if none was on a GPU."""
    work = [event for event in events if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    if not work:
        raise ValueError("it has no kernel and no copy")
    begin = min(event["ts"] for event in work)
    moved = [{**event, "ts": event["ts"] - begin} for event in work]
    step_us = union(moved)[-1][1]
    computed, sent, waited = (
        union([event for event in moved if kind(event) == one]) for one in ("arithmetic", "communication", "waiting")
    )
    hidden, exposed = intersection(sent, computed), intersection(sent, gaps(computed, step_us))
    return Overlap(step_us, computed, sent, hidden, exposed, waited)


def kind(event: Event) -> str:
    """By the rules above; empty for what is none of the three."""
    if event["cat"] != "kernel":
        return "communication" if event["name"].startswith("Memcpy PtoP") else ""
    if WAITS.search(event["name"]):
        return "waiting"
    return "communication" if MOVES.search(event["name"]) else "arithmetic"


def intersection(some: Sequence[Span], others: Sequence[Span]) -> list[Span]:
    """When both are so."""
    both = ((max(a, c), min(b, d)) for a, b in some for c, d in others)
    return [(start, end) for start, end in both if start < end]


def gaps(spans: Sequence[Span], end: float) -> list[Span]:
    """When none of the spans is, from 0 to `end`."""
    return list(zip([0.0, *(last for _, last in spans)], [*(first for first, _ in spans), end]))
