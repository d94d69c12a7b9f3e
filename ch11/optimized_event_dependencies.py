"""Each hand-over is an event that the other stream waits for on the device: the host enqueues all chunks ahead."""

import torch
from torch import Tensor

from ch11.baseline_event_dependencies import encode, spectrogram
from ch11.baseline_event_dependencies import workload as workload
from common.python.workload import Step

SLOTS = 3


def prepare(audio: Tensor, filters: Tensor, first: Tensor, second: Tensor) -> Step:
    gpu, (chunks, frames, _) = torch.get_device_module(audio.device), audio.shape
    parts, hidden = filters.new_empty(frames, filters.shape[1]), first.new_empty(frames, first.shape[1])
    power, out = first.new_empty(SLOTS, frames, len(first)), first.new_empty(chunks, frames, len(first))
    ready, taken = ([gpu.Event() for _ in range(SLOTS)] for _ in range(2))  # of each slot, its latest chunk
    analysis, encoding = gpu.Stream(), gpu.Stream()

    def step() -> Tensor:
        for stream in (analysis, encoding):
            stream.wait_stream(gpu.current_stream())  # nothing begins before the step does
        for index in range(chunks):
            slot = index % SLOTS
            with gpu.stream(analysis):
                analysis.wait_event(taken[slot])  # the spectrogram that lay here has been encoded
                spectrogram(audio[index], filters, parts, power[slot])
                ready[slot].record(analysis)
            with gpu.stream(encoding):
                encoding.wait_event(ready[slot])
                encode(power[slot], first, second, hidden, out[index])
                taken[slot].record(encoding)
        gpu.current_stream().wait_stream(encoding)  # which has waited for each spectrogram
        return out

    return step
