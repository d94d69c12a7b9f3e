"""After each step the host waits, makes its text, and only then launches the next one: no host function is needed."""

from torch import Tensor

from ch11.baseline_host_callback_stall import decoded
from ch11.baseline_host_callback_stall import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)


def prepare(logits: Tensor, pieces: Tensor, stop: Tensor) -> Step:
    return decoded(__file__, logits, pieces, stop)
