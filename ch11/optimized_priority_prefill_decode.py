"""The decode chain's stream has a higher priority: whenever a prefill block ends, a decode block may take its place."""

from torch import Tensor

from ch11.baseline_priority_prefill_decode import side_by_side
from ch11.baseline_priority_prefill_decode import workload as workload
from common.python.workload import Step


def prepare(prompts: Tensor, weights: Tensor, query: Tensor, keys: Tensor, values: Tensor) -> Step:
    return side_by_side(prompts, weights, query, keys, values, priority=-1)
