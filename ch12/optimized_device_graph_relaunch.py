"""A graph makes 16 tokens, and its last kernel launches it again from the device, until all sequences have ended."""

from torch import Tensor

from ch12.baseline_device_graph_relaunch import decoding
from ch12.baseline_device_graph_relaunch import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)


def prepare(last: Tensor, before: Tensor, prompt: Tensor) -> Step:
    return decoding(__file__, last, before, prompt)
