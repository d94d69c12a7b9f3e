"""The model is built on the meta device, shapes without memory; the checkpoint's tensors become its parameters."""

from torch import Tensor

from ch13.baseline_meta_init_load import network, run
from ch13.baseline_meta_init_load import workload as workload
from common.python.workload import Step


def prepare(checkpoint: dict[str, Tensor], x: Tensor) -> Step:
    layers, width = len(checkpoint) // 2 - 1, x.shape[1]

    def step() -> Tensor:
        model = network(layers, width, "meta")
        model.load_state_dict(checkpoint, assign=True)
        return run(model, x)

    return step
