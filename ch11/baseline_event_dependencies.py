"""Spectrograms on one stream feed an encoder on another; before each hand-over the host waits for the whole device."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from common.models.graphs import replayable
from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, chunks: int, frames: int, window: int, bins: int, width: int) -> Inputs:
    """`filters` are a learned filter bank: the real parts of all bins, then the imaginary ones."""
    return {
        "audio": draw.normal(chunks, frames, window),
        "filters": draw.normal(window, 2 * bins, std=window**-0.5),
        "first": draw.normal(bins, width, std=bins**-0.5),
        "second": draw.normal(width, bins, std=width**-0.5),
    }


def reference(audio: Tensor, filters: Tensor, first: Tensor, second: Tensor) -> Tensor:
    real, imaginary = (audio @ filters).square().chunk(2, dim=-1)
    return ((real + imaginary).log1p() @ first).relu() @ second


def cost(chunks: int, frames: int, window: int, bins: int, width: int) -> Cost:
    """Products in fp32, whose units are the subject: tensor cores could multiply as exactly in three parts of TF32."""
    weights = 2 * bins * (window + width)
    rows = chunks * frames
    read, write = 4 * (rows * window + weights), 4 * rows * bins
    return Cost(flops=2 * rows * weights, read=read, write=write, items=chunks, unit="chunks")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    # A chunk's three products are 4.3 GFLOP, 84 us at the 51 TFLOP/s of cuBLAS; none of them fills the GPU for long.
    sizes={
        "bench": {"chunks": 64, "frames": 1024, "window": 1024, "bins": 512, "width": 1024},
        "test": {"chunks": 7, "frames": 13, "window": 37, "bins": 19, "width": 23},
    },
    tolerance=1e-5,
    frozen=("filters", "first", "second"),
    clock="end_to_end",
)


def spectrogram(frames: Tensor, filters: Tensor, parts: Tensor, power: Tensor) -> None:
    torch.mm(frames, filters, out=parts)
    real, imaginary = parts.square_().chunk(2, dim=1)
    torch.add(real, imaginary, out=power).log1p_()


def hide(power: Tensor, first: Tensor, hidden: Tensor) -> None:
    torch.mm(power, first, out=hidden).relu_()


def encode(hidden: Tensor, second: Tensor, out: Tensor) -> None:
    torch.mm(hidden, second, out=out)


def captured(
    audio: Tensor, filters: Tensor, first: Tensor, second: Tensor, out: Tensor, slots: int
) -> list[list[Callable[[], None]]]:
    """Three lists of CUDA graphs, one graph for each chunk (frames, window): spectrogram, hidden layer, encoding."""
    frames, device = audio.shape[1], audio.device
    parts, hidden = filters.new_empty(frames, filters.shape[1]), first.new_empty(frames, first.shape[1])
    power = first.new_empty(slots, frames, len(first))
    # The spectrograms' graphs and the encoder's run at once.
    streams = [torch.cuda.Stream() if audio.is_cuda else None for _ in range(2)]
    graphs: list[list[Callable[[], None]]] = [[], [], []]
    for index, chunk in enumerate(audio):
        slot = power[index % slots]
        works = (
            partial(spectrogram, chunk, filters, parts, slot),
            partial(hide, slot, first, hidden),
            partial(encode, hidden, second, out[index]),
        )
        for stage, work in enumerate(works):
            graphs[stage].append(replayable(work, device, stream=streams[stage > 0]))
    return graphs


def prepare(audio: Tensor, filters: Tensor, first: Tensor, second: Tensor) -> Step:
    gpu, out = torch.get_device_module(audio.device), first.new_empty(*audio.shape[:2], len(first))
    stages = captured(audio, filters, first, second, out, slots=2)
    analysis, encoding = gpu.Stream(), gpu.Stream()

    def step() -> Tensor:
        gpu.synchronize()  # what came before the step is over
        for analyse_chunk, hide_chunk, encode_chunk in zip(*stages):
            with gpu.stream(analysis):
                analyse_chunk()
            gpu.synchronize()  # this chunk's spectrogram is there, and the chunk before it has been encoded
            with gpu.stream(encoding):
                hide_chunk()
                encode_chunk()
        gpu.current_stream().wait_stream(encoding)
        return out

    return step
