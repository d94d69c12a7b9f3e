"""One untimed, profiled step of each variant: what it did, to say why the times are what they are.

All variants share one profile, since starting and reading one takes a fifth of a second whatever is in it.
"""

import gc
import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from pydantic_core import from_json
from torch.autograd.profiler import profile, record_function

from common.python.base.results import Why
from common.python.proof.comparison import Rejected
from common.python.proof.preparation import Prepared, VariantError, settle
from common.python.proof.ranks import ALONE, Ranks
from common.python.workload import Step

TOP = 3
MOST_EVENTS = 50_000  # a step's allocations and frees; each has the Python frames that it came from
STEP, DONE = "step of ", "step and its work of "
SYNCS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy")
GRAPH_GAP = "gap between graph nodes us"
COMMUNICATION = re.compile("nccl|PtoP|_signal_kernel|barrier|multimem|all_(reduce|gather|to_all)|reduce_scatter", re.I)
At = Callable[[str, str], None]
Event = dict[str, Any]  # of a Chrome trace: name, cat, ts and dur in microseconds, args


def why(
    variants: list[Prepared],
    device: torch.device,
    trace: Path,
    at: At,
    ranks: Ranks = ALONE,
    isolated: bool = False,
) -> dict[str, Why]:
    """Kernels, synchronisations, bytes copied and peak memory of a step of each.

    The Chrome trace is left in `trace`; `at` hears whose step is next. Of several ranks, the one that came last to a
    collective tells how long the device was busy: on the others it was busy with waiting as well. `isolated` says that
    the variant has this process to itself: then the memory that counts is what its allocator reserves.
    """
    peaks: dict[str, float | None] = {}
    # torch.profiler is this with more around it, for which it imports Inductor, and that takes as long as torch itself
    on = "cuda" if device.type == "cuda" else None
    with profile(use_device=on, use_kineto=True) as profiler:
        for variant in variants:
            at(variant.name, "profile")
            with _peak(variant, device, isolated, peaks):
                settle(device)
                ranks.meet()
                with record_function(f"{DONE}{variant.name}"):
                    with record_function(f"{STEP}{variant.name}"):
                        variant.step()
                    settle(device)
    trace.parent.mkdir(parents=True, exist_ok=True)
    profiler.export_chrome_trace(str(trace))
    events = [event for event in from_json(trace.read_bytes())["traceEvents"] if event.get("ph") == "X"]
    seen = {variant.name: _read(events, variant.name, device, ranks) for variant in variants}
    for name, told in seen.items():
        told.peak_bytes = peaks.get(name)
        told.busy_us, told.stream_us = ranks.least(told.busy_us), ranks.least(told.stream_us)
    return seen


def metrics_of(variant: Prepared, device: torch.device, at: At, warm: bool = False) -> dict[str, float]:
    """What a step tells of itself, after an untimed call unless it is `warm`; nothing, where it has nothing to tell.

    Raises VariantError where it cannot, or tells what is no finite number.
    """
    if variant.metrics is None:
        return {}
    at(variant.name, "metrics")
    try:
        if not warm:
            variant.step()
            settle(device)
        told = {str(name): float(value) for name, value in variant.metrics().items()}
        if wrong := sorted(name for name, value in told.items() if not math.isfinite(value)):
            raise Rejected(f"metrics gave what is no finite number for {', '.join(wrong)}")
    except Exception as error:
        raise VariantError(variant.name, error) from error
    return told


@contextmanager
def _peak(variant: Prepared, device: torch.device, isolated: bool, found: dict[str, float | None]) -> Iterator[None]:
    """Note what stays between steps plus the most that the step inside adds; shared inputs and others do not count.

    Of an isolated variant that is what the allocator reserves, from an empty cache on: all that other programs cannot
    have. None on a CPU, and where a variant gave back more than it took, such as workspaces that others had been using.
    """
    if device.type == "cpu":
        yield
        return
    gc.collect()
    variant.output, variant.returned = [], ()
    holds, most, held = torch.cuda.memory_allocated, torch.cuda.max_memory_allocated, variant.held_bytes or 0.0
    if isolated:
        torch.cuda.empty_cache()
        holds, most, held = torch.cuda.memory_reserved, torch.cuda.max_memory_reserved, max(held, 0.0)
    before = holds()
    torch.cuda.reset_peak_memory_stats()
    yield
    found[variant.name] = held + most() - before if held >= 0 else None


