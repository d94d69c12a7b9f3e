"""Each hand-over is an event that the other stream waits for on the device: the host enqueues all chunks ahead."""

import torch
from torch import Tensor

from ch11.baseline_event_dependencies import captured
from ch11.baseline_event_dependencies import workload as workload
from common.python.workload import Step

SLOTS = 3


def prepare(audio: Tensor, filters: Tensor, first: Tensor, second: Tensor) -> Step:
    gpu, out = torch.get_device_module(audio.device), first.new_empty(*audio.shape[:2], len(first))
    stages = captured(audio, filters, first, second, out, SLOTS)
    ready, taken = ([gpu.Event() for _ in range(SLOTS)] for _ in range(2))  # of each slot, its latest chunk
    analysis, encoding = gpu.Stream(), gpu.Stream()

    def step() -> Tensor:
        for stream in (analysis, encoding):
            stream.wait_stream(gpu.current_stream())  # nothing begins before the step does
        for index, (analyse_chunk, hide_chunk, encode_chunk) in enumerate(zip(*stages)):
            slot = index % SLOTS
            with gpu.stream(analysis):
                analysis.wait_event(taken[slot])  # the spectrogram that lay here has been read
                analyse_chunk()
                ready[slot].record(analysis)
            with gpu.stream(encoding):
                encoding.wait_event(ready[slot])
                hide_chunk()
                taken[slot].record(encoding)
                encode_chunk()
        gpu.current_stream().wait_stream(encoding)  # which has waited for each spectrogram
        return out

    return step
