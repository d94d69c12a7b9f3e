"""The launching thread makes the text, two steps behind the GPU, from an event on: the stream waits for no CPU."""

from torch import Tensor

from ch11.baseline_host_callback_stall import decoded
from ch11.baseline_host_callback_stall import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)


def prepare(logits: Tensor, pieces: Tensor, stop: Tensor) -> Step:
    return decoded(__file__, logits, pieces, stop)
