"""Two slots, allocated once: a copy into one waits on the device for the event of its last use; nothing is freed."""

import torch
from torch import Tensor

from ch11.baseline_record_stream_lifetime import accumulate
from ch11.baseline_record_stream_lifetime import workload as workload
from common.python.workload import Step

SLOTS = 2


def prepare(batches: Tensor, mean: Tensor) -> Step:
    gpu, count = torch.get_device_module(mean.device), batches[..., 0].numel()
    covariance, slots = mean.new_empty(len(mean), len(mean)), mean.new_empty(SLOTS, *batches.shape[1:])
    fetch, used = gpu.Stream(), [gpu.Event() for _ in range(SLOTS)]

    def step() -> Tensor:
        compute = gpu.current_stream()
        fetch.wait_stream(compute)  # nothing begins before the step does
        covariance.zero_()
        for index, batch in enumerate(batches):
            arrived, last_use = slots[index % SLOTS], used[index % SLOTS]
            with gpu.stream(fetch):
                fetch.wait_event(last_use)
                arrived.copy_(batch, non_blocking=True)
            compute.wait_stream(fetch)
            accumulate(covariance, arrived, mean, count)
            last_use.record(compute)
        return covariance

    return step