def _read(events: list[Event], name: str, device: torch.device, ranks: Ranks = ALONE) -> Why:
    within = during(events, STEP + name)
    operators = [event for event in within if event.get("cat") == "cpu_op"]
    if device.type == "cpu":
        return Why(operators=len(operators), top=_longest(operators))
    on_device = during(events, DONE + name)
    kernels, copies, sets = (
        [event for event in on_device if event.get("cat") == category]
        for category in ("kernel", "gpu_memcpy", "gpu_memset")
    )
    work = kernels + copies + sets
    streams: dict[Any, list[Event]] = defaultdict(list)
    for event in work:
        streams[event.get("args", {}).get("stream")].append(event)
    return Why(
        kernels=len(kernels),
        operators=len(operators),
        syncs=sum(event["name"] in SYNCS for event in within),
        copied_bytes=float(sum(event.get("args", {}).get("bytes", 0) for event in copies)),
        busy_us=busy(work),
        stream_us=max(map(busy, streams.values()), default=0.0),
        top=_longest(kernels + copies),
        metrics=_graph_gap(within, work) | _of_rank(work, ranks),
    )


def _of_rank(work: list[Event], ranks: Ranks) -> dict[str, float]:
    """A rank's busy time and its exposed communication, in microseconds: while nothing else ran. Empty for one rank.

    Communication is recognised by name: NCCL's kernels, copies between GPUs, and torch's kernels on symmetric memory,
    waits included. A pair's own kernel that stores into another GPU's memory counts as computing.
    """
    if ranks.size == 1:
        return {}
    computing = [event for event in work if not COMMUNICATION.search(event["name"])]
    found = {"busy": busy(work), "exposed communication": busy(work) - busy(computing)}
    return {f"rank {ranks.rank} {name} us": value for name, value in found.items()}


def _graph_gap(calls: list[Event], work: list[Event]) -> dict[str, float]:
    """Mean idle microseconds from one node of a graph launch to the next; empty without a launch of two nodes or more.

    Nodes are the kernels, copies and memsets in `work` that share the correlation id of a cudaGraphLaunch in `calls`.
    Idle means that no node of the same launch runs, on any stream; nodes that overlap count 0. Time between launches
    does not count. A host node counts as idle, as does what the profiler leaves out: a WHILE node's body after its
    first pass.
    """
    launches = {event["args"]["correlation"] for event in calls if event["name"] == "cudaGraphLaunch"}
    graphs: dict[int, list[Event]] = defaultdict(list)
    for event in work:
        if (launch := event.get("args", {}).get("correlation")) in launches:
            graphs[launch].append(event)
    gaps = sum(len(nodes) - 1 for nodes in graphs.values())
    idle = sum(
        max(node["ts"] + node["dur"] for node in nodes) - min(node["ts"] for node in nodes) - busy(nodes)
        for nodes in graphs.values()
    )
    return {GRAPH_GAP: max(0.0, idle / gaps)} if gaps else {}


def during(events: list[Event], annotation: str) -> list[Event]:
    """What began while the annotated code ran; the device is idle before and after it, and keeps the same time."""
    span = next(event for event in events if event["name"] == annotation and event.get("cat") == "user_annotation")
    return [event for event in events if span["ts"] <= event["ts"] <= span["ts"] + span["dur"]]


def _longest(events: list[Event]) -> list[str]:
    times: dict[str, float] = defaultdict(float)
    for event in events:
        times[event["name"]] += event["dur"]
    return [name[:120] for name, _ in sorted(times.items(), key=lambda item: -item[1])[:TOP]]


def busy(events: list[Event]) -> float:
    """For how many microseconds at least one of the events ran: streams that overlap count once."""
    total, until = 0.0, -math.inf
    for start, end in sorted((event["ts"], event["ts"] + event["dur"]) for event in events):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def write_snapshot(step: Step, path: Path) -> None:
    """What the CUDA allocator did during one step, and where, as JSON: torch's own writer makes a pickle.

    Step once while the allocator's events are recorded, then write `segments` (what is held) and `device_traces`.
    To look at it on pytorch.org/memory_viz, which reads pickles: `pickle.dump(json.load(source), target)`.
    """
    torch.cuda.memory._record_memory_history(
        "all", context="all", stacks="python", max_entries=MOST_EVENTS, clear_history=True
    )
    step()  # where it raises, its worker ends
    torch.cuda.synchronize()
    found: dict[str, Any] = torch.cuda.memory._snapshot()
    torch.cuda.memory._record_memory_history(None)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found))
