"""torchao's Float8Linear with a scale a tensor; gradients, too, in e4m3, where its recipe has e5m2."""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor
from torch.func import functional_call
from torchao.float8 import Float8LinearConfig, convert_to_float8_training

from ch20.baseline_train_step_fp8 import workload as workload
from common.models.codes import own
from common.models.decoder import Shape, Weights, block
from common.models.training import training
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=89, memory_gib=60, tools=["g++"], modules=["torchao.float8"])


def prepare(weights: Weights, means: Weights, squares: Weights, tokens: Tensor, count: Tensor, shape: Shape) -> Step:
    config = Float8LinearConfig.from_recipe_name("tensorwise")
    gradients = replace(config.cast_config_grad_output, target_dtype=config.cast_config_input.target_dtype)
    config = replace(config, cast_config_grad_output=gradients, cast_config_grad_output_for_grad_weight=gradients)
    model = torch.nn.Sequential(torch.nn.Linear(16, 16, bias=False, device="meta"))  # for any weight that it is given
    module = convert_to_float8_training(model, config=config)[0]

    def linear(x: Tensor, weight: Tensor) -> Tensor:
        return functional_call(module, {"weight": weight}, x)

    run = partial(torch.compile(own(block, __file__), fullgraph=True, dynamic=False), linear=linear)
    return training(weights, means, squares, tokens, count, shape, run=run, fused=True)
